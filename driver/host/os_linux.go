package host

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"golang.org/x/sys/unix"
)

// totalMemory returns the bytes of memory of the machine.
func totalMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

// preferLargePages asks for pages of 2 MiB, which the system may refuse: touching fresh memory for the first time is
// then several times faster.
func preferLargePages(p driver.Pointer, size int64) {
	_ = unix.Madvise(view(p, size), unix.MADV_HUGEPAGE)
}

// memfd is physical memory as a file without a name. Offsets only grow. A page or block that is shared with other
// processes has a file of its own: see sealed_linux.go.
type memfd struct {
	fd     int
	end    int64
	place  placement
	placed int64 // the offset up to which it is placed
}

func openPhysical(place placement) (physical, error) {
	fd, err := unix.MemfdCreate("ashlar", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return &memfd{fd: fd, place: place}, nil
}

const nothing = unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_NORESERVE

// reserve maps more than it needs and unmaps both ends, so that the start is aligned.
func (f *memfd) reserve(size, align int64) (driver.Pointer, error) {
	if size > 1<<62 {
		return 0, unix.ENOMEM
	}
	raw, err := unix.MmapPtr(-1, 0, nil, uintptr(size+align), unix.PROT_NONE, nothing)
	if err != nil {
		return 0, err
	}
	start := driver.Pointer(uintptr(raw))
	p := (start + driver.Pointer(align) - 1) &^ (driver.Pointer(align) - 1)
	head, tail := int64(p-start), align-int64(p-start)
	if head > 0 {
		if err := unmapMemory(start, head); err != nil {
			return 0, err
		}
	}
	if tail > 0 {
		if err := unmapMemory(p+driver.Pointer(size), tail); err != nil {
			return 0, err
		}
	}
	return p, nil
}

func (f *memfd) release(p driver.Pointer, size int64) error { return unmapMemory(p, size) }

func (f *memfd) create(size int64) (int64, error) {
	offset := f.end
	if err := f.placeTo(offset + size); err != nil {
		return 0, err
	}
	if err := unix.Ftruncate(f.fd, offset+size); err != nil {
		return 0, err
	}
	f.end += size
	return offset, nil
}

// placeAhead is the number of bytes of the file that are placed at a time. It is large because the kernel keeps a
// record of each call as long as the file lives, and addresses cost nothing, except where a process has few (ulimit
// -v).
const placeAhead = 64 << 30

// placeTo places the file up to an end, and ahead of it if possible.
func (f *memfd) placeTo(end int64) error {
	if f.place.bind == nil || end <= f.placed {
		return nil
	}
	need := end - f.placed
	if need < placeAhead && f.placeNext(placeAhead) == nil {
		return nil
	}
	if err := f.placeNext(need); err != nil && f.place.strict {
		return fmt.Errorf("place memory: %w", err)
	}
	return nil
}

// placeNext places the next bytes of the file, through a mapping, because mbind takes addresses.
func (f *memfd) placeNext(size int64) error {
	raw, err := unix.MmapPtr(f.fd, f.placed, nil, uintptr(size), unix.PROT_NONE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	p := driver.Pointer(uintptr(raw))
	if err := errors.Join(f.place.movePages(view(p, size)), unmapMemory(p, size)); err != nil {
		return err
	}
	f.placed += size
	return nil
}

func (f *memfd) discard(offset, size int64) error {
	return unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, size)
}

func (f *memfd) mapAt(p driver.Pointer, offset, size int64) error {
	_, err := unix.MmapPtr(f.fd, offset, address(p), uintptr(size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}

func (f *memfd) unmapAt(p driver.Pointer, size int64) error {
	_, err := unix.MmapPtr(-1, 0, address(p), uintptr(size), unix.PROT_NONE, nothing|unix.MAP_FIXED)
	return err
}

func (f *memfd) close() error { return unix.Close(f.fd) }
