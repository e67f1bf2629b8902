//go:build linux || darwin

package mapped

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|noReserve)
	if err == unix.ENODEV || err == unix.EACCES { // file systems without mappings say so
		return nil, errNone
	}
	return b, err
}

func unmapFile(b []byte) error { return unix.Munmap(b) }

// wholePages returns b with all of the page that it starts in: advice wants the start of one. The bytes before b are
// the mapping's too, which starts at a page itself.
func wholePages(b []byte) []byte {
	before := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % uintptr(unix.Getpagesize()))
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -before)), len(b)+before)
}
