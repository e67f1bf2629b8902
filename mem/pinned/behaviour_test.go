package pinned_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// The tests of this file check the same behaviour as PyTorch's tests of its allocator of page-locked memory.

func open(t *testing.T, d driver.Device, cfg pinned.Config) *pinned.Allocator {
	t.Helper()
	a, err := pinned.New(d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func alloc(t *testing.T, a *pinned.Allocator, size int64) mem.Block {
	t.Helper()
	b, err := a.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func piece(t *testing.T, a *pinned.Allocator, b mem.Block, s driver.Stream) {
	t.Helper()
	if err := a.RecordStream(b, s); err != nil {
		t.Fatal(err)
	}
}

// want compares some of the statistics, by PyTorch's names, in pairs of name and value.
func want(t *testing.T, a *pinned.Allocator, pairs ...any) {
	t.Helper()
	m := a.Stats().Map()
	for i := 0; i < len(pairs); i += 2 {
		name, n := pairs[i].(string), int64(pairs[i+1].(int))
		got, ok := m[name]
		if !ok {
			t.Errorf("there is no %s", name)
		}
		if got != n {
			t.Errorf("%s = %d, want %d", name, got, n)
		}
	}
}

// same reports whether two blocks have the same memory.
func same(a, b mem.Block) bool { return a.Ptr == b.Ptr }

// closeAll closes the allocator, which must have no live blocks, and checks that the device has no page-locked memory.
func closeAll(t *testing.T, a *pinned.Allocator, d *device) {
	t.Helper()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	d.empty(t)
}

func TestBehaviour61(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	first := alloc(t, a, 40_960)
	want(t, a, "allocated_bytes.current", 65_536, "allocations.current", 1, "num_host_alloc", 1, "active_bytes.current", 65_536)
	second := alloc(t, a, 81_920)
	want(t, a, "allocated_bytes.current", 65_536+131_072, "allocations.current", 2, "num_host_alloc", 2,
		"active_requests.current", 2)
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	want(t, a, "allocated_bytes.current", 65_536+131_072, "allocations.current", 2, "num_host_alloc", 2, "num_host_free", 0,
		"active_requests.current", 2, "active_bytes.current", 65_536+131_072)
	a.Free(first)
	a.Free(second)
	want(t, a, "active_requests.current", 0, "active_bytes.current", 0, "active_bytes.peak", 65_536+131_072,
		"allocations.current", 2, "num_host_free", 0)
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	want(t, a, "allocated_bytes.current", 0, "allocations.current", 0, "num_host_free", 2, "host_free_time.count", 2)
	closeAll(t, a, d)
}

func TestBehaviour62(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	b := alloc(t, a, 1024)
	a.Free(b)
	again := alloc(t, a, 1000)
	if !same(again, b) {
		t.Error("a block that no stream used is not reused")
	}
	d.hold(s)
	fill(a.Bytes(again), 1)
	on := copyIn(t, d, a, s, again)
	piece(t, a, again, s)
	a.Free(again)
	other := alloc(t, a, 1024)
	fill(a.Bytes(other), 2)
	if same(other, again) {
		t.Error("a block is reused while a copy reads it")
	}
	d.resume(s)
	got := make([]byte, 1000)
	if err := s.CopyOut(got, on); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(got, func(c byte) bool { return c != 1 }) {
		t.Error("the copy read what came after the free")
	}
	if back := alloc(t, a, 1024); !same(back, again) {
		t.Error("a block is not reused after the copy that read it")
	} else {
		a.Free(back)
	}
	a.Free(other)
	closeAll(t, a, d)
}

func fill(p []byte, c byte) {
	for i := range p {
		p[i] = c
	}
}

// copyIn queues a copy of b to fresh memory of the device.
func copyIn(t *testing.T, d *device, a *pinned.Allocator, s driver.Stream, b mem.Block) driver.Pointer {
	t.Helper()
	p, err := d.Alloc(b.Size)
	if err == nil {
		err = d.Pinned().CopyInAsync(s, p, a.Bytes(b))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBehaviour63(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	b := alloc(t, a, 1000)
	bytes := a.Bytes(b)
	find := func(p []byte) mem.Block {
		found, _ := a.Find(p)
		return found
	}
	succeeds := func(what string, b mem.Block) {
		t.Helper()
		if err := a.RecordStream(b, s); err != nil {
			t.Errorf("Record %s: %v", what, err)
		}
	}
	fails := func(what string, b mem.Block) {
		t.Helper()
		if err := a.RecordStream(b, s); !errors.Is(err, pinned.ErrNotLive) {
			t.Errorf("Record %s: %v, want ErrNotLive", what, err)
		}
	}
	succeeds("by the block", b)
	succeeds("by its bytes", find(bytes))
	succeeds("by bytes in the middle", find(bytes[500:501]))
	succeeds("by the last usable byte", find(bytes[:1024][1023:]))
	fails("by neither", mem.Block{})
	fails("by no bytes", find(bytes[:0]))
	fails("by memory of others", find(make([]byte, 1000)))
	a.Free(b)
	fails("of a freed block", b)
	fails("by bytes of a freed block", find(bytes))
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	fails("after EmptyCache", b)
	fails("by bytes after EmptyCache", find(bytes))
	closeAll(t, a, d)
}

// A block that captured work uses is never allocated again, in the same capture or in another.
func TestBehaviour64(t *testing.T) {
	for _, other := range []bool{false, true} {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("other graph %t, used %t", other, used), func(t *testing.T) {
				d := newDevice()
				a := open(t, d, pinned.Config{})
				s := d.stream(t)
				d.begin(t, s)
				b := alloc(t, a, 4096)
				fill(a.Bytes(b), 1)
				var on driver.Pointer
				if used {
					on = copyIn(t, d, a, s, b)
					piece(t, a, b, s)
				}
				a.Free(b)
				var graph driver.Graph
				if other {
					graph = d.end(t, s)
					d.begin(t, s)
				}
				again := alloc(t, a, 4096)
				fill(a.Bytes(again), 2)
				if same(again, b) == used {
					t.Errorf("the block is allocated again: %t, want %t", !used, used)
				}
				last := d.end(t, s)
				if graph == nil {
					graph = last
				}
				a.Free(again)
				if used {
					launched := make([]byte, 4096)
					err := graph.Launch(s)
					if err == nil {
						err = s.CopyOut(launched, on)
					}
					if err != nil || slices.ContainsFunc(launched, func(c byte) bool { return c != 1 }) {
						t.Errorf("the graph did not copy what was captured: %v", err)
					}
					if err := a.Close(); err == nil {
						t.Error("Close does not say that a block is kept")
					}
					want(t, a, "active_requests.current", 1)
					a.ReleaseCaptured(b)
				}
				want(t, a, "active_requests.current", 0)
				closeAll(t, a, d)
			})
		}
	}
}

// Neither creating an allocator nor asking whether memory is page-locked calls the device.
func TestBehaviour65(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	if d.Pinned().IsPinned(make([]byte, 8)) {
		t.Error("Go's memory is page-locked")
	}
	if _, ok := a.Find(make([]byte, 8)); ok {
		t.Error("Go's memory is a block")
	}
	if n := d.Calls(); n != 0 {
		t.Errorf("%d calls of the device", n)
	}
	b := alloc(t, a, 100)
	calls := d.Calls()
	if _, ok := a.Find(a.Bytes(b)); !ok || !d.Pinned().IsPinned(a.Bytes(b)) {
		t.Error("a block is not page-locked, or not found")
	}
	if n := d.Calls(); n != calls {
		t.Errorf("Find made %d calls of the device", n-calls)
	}
	a.Free(b)
	closeAll(t, a, d)
}
