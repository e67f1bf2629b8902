package caching_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// With caching off a request is the driver's, and nothing else changes; blocks remember where they came from.
func TestDefect15_CachingCanBeTurnedOff(t *testing.T) {
	b := newBench(t, gib, "limit:40MiB")
	taken := func() int64 {
		t.Helper()
		free, total, err := b.dev.Available()
		if err != nil {
			t.Fatal(err)
		}
		return total - free
	}
	events := 0
	b.Observe(func(mem.Event) { events++ })
	cached, kept := b.alloc(512), b.alloc(30*mib)
	b.Free(kept)
	before, heard := b.Stats(), events
	testkit.Equal(t, "enabled", b.Enabled(), true)
	b.Enable(false)
	testkit.Equal(t, "enabled", b.Enabled(), false)
	one, two := b.alloc(1000), b.alloc(100*mib) // beyond the limit, which is the cache's
	testkit.Equal(t, "the size of a block", one.Size, 1000)
	testkit.Equal(t, "the device's memory", taken(), 32*mib+1000+100*mib)
	p := b.NewPool(caching.PoolOptions{})
	private, err := p.Alloc(b.s, 5000)
	if err != nil {
		t.Fatal(err)
	}
	wished, err := b.AllocWith(b.s, 700, mem.AllocOptions{NoRetry: true})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the device's memory", taken(), 32*mib+1000+100*mib+5000+700)
	base, size, err := b.BaseAllocation(two)
	if err != nil || base != two.Ptr || size != two.Size {
		t.Errorf("BaseAllocation = %#x, %d, %v", base, size, err)
	}
	if b.Stats() != before || events != heard || len(b.Snapshot()) != 2 {
		t.Error("what the driver allocated is in statistics, events or the snapshot")
	}
	b.Free(two, b.stream())
	p.Free(private)
	testkit.Equal(t, "after frees", taken(), 32*mib+1000+700)
	b.Enable(true)
	again := b.alloc(30 * mib)
	testkit.Equal(t, "the cached segment serves again", again.Ptr, kept.Ptr)
	b.Free(one)
	b.Free(wished)
	b.Free(again)
	b.Enable(false)
	b.Free(cached)
	testkit.Equal(t, "the cache", taken(), 32*mib)
	for _, gone := range []mem.Block{one, two, private, cached} {
		testkit.Contains(t, testkit.Panic(t, func() { b.Free(gone) }), "not live")
	}
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(mem.Block{Ptr: one.Ptr, Size: 1000, Tag: 1 << 32}) }),
		"not live")
	testkit.Contains(t, testkit.Panic(t, func() { p.Free(private) }), "not live")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Alloc(b.s, 512); !errors.Is(err, caching.ErrPoolClosed) {
		t.Errorf("a request to a closed pool: %v", err)
	}
}

func TestDefect15_WithCachingOffAFullDeviceSaysSo(t *testing.T) {
	b := newBench(t, 100*mib, "")
	b.Enable(false)
	block := b.alloc(90 * mib)
	if _, err := b.Alloc(b.s, 20*mib); !errors.Is(err, mem.ErrNoMemory) || !strings.Contains(err.Error(), "with caching off") {
		t.Errorf("Alloc = %v", err)
	}
	testkit.Equal(t, "errors that are counted", b.Stats().NumOOMs, 0)
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "1 blocks that were allocated with caching off are still live") {
		t.Errorf("Close = %v", err)
	}
	b.Free(block)
	b.Free(b.alloc(90 * mib))
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// Memory that the driver does not take back is kept, and released again later.
func TestDefect15_WithCachingOffAFailedFreeLosesNothing(t *testing.T) {
	inner := drivertest.OpenSim(t, 100*mib)
	d := fault.Wrap(inner)
	a := newAllocator(t, d, "")
	a.Enable(false)
	block, err := a.Alloc(d.DefaultStream(), 60*mib)
	if err != nil {
		t.Fatal(err)
	}
	d.SetRules(fault.Rule{Kind: intercept.Free})
	a.Free(block)
	testkit.Contains(t, testkit.Panic(t, func() { a.Free(block) }), "not live")
	if err := a.EmptyCache(); err == nil || !strings.Contains(err.Error(), "give 62914560 bytes at") {
		t.Errorf("EmptyCache = %v", err)
	}
	if err := a.Close(); err == nil {
		t.Error("Close lost memory")
	}
	d.SetRules()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if free, total, err := inner.Available(); err != nil || free != total {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
}
