package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A handle tells another process where to find an exported block or an event: at a descriptor of the exporter, which it
// opens through /proc. The kernel permits this to processes of the same user, as long as the exporter lives. The other
// fields identify the file, because numbers of processes and descriptors are reused.
type handle struct {
	Magic [8]byte
	PID   int64
	Start uint64 // when the process started, as /proc/PID/stat has it
	FD    int64
	Inode uint64
	Size  int64
}

// The first bytes of a handle say whether it is that of a block or of an event; fileNames has the name of its file.
var (
	handleMagic = [8]byte{'a', 's', 'h', 'l', 'a', 'r', 'h', '1'}
	eventMagic  = [8]byte{'a', 's', 'h', 'l', 'a', 'r', 'e', '1'}
	fileNames   = map[[8]byte]string{handleMagic: blockName, eventMagic: eventName}
)

var handleSize = binary.Size(handle{})

// newHandle makes a handle of a sealed file of this process.
func newHandle(magic [8]byte, f *memfd) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	start, err := startOf(unix.AT_FDCWD, "/proc/self/stat")
	if err != nil {
		return nil, err
	}
	return binary.Append(nil, binary.LittleEndian, handle{
		Magic: magic, PID: int64(os.Getpid()), Start: start, FD: int64(f.fd), Inode: st.Ino, Size: f.end,
	})
}

func parseHandle(magic [8]byte, b []byte) (handle, error) {
	var h handle
	if len(b) != handleSize {
		return h, fmt.Errorf("%d bytes: want %d", len(b), handleSize)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &h); err != nil {
		return h, err
	}
	if h.Magic != magic || h.PID <= 0 || h.PID > math.MaxInt32 || h.FD < 0 || h.FD > math.MaxInt32 || h.Size <= 0 {
		return h, errors.New("not such a handle of the host driver")
	}
	return h, nil
}

// open opens the file that the handle names. While the directory in /proc is open it stays the exporter's, even if
// another process gets the number.
func (h handle) open() (*memfd, error) {
	if h.PID == int64(os.Getpid()) {
		return nil, errors.New("this process made it: use what it has")
	}
	file := fileNames[h.Magic]
	dir, err := unix.Open(fmt.Sprintf("/proc/%d", h.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("its exporter, process %d, is gone: %w", h.PID, err)
	}
	defer unix.Close(dir)
	start, err := startOf(dir, "stat")
	if err != nil || start != h.Start {
		return nil, fmt.Errorf("its exporter, process %d, is gone: another one has its number", h.PID)
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("its exporter, process %d, is another user's", h.PID)
	}
	name := "fd/" + strconv.FormatInt(h.FD, 10)
	link := make([]byte, 64) // longer links are of other files
	n, err := unix.Readlinkat(dir, name, link)
	if err != nil {
		return nil, fmt.Errorf("process %d gave it up: %w", h.PID, err)
	}
	if string(link[:n]) != memfdLink(file) { // checked before the file is opened, because opening some files has effects
		return nil, fmt.Errorf("process %d gave it up", h.PID)
	}
	fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open memory of process %d: %w", h.PID, err)
	}
	if err = isSealed(fd, string(link[:n]), file, h.Size); err == nil {
		if err = unix.Fstat(fd, &st); err == nil && st.Ino != h.Inode {
			err = fmt.Errorf("process %d gave it up", h.PID)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &memfd{fd: fd, end: h.Size}, nil
}

// startOf reads the start time of a process from its stat file: field 22, in clock ticks since the machine started. The
// second field is the program's name in parentheses, and may contain any character.
func startOf(dir int, name string) (uint64, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	text := make([]byte, 4096)
	n, err := unix.Read(fd, text)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text[:n], ')')+1 : n]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("read %s: %d fields after the name", name, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
