package caching

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// preferLargePages asks for pages of 2 MiB, which the system may refuse.
func preferLargePages(blocks []block) {
	size := len(blocks) * int(unsafe.Sizeof(block{}))
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Pointer(&blocks[0])), size), unix.MADV_HUGEPAGE)
}
