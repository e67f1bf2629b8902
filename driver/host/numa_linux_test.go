package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/numa"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"golang.org/x/sys/unix"
)

// touchAll makes memory of every kind, has the device touch it, and shows it.
func touchAll(t *testing.T, d driver.Device, touched func(what string, memory []byte)) {
	const size = 4 << 20
	bytes := func(p driver.Pointer) []byte {
		testkit.Must(t, d.DefaultStream().Fill(p, 1, size))
		testkit.Must(t, d.DefaultStream().Sync(context.Background()))
		b, err := d.Visible().Bytes(p, size)
		testkit.Must(t, err)
		return b
	}
	p := drivertest.Alloc(t, d, size)
	touched("a block", bytes(p))
	_, err := d.Sharing().Export(p)
	testkit.Must(t, err)
	touched("a block that was exported", bytes(p))
	host, err := d.Pinned().AllocHost(size)
	testkit.Must(t, err)
	touched("page-locked memory", host)
	vm := d.VirtualMemory()
	at, err := vm.Reserve(2 * size)
	testkit.Must(t, err)
	page, err := vm.Create(size)
	testkit.Must(t, err)
	shared, err := d.Sharing().CreateShared(size)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(at, page, shared))
	touched("a page", bytes(at))
	touched("a page that is shared", bytes(at+size))
}

func aNodeWithMemory(t *testing.T) (node int, ok bool) {
	nodes, err := Nodes()
	if err != nil {
		if !errors.Is(err, driver.ErrUnsupported) {
			t.Error(err)
		}
		return 0, false
	}
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Memory > 0 })
	return nodes[i].ID, true
}

// policyOf returns the kernel's policy for the page at which b begins.
func policyOf(t *testing.T, b []byte) (mode int, nodes uint64) {
	var m int32
	var mask [1024 / 64]uint64
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&mask)), 1024,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), unix.MPOL_F_ADDR, 0)
	if errno != 0 {
		t.Fatalf("get_mempolicy: %v", errno)
	}
	return int(m), mask[0]
}

// Memory of every kind is bound as asked for, and lies on the node.
func TestMemoryLiesOnItsNode(t *testing.T) {
	node, ok := aNodeWithMemory(t)
	if !ok {
		return
	}
	for _, strict := range []bool{false, true} {
		d, err := Open(Options{Total: 64 << 20, Node: &node, Strict: strict})
		if strict && errors.Is(err, driver.ErrUnsupported) {
			return // a sandbox that does not allow memory to be bound
		}
		testkit.Must(t, err)
		defer d.Close()
		if !strings.Contains(d.Info().Name, fmt.Sprintf("node %d", node)) {
			if strict {
				t.Errorf("the device calls itself %q", d.Info().Name)
			}
			continue // the same sandbox
		}
		want := unix.MPOL_PREFERRED
		if strict {
			want = unix.MPOL_BIND
		}
		touchAll(t, d, func(what string, memory []byte) {
			for _, at := range []int{0, len(memory) - int(pageSize)} {
				if mode, nodes := policyOf(t, memory[at:]); mode != want || nodes != 1<<node {
					t.Errorf("%s, strict %v: policy %d of nodes %#x, want %d of node %d", what, strict, mode, nodes, want, node)
				}
			}
			if !strict {
				return // another node may have helped out
			}
			memory[0] = 1
			on, err := numa.Where(memory[:pageSize])
			if err != nil || on[0] != node {
				t.Errorf("%s lies on %v, %v; want node %d", what, on, err, node)
			}
		})
	}
}

// TestDriverOnNode runs the suite on a device with a node.
func TestDriverOnNode(t *testing.T) {
	if node, ok := aNodeWithMemory(t); ok {
		drivertest.Run(t, func(t testing.TB) driver.Device {
			d, err := Open(Options{Total: 64 << 20, Node: &node})
			testkit.Must(t, err)
			return d
		})
	}
}

// The kernel's record of the placement of a device's pages does not grow with each page.
func TestPagesArePlacedAhead(t *testing.T) {
	times := 0
	f, err := openPhysical(placement{bind: func([]byte, int, bool) error { times++; return nil }})
	testkit.Must(t, err)
	defer f.close()
	for range 1000 {
		offset, err := f.create(1 << 20)
		testkit.Must(t, err)
		testkit.Must(t, f.discard(offset, 1<<20))
	}
	if _, err := f.create(placeAhead); err != nil || times != 2 {
		t.Errorf("%v; placed %d times, want 2", err, times)
	}
}

// If only a little memory can be placed at a time, as under a limit on addresses, the needed memory is placed. A file
// of fixed size is never placed beyond its end.
func TestPagesArePlacedWithoutMuchRoom(t *testing.T) {
	var placed int64
	place := placement{strict: true, bind: func(pages []byte, _ int, _ bool) error {
		if len(pages) > 1<<30 {
			return unix.ENOMEM
		}
		placed += int64(len(pages))
		return nil
	}}
	f, err := openPhysical(place)
	testkit.Must(t, err)
	defer f.close()
	for i := range int64(3) {
		_, err := f.create(1 << 20)
		testkit.Must(t, err)
		if want := (i + 1) << 20; placed != want {
			t.Errorf("%d bytes are placed, want %d", placed, want)
		}
	}
	placed = 0
	sealed, err := newSealed(blockName, 1<<20, place)
	testkit.Must(t, err)
	defer sealed.close()
	if placed != 1<<20 {
		t.Errorf("of a file of 1 MiB %d bytes are placed", placed)
	}
}
