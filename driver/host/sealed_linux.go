package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Memory that is shared with other processes is a file of its own, of a fixed size. It is sealed when it is made, and
// the seals are checked when it is opened: if a process could truncate it, the others would die of SIGBUS.
const (
	pageName  = "ashlar-page"  // made by CreateShared
	blockName = "ashlar-block" // made by Export
	eventName = "ashlar-event" // made by NewEvent
	seals     = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// newSealed makes a file of size zero bytes, which take memory when they are touched, on the node of place.
func newSealed(name string, size int64, place placement) (*memfd, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := &memfd{fd: fd, end: size, place: place}
	if place.bind != nil { // place all of it, and nothing ahead, since it does not grow
		err = f.placeNext(size)
	}
	if err == nil || !place.strict {
		err = unix.Ftruncate(fd, size)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return f, nil
}

// isSealed fails unless fd is a file that newSealed made under that name, here or in another process, of that size.
// link is the text of the link of fd in /proc.
func isSealed(fd int, link, name string, size int64) error {
	if want := memfdLink(name); link != want {
		return fmt.Errorf("it is %s, not %s", link, want)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Size != size {
		return fmt.Errorf("it has %d bytes, not %d", st.Size, size)
	}
	if has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || has&seals != seals {
		return fmt.Errorf("its size is not sealed")
	}
	return nil
}

// memfdLink returns the text of the link /proc/PID/fd/N of a file of memfd_create.
func memfdLink(name string) string { return "/memfd:" + name + " (deleted)" }

// duplicate returns another descriptor of the same file, which child processes do not inherit.
func duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }
