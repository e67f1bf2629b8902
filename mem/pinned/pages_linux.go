package pinned

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"golang.org/x/sys/unix"
)

const canMap = true

// mapPages returns fresh pages outside Go's heap, of 2 MiB if the system permits: these are touched and page-locked
// several times faster.
func mapPages(size int64) ([]byte, error) {
	pages, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err == unix.ENOMEM {
		return nil, fmt.Errorf("map %d bytes: %w", size, driver.ErrNoMemory)
	}
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	_ = unix.Madvise(pages, unix.MADV_HUGEPAGE)
	return pages, nil
}

func unmapPages(pages []byte) error {
	if err := unix.Munmap(pages); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(pages), err)
	}
	return nil
}
