package host

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/numa"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// twoNodes is a machine with a node of 3 MiB, and one without memory.
func twoNodes() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"devices/system/node/node0/cpulist":      file("0"),
		"devices/system/node/node0/meminfo":      file("Node 0 MemTotal: 3072 kB\nNode 0 MemFree: 1024 kB\n"),
		"devices/system/node/node1/cpulist":      file("1"),
		"devices/system/node/node1/meminfo":      file("Node 1 MemTotal: 0 kB\nNode 1 MemFree: 0 kB\n"),
		"bus/pci/devices/0000:1b:00.0/numa_node": file("1\n"),
		"bus/pci/devices/0000:1c:00.0/numa_node": file("-1\n"),
	}
}

// A node that does not exist is always an error. A system that cannot bind memory is an error in strict mode only.
func TestPlace(t *testing.T) {
	none := fstest.MapFS{}
	for _, c := range []struct {
		name     string
		sys      fs.FS
		o        Options
		answer   error // the system's
		code     error
		says     string
		total    int64
		placedAs string
	}{
		{name: "none", sys: twoNodes()},
		{name: "strict alone", sys: twoNodes(), o: Options{Strict: true}, code: driver.ErrInvalid, says: "strict"},
		{name: "preferred", sys: twoNodes(), o: Options{Node: new(0)}, total: 3 << 20, placedAs: ", node 0"},
		{name: "strict", sys: twoNodes(), o: Options{Node: new(0), Strict: true}, total: 3 << 20, placedAs: ", node 0 only"},
		{name: "with a total", sys: twoNodes(), o: Options{Node: new(0), Total: 5 << 20}, total: 5 << 20, placedAs: ", node 0"},
		{name: "not there", sys: twoNodes(), o: Options{Node: new(2)}, code: driver.ErrInvalid, says: "nodes 0, 1"},
		{name: "negative", sys: twoNodes(), o: Options{Node: new(-1)}, code: driver.ErrInvalid, says: "node -1"},
		{name: "without memory", sys: twoNodes(), o: Options{Node: new(1)}, code: driver.ErrInvalid, says: "no memory"},
		{name: "a cpuset", sys: twoNodes(), o: Options{Node: new(0)}, answer: syscall.EINVAL, code: driver.ErrInvalid, says: "cpuset"},
		{name: "a sandbox", sys: twoNodes(), o: Options{Node: new(0)}, answer: syscall.EPERM},
		{
			name: "a sandbox, strict", sys: twoNodes(), o: Options{Node: new(0), Strict: true}, answer: syscall.EPERM,
			code: driver.ErrUnsupported, says: "not permitted",
		},
		{name: "a kernel without nodes", sys: none, o: Options{Node: new(0)}, answer: syscall.ENOSYS},
		{
			name: "a kernel without nodes, strict", sys: none, o: Options{Node: new(0), Strict: true}, answer: syscall.ENOSYS,
			code: driver.ErrUnsupported, says: "node 0",
		},
		{name: "another system", sys: none, o: Options{Node: new(0)}, answer: numa.ErrSystem, code: driver.ErrUnsupported, says: "no nodes"},
		{name: "no tree", sys: none, o: Options{Node: new(3)}, placedAs: ", node 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pl, err := c.o.place(c.sys, func([]byte, int, bool) error { return c.answer })
			if c.code != nil {
				if !errors.Is(err, c.code) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %v that says %q", err, c.code, c.says)
				}
				return
			}
			testkit.Must(t, err)
			if c.o.Total != c.total || pl.String() != c.placedAs {
				t.Errorf("total %d, placed as %q; want %d, %q", c.o.Total, pl, c.total, c.placedAs)
			}
		})
	}
}

// Every kind of memory is placed before it is touched, and only memory that the device itself allocates.
func TestAllMemoryIsPlaced(t *testing.T) {
	pages, err := openPhysical(placement{})
	testkit.Must(t, err)
	d := newDevice(Options{Total: 64 << 20, Granularity: defaultGranularity}, pages)
	defer d.Close()
	placed := int64(0)
	d.place = placement{node: 5, strict: true, bind: func(b []byte, node int, strict bool) error {
		if node != 5 || !strict {
			t.Errorf("placed on node %d, strict %v", node, strict)
		}
		placed += int64(len(b))
		return nil
	}}
	want := func(what string, size int64) {
		t.Helper()
		if placed != size {
			t.Errorf("%s: %d bytes placed, want %d", what, placed, size)
		}
		placed = 0
	}
	_ = drivertest.Alloc(t, d, 3*pageSize)
	want("Alloc", 3*pageSize)
	b, err := d.Pinned().AllocHost(pageSize + 1)
	testkit.Must(t, err)
	want("AllocHost", 2*pageSize)
	testkit.Must(t, d.Pinned().FreeHost(b))
	want("FreeHost", 0)
}

// A binding that fails later, for example because a node was removed, is an error in strict mode, and loses no memory.
func TestPlacingFailsLater(t *testing.T) {
	for _, strict := range []bool{false, true} {
		d := newDevice(Options{Total: 64 << 20}, nil)
		d.place = placement{strict: strict, bind: func([]byte, int, bool) error { return syscall.EINVAL }}
		_, err := d.Alloc(pageSize)
		if strict != errors.Is(err, driver.ErrNoMemory) || strict && !strings.Contains(err.Error(), "node 0") {
			t.Errorf("strict %v: %v", strict, err)
		}
		if free, total, err := d.Available(); err != nil || strict != (free == total) {
			t.Errorf("strict %v: %d of %d bytes left, %v", strict, free, total, err)
		}
		testkit.Must(t, d.Close())
	}
}

func TestNodeNear(t *testing.T) {
	if node, err := nodeNear(twoNodes(), "0000:1B:00.0"); node != 1 || err != nil {
		t.Errorf("node %d, %v", node, err)
	}
	for pci, code := range map[string]error{
		"0000:1c:00.0": driver.ErrUnsupported, "0000:ff:00.0": driver.ErrUnsupported, "x": driver.ErrInvalid,
	} {
		if _, err := nodeNear(twoNodes(), pci); !errors.Is(err, code) {
			t.Errorf("%q: %v, want %v", pci, err, code)
		}
	}
}

func TestPlacementSettings(t *testing.T) {
	for setting, says := range map[string]string{
		"node=x": "number", "node=-1": "number", "node": "number", "strict=yes": "on or off", "strict": "on or off",
		"near=here": "PCI address", "strict=on": "strict", "node=1023": "node 1023",
		"near=ffff:ff:1f.7,strict=on": "does not know the nearest",
	} {
		d, err := driver.Open("host:total=1MiB," + setting)
		if err == nil {
			t.Errorf("%s: no error", setting)
			testkit.Must(t, d.Close())
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want one that says %q", setting, err, says)
		}
	}
	// A device of whose node the system knows nothing is near to all memory.
	d, err := driver.Open("host:total=1MiB,near=ffff:ff:1f.7,strict=off")
	testkit.Must(t, err)
	testkit.Must(t, d.Close())
}
