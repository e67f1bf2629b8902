//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// A handle is written by Export and read by Import. The driver's own 64 bytes cannot be checked, and an invalid handle
// is refused with "invalid argument" only. So a handle has additional data, with which Import can report the reason.
type handle struct {
	UUID    [16]byte // of the device
	Size    int64    // of the allocation, in bytes; 0 for an event
	Process int64    // process ID of the exporter
	Started int64    // its start time in the kernel's ticks, because IDs are reused, and containers have their own
	Driver  cu.IPCHandle
}

// The magic numbers of handles of allocations and events. The last byte is the version of the format.
var (
	handleMagic = []byte("ashlar\x00\x01")
	eventMagic  = []byte("ashlarE\x01")
)

func (h handle) bytes(magic []byte) []byte {
	var b bytes.Buffer
	b.Write(magic)
	_ = binary.Write(&b, binary.LittleEndian, h) // a Buffer does not fail
	return b.Bytes()
}

// parseHandle parses a handle with the given magic number.
func parseHandle(magic, b []byte) (handle, error) {
	var h handle
	version := len(magic) - 1
	switch {
	case len(b) <= version || !bytes.HasPrefix(b, magic[:version]):
		return h, fmt.Errorf("%d bytes that are not a handle of this kind and driver", len(b))
	case b[version] != magic[version]:
		return h, fmt.Errorf("a handle of version %d, this program reads version %d", b[version], magic[version])
	case len(b) != len(magic)+binary.Size(h):
		return h, fmt.Errorf("a handle of %d bytes, want %d", len(b), len(magic)+binary.Size(h))
	}
	_, err := binary.Decode(b[len(magic):], binary.LittleEndian, &h)
	return h, err
}

// newHandle returns a handle of this process and device without libcuda's part. Between enter and leave.
func (s sharing) newHandle(call string, size int64) (handle, error) {
	uuid, r := s.d.lib.DeviceUUID(s.d.dev)
	if r != cu.Success {
		return handle{}, s.d.fail(call, r, "the UUID of device %d", s.d.info.Ordinal)
	}
	return handle{UUID: uuid, Size: size, Process: int64(os.Getpid()), Started: started()}, nil
}

// foreign returns an error, with the reason, for handles that libcuda would refuse: those of another device or of this
// process. Between enter and leave.
func (s sharing) foreign(call string, h handle) error {
	uuid, r := s.d.lib.DeviceUUID(s.d.dev)
	switch {
	case r != cu.Success:
		return s.d.fail(call, r, "the UUID of device %d", s.d.info.Ordinal)
	case uuid != h.UUID:
		return invalidError(call, "a handle of device %x, this is device %x", h.UUID, uuid)
	case h.Process == int64(os.Getpid()) && h.Started == started():
		return invalidError(call, "a handle of this process: CUDA opens it in other processes only")
	}
	return nil
}

// started returns the start time of this process. It is zero if the system does not report it; then it is zero for
// every process of the system.
func started() int64 {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	// The second field, in parentheses, is the program's name and may contain any character. The start time is the 22nd
	// field.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return 0
	}
	return ticks
}
