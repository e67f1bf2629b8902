package mapped

import "golang.org/x/sys/unix"

// noReserve keeps a private mapping, of which few pages are ever written, from counting in full against the memory that
// the system promises.
const noReserve = unix.MAP_NORESERVE

// populate reads all of b in one system call, which Linux has since 5.14.
func populate(b []byte) error {
	b = wholePages(b)
	_ = unix.Madvise(b, unix.MADV_WILLNEED) // reads ahead in larger steps than a fault does
	return unix.Madvise(b, unix.MADV_POPULATE_READ)
}

// prepare has all of b backed by memory in one system call, which Linux has since 5.14.
func prepare(b []byte) { _ = unix.Madvise(wholePages(b), unix.MADV_POPULATE_WRITE) }
