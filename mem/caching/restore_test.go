package caching

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
)

func poolAllocator(t *testing.T, id mem.PoolID) (*Allocator, driver.Stream) {
	t.Helper()
	dev := drivertest.OpenSim(t, 0)
	a, err := New(dev, Default())
	if err != nil {
		t.Fatal(err)
	}
	a.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	return a, dev.DefaultStream()
}

// A pool that never splits gives each request a whole block.
func TestNeverSplit(t *testing.T) {
	id := mem.PoolID{0, 7}
	a, s := poolAllocator(t, id)
	a.NeverSplit(id)
	for range 3 {
		b, err := a.Alloc(s, 100)
		if err != nil || b.Size != 2<<20 {
			t.Fatalf("block of %d bytes, error %v; want a whole segment of 2 MiB", b.Size, err)
		}
	}
	if got := a.Stats().Segment.All.Current; got != 3 {
		t.Errorf("%d segments, want 3", got)
	}
}

// AllocAt lays a segment out as it was, including sizes that the policy would place elsewhere.
func TestAllocAt(t *testing.T) {
	id := mem.PoolID{7, 0}
	a, s := poolAllocator(t, id)
	first, err := a.Alloc(s, 512)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(first)
	var at driver.Pointer
	var blocks []mem.Block
	for _, size := range []int64{128 << 10, 16 << 10, 2<<20 - 144<<10} {
		b, ok := a.AllocAt(s, id, first.Ptr+at, size)
		if !ok || b.Ptr != first.Ptr+at || b.Size != size {
			t.Fatalf("AllocAt of %d bytes at +%d: %+v, %v", size, at, b, ok)
		}
		blocks = append(blocks, b)
		at += driver.Pointer(size)
	}
	if _, ok := a.AllocAt(s, id, first.Ptr, 512); ok {
		t.Error("AllocAt gave a live block again")
	}
	for _, b := range blocks {
		a.Free(b)
	}
	if got := a.Stats().InactiveSplit.All.Current; got != 0 {
		t.Errorf("%d split blocks left, want 0", got)
	}
}
