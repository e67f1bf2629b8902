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

// A handle is what Export writes and Import reads. The driver's own 64 bytes say nothing that could be checked, and a
// wrong one is refused with "invalid argument": so they travel with what the other end needs to say more.
type handle struct {
	UUID    [16]byte // of the device
	Size    int64    // of the allocation, in bytes; 0 of an event
	Process int64    // the exporter's number
	Started int64    // when it started, in the kernel's ticks: numbers are given again, and containers have their own
	Driver  cu.IPCHandle
}

// What opens a handle of an allocation, and one of an event. The last byte is the version of the form.
var (
	handleMagic = []byte("ashlar\x00\x01")
	eventMagic  = []byte("ashlarE\x01")
)

func (h handle) bytes(magic []byte) []byte {
	var b bytes.Buffer
	b.Write(magic)
	_ = binary.Write(&b, binary.LittleEndian, h) // a Buffer takes everything
	return b.Bytes()
}

// parseHandle says what is wrong with b if it is no handle of that kind.
func parseHandle(magic, b []byte) (handle, error) {
	var h handle
	version := len(magic) - 1
	switch {
	case len(b) <= version || !bytes.HasPrefix(b, magic[:version]):
		return h, fmt.Errorf("%d bytes that are no such handle of this driver", len(b))
	case b[version] != magic[version]:
		return h, fmt.Errorf("a handle of version %d, this program reads version %d", b[version], magic[version])
	case len(b) != len(magic)+binary.Size(h):
		return h, fmt.Errorf("a handle of %d bytes, want %d", len(b), len(magic)+binary.Size(h))
	}
	_, err := binary.Decode(b[len(magic):], binary.LittleEndian, &h)
	return h, err
}

// newHandle is a handle of this process and device, but for what libcuda says. Between enter and leave.
func (s sharing) newHandle(call string, size int64) (handle, error) {
	uuid, r := s.d.lib.DeviceUUID(s.d.dev)
	if r != cu.Success {
		return handle{}, s.d.fail(call, r, "the UUID of device %d", s.d.info.Ordinal)
	}
	return handle{UUID: uuid, Size: size, Process: int64(os.Getpid()), Started: started()}, nil
}

// foreign refuses what libcuda would, but says why: a handle of another device, or of this very process, which has what
// it is of. Between enter and leave.
func (s sharing) foreign(call string, h handle) error {
	uuid, r := s.d.lib.DeviceUUID(s.d.dev)
	switch {
	case r != cu.Success:
		return s.d.fail(call, r, "the UUID of device %d", s.d.info.Ordinal)
	case uuid != h.UUID:
		return invalidError(call, "a handle of device %x, this is device %x", h.UUID, uuid)
	case h.Process == int64(os.Getpid()) && h.Started == started():
		return invalidError(call, "a handle of this very process: CUDA opens it in others only")
	}
	return nil
}

// started returns when this process started. It is zero where the system does not tell, and then so it is for every
// process there.
func started() int64 {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	// The second field, in parentheses, is the program's name and may hold anything; the 22nd is what is wanted.
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
