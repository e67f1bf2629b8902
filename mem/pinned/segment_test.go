package pinned_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

func TestOutOfMemory(t *testing.T) {
	d := newDeviceOf(sim.Options{Pinned: 4096})
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	small, pending := alloc(t, a, 1024), alloc(t, a, 1024)
	a.Free(small)
	d.hold(s)
	d.work(t, s)
	piece(t, a, pending, s)
	a.Free(pending)

	all := alloc(t, a, 4096) // after waiting for s and giving both back
	want(t, a, "num_host_free", 2, "allocations.current", 1)
	_, err := a.Alloc(2048)
	if !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, driver.ErrNoMemory) || !strings.Contains(err.Error(), "2048") {
		t.Errorf("Alloc without room: %v", err)
	}
	if n := d.CallsOf(intercept.AllocHost); n != 5 { // one more for all, and none for 2048: there was nothing to give back
		t.Errorf("AllocHost was called %d times, want 5", n)
	}
	a.Free(all)

	// The very size that waits is not given back first.
	d.hold(s)
	d.work(t, s)
	all = alloc(t, a, 4096)
	piece(t, a, all, s)
	a.Free(all)
	if b := alloc(t, a, 4096); !same(b, all) {
		t.Error("new memory for what was waited for")
	} else {
		a.Free(b)
	}
	want(t, a, "num_host_free", 2)

	d.failing(intercept.FreeHost, driver.ErrLost)
	if _, err := a.Alloc(2048); !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, driver.ErrLost) {
		t.Errorf("Alloc without room, where giving back fails: %v", err)
	}
	d.failing(intercept.AllocHost, driver.ErrLost)
	if _, err := a.Alloc(2048); !errors.Is(err, driver.ErrLost) || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("Alloc on a lost device: %v", err)
	}
	d.healthy()
	closeAll(t, a, d)
}

func TestReservedSegment(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{ReserveSegment: 4096, MaxCachedSize: 2048})
	if n := d.CallsOf(intercept.AllocHost); n != 1 {
		t.Fatalf("New called AllocHost %d times", n)
	}
	var blocks []mem.Block
	for range 4 {
		blocks = append(blocks, alloc(t, a, 600)) // 1024 each
	}
	tiny := alloc(t, a, 1) // the segment is used up
	if n := d.CallsOf(intercept.AllocHost); n != 2 {
		t.Errorf("%d calls of AllocHost, want one for the segment and one for what it has no room for", n)
	}
	for i, b := range blocks {
		if b.Ptr%512 != 0 || i > 0 && b.Ptr != blocks[i-1].Ptr+1024 {
			t.Errorf("part %d is at %#x", i, uint64(b.Ptr))
		}
		fill(a.Bytes(b)[:b.Size], byte(i))
	}
	want(t, a, "num_host_alloc", 5, "allocated_bytes.current", 4097, "host_alloc_time.count", 2)
	for i, b := range blocks {
		if slices.ContainsFunc(a.Bytes(b)[:b.Size], func(c byte) bool { return c != byte(i) }) {
			t.Errorf("part %d was overwritten by another", i)
		}
	}
	for _, b := range blocks[1:] {
		a.Free(b)
	}
	if err := a.EmptyCache(); err != nil { // a part is live: they stay
		t.Fatal(err)
	}
	want(t, a, "allocations.current", 5, "num_host_free", 0)
	a.Free(blocks[0])
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	want(t, a, "allocations.current", 1, "num_host_free", 4, "host_free_time.count", 0)
	a.Free(tiny)

	odd := alloc(t, a, 1)
	if !same(odd, tiny) {
		t.Error("a cached block is not preferred to a new part")
	}
	whole := alloc(t, a, 2000)
	if !same(whole, blocks[0]) {
		t.Error("the segment is not cut anew")
	}
	big := alloc(t, a, 2100) // would never come back
	want(t, a, "host_alloc_time.count", 3)
	for _, b := range []mem.Block{odd, whole, big} {
		a.Free(b)
	}
	closeAll(t, a, d)
}

func TestReservedSegmentIsForWhatIsCached(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{ReserveSegment: 16 << 10, MaxCachedSize: 1024})
	a.Free(alloc(t, a, 2000))
	want(t, a, "host_alloc_time.count", 2, "host_free_time.count", 1)
	a.Free(alloc(t, a, 1000))
	want(t, a, "host_alloc_time.count", 2)
	closeAll(t, a, d)
}

func TestReservedSegmentOfOddSizes(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{ReserveSegment: 1000})
	x, y := alloc(t, a, 10), alloc(t, a, 256) // at 0 and 512
	if y.Ptr-x.Ptr != 512 {
		t.Errorf("parts are %d bytes apart", y.Ptr-x.Ptr)
	}
	z := alloc(t, a, 256) // 768 is no multiple of 512, and from 1024 on there is nothing
	want(t, a, "host_alloc_time.count", 2)
	for _, b := range []mem.Block{x, y, z} {
		a.Free(b)
	}
	closeAll(t, a, d)
}
