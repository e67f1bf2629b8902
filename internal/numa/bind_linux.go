package numa

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxNodes bounds the numbers of nodes: the kernel's own limit is 1024.
const maxNodes = 1 << 10

// Bind has the kernel take the memory of pages that are not there yet from a node: from no other if strict, else from
// others too once it is full. B is whole pages, mapped outside Go's heap, which nothing has touched; it may be mapped
// without access. The kernel's errors are EINVAL for a node that is not there, has no memory, or is kept from this
// process by a cpuset, EPERM where a sandbox forbids it, and ENOSYS of a kernel without nodes.
//
// A strict page whose node is full is not refused: the kernel reclaims and swaps on that node, and in the end its
// out-of-memory killer ends a process.
func Bind(b []byte, node int, strict bool) error {
	if node < 0 || node >= maxNodes {
		return unix.EINVAL
	}
	mode := uintptr(unix.MPOL_PREFERRED)
	if strict {
		mode = unix.MPOL_BIND
	}
	const bits = unsafe.Sizeof(uintptr(0)) * 8
	var mask [maxNodes / bits]uintptr
	mask[uintptr(node)/bits] = 1 << (uintptr(node) % bits)
	// The kernel looks at one bit less than it is told.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), mode,
		uintptr(unsafe.Pointer(&mask)), maxNodes+1, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Where returns the nodes on which the pages of b lie, one for each page of the system from where b begins: -1 for a
// page that is not there.
func Where(b []byte) ([]int, error) {
	size := os.Getpagesize()
	n := (len(b) + size - 1) / size
	if n == 0 {
		return nil, nil
	}
	pages, status := make([]uintptr, n), make([]int32, n)
	for i := range pages {
		pages[i] = uintptr(unsafe.Pointer(unsafe.SliceData(b))) + uintptr(i*size)
	}
	_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(n), uintptr(unsafe.Pointer(unsafe.SliceData(pages))),
		0, uintptr(unsafe.Pointer(unsafe.SliceData(status))), 0)
	if errno != 0 {
		return nil, fmt.Errorf("move_pages: %w", errno)
	}
	nodes := make([]int, n)
	for i, s := range status {
		nodes[i] = max(int(s), -1)
	}
	return nodes, nil
}
