package pinned_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/internal/numa"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"golang.org/x/sys/unix"
)

// Blocks are placed on the NUMA node that the settings name. If it does not exist, the error says so.
func TestNode(t *testing.T) {
	d := newDevice()
	if _, err := pinned.New(d, pinned.Config{Node: new(0)}); err == nil || !strings.Contains(err.Error(), "HostRegister") {
		t.Errorf("a node without HostRegister: %v", err)
	}
	nodes, err := numa.Nodes(os.DirFS("/sys"))
	if errors.Is(err, fs.ErrNotExist) {
		nodes = []numa.Node{{ID: 0, Memory: 1}} // a kernel without, which places nothing
	} else if err != nil {
		t.Fatal(err)
	}
	node := nodes[slices.IndexFunc(nodes, func(n numa.Node) bool { return n.Memory > 0 })].ID
	a := open(t, d, pinned.Config{HostRegister: true, Node: &node})
	b := alloc(t, a, 100_000)
	var mode int32
	var mask [1024 / 64]uint64
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&mask)), 1024,
		uintptr(unsafe.Pointer(unsafe.SliceData(a.Bytes(b)))), unix.MPOL_F_ADDR, 0)
	switch {
	case errno == syscall.EPERM || errno == syscall.ENOSYS: // a sandbox, where there is nothing to see
	case errno != 0 || mode != unix.MPOL_PREFERRED || mask[node/64] != 1<<(node%64):
		t.Errorf("policy %d of nodes %x, %v; want node %d preferred", mode, mask, errno, node)
	default:
		far := open(t, d, pinned.Config{HostRegister: true, Node: new(1023)})
		if _, err := far.Alloc(1); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "node 1023") {
			t.Errorf("a node that is not there: %v", err)
		}
		if err := far.Close(); err != nil {
			t.Error(err)
		}
	}
	a.Free(b)
	closeAll(t, a, d)
}
