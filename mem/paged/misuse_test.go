package paged_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

func TestNewRefuses(t *testing.T) {
	_, err := paged.New(sim.New(sim.Options{NoVirtualMemory: true}), paged.Config{})
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a device without virtual memory: %v", err)
	}
	dev := sim.New(sim.Options{Total: 64 * granule, Granularity: granule})
	for part, cfg := range map[string]paged.Config{
		"limit": {Limit: granule - 1}, "page": {Page: granule - 1}, "addresses": {Addresses: 1<<40 + 1},
		"limit is -1 bytes: want none negative": {Limit: -1}, "keep is -2 bytes": {Keep: -2}, "spare is -1": {Spare: -1},
	} {
		if _, err := paged.New(dev, cfg); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%+v: the error is %v: want one about %s", cfg, err, part)
		}
	}
	if l := dev.Leaks(); !l.Empty() {
		t.Errorf("left over: %v", l)
	}
}

// Bugs of the caller panic, and change nothing.
func TestMisuse(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	another := simple(t, 64, paged.Config{})
	for _, size := range []int64{512, granule} {
		b := r.alloc(r.s, size)
		keep := r.alloc(r.s, size)
		testkit.WantPanic(t, "another's", "paged: ", func() { another.a.Free(b) })
		changed := b
		changed.Ptr += 512
		testkit.WantPanic(t, "another address", "paged: ", func() { r.a.Free(changed) })
		changed = b
		changed.Size--
		testkit.WantPanic(t, "another size", "paged: ", func() { r.a.Free(changed) })
		changed = b
		changed.Tag += 1 << 33
		testkit.WantPanic(t, "another tag", "paged: ", func() { r.a.Free(changed) })
		changed.Tag = 1<<64 - 1
		testkit.WantPanic(t, "no tag", "paged: ", func() { r.a.Free(changed) })
		r.a.Free(b)
		testkit.WantPanic(t, "twice, held by a processor cache", "paged: ", func() { r.a.Free(b) })
		changed = b
		changed.Tag += 1 << 32 // what the record says of a block that is not live
		testkit.WantPanic(t, "the tag of no block", "paged: ", func() { r.a.Free(changed) })
		r.must(r.a.EmptyCache())
		testkit.WantPanic(t, "twice, given back", "paged: ", func() { r.a.Free(b) })
		again := r.alloc(r.s, size)
		testkit.WantPanic(t, "twice, allocated again", "paged: ", func() { r.a.Free(b) })
		r.check()
		r.free(again, keep)
	}
	testkit.WantPanic(t, "negative", "paged: ", func() { _, _ = r.a.Alloc(r.s, -1) })
	testkit.WantPanic(t, "nil stream", "paged: ", func() { _, _ = r.a.Alloc(nil, 1) })
	if b, err := r.a.Alloc(r.s, 0); b != (mem.Block{}) || err != nil {
		t.Errorf("no bytes: %+v, %v", b, err)
	}
	r.a.Free(mem.Block{})
	if n := r.a.Stats().Allocation.All.Current; n != 0 {
		t.Errorf("%d live blocks", n)
	}
}

// Close fails while blocks are live, and the allocator still works. A closed allocator allocates nothing.
func TestClose(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	b := r.granules(2)
	r.fill(r.s, b, 5)
	if err := r.a.Close(); err == nil || !strings.Contains(err.Error(), "1 live block") {
		t.Errorf("Close with a live block: %v", err)
	}
	r.holds(r.s, b, 5)
	r.free(r.granules(3), b)
	r.must(r.a.Close())
	r.must(r.a.Close())
	if l := r.sim.Leaks(); !l.Empty() {
		t.Errorf("after Close the device has %v", l)
	}
	for _, size := range []int64{1, granule} {
		if _, err := r.a.Alloc(r.s, size); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%d bytes after Close: %v", size, err)
		}
	}
	r.must(r.a.EmptyCache())
	r.check()
	if got := r.a.Snapshot(); len(got) != 0 {
		t.Errorf("a snapshot after Close: %+v", got)
	}
}
