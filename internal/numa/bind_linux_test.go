package numa

import (
	"math"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Pages come to be when they are touched, on a node; binding to a node that no machine has fails before that.
func TestBindAndWhere(t *testing.T) {
	size := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, 3*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	for _, node := range []int{-1, maxNodes - 1, maxNodes, math.MaxInt} {
		if err := Bind(b, node, true); err == nil {
			t.Errorf("bound to node %d", node)
		}
	}
	nodes, err := Nodes(os.DirFS("/sys"))
	if err != nil {
		return // a kernel without: the next to know is Bind, whose error is the kernel's
	}
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Memory > 0 })
	node := nodes[i].ID
	for _, strict := range []bool{false, true} {
		if err := Bind(b, node, strict); err != nil && err != unix.EPERM && err != unix.ENOSYS {
			t.Errorf("bind to node %d, strict %v: %v", node, strict, err)
		} else if err != nil {
			return // a sandbox that forbids it
		}
	}
	b[size] = 1
	on, err := Where(b)
	if err != nil || !slices.Equal(on, []int{-1, node, -1}) {
		t.Errorf("the pages lie on %v, %v; want the second alone, on node %d", on, err, node)
	}
	if on, err := Where(nil); on != nil || err != nil {
		t.Errorf("no pages lie on %v, %v", on, err)
	}
}
