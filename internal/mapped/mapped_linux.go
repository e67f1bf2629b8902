package mapped

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// noReserve keeps a private mapping, of which few pages are ever written, from counting in full against the memory that
// the system promises.
const noReserve = unix.MAP_NORESERVE

// prepare has all of b backed by memory in one system call, which Linux has since 5.14.
func prepare(b []byte) { _ = unix.Madvise(wholePages(b), unix.MADV_POPULATE_WRITE) }

// wholePages returns b with all of the page that it starts in: advice wants the start of one. The bytes before b are
// the mapping's too, which starts at a page itself.
func wholePages(b []byte) []byte {
	before := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % uintptr(unix.Getpagesize()))
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -before)), len(b)+before)
}
