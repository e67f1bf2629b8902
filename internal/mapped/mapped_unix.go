//go:build linux || darwin

package mapped

import (
	"os"

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
