package caching_test

import (
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

func TestDefect15_LowMemoryCallbacksHaveNamesAndGo(t *testing.T) {
	b := newBench(t, 100*mib, "")
	var asked []string
	add := func(name string) (remove func()) {
		return b.OnLowMemory(name, func() bool {
			asked = append(asked, name)
			return false
		})
	}
	requests := func(want ...string) {
		t.Helper()
		asked = nil
		b.Free(b.alloc(4 * mib))
		b.emptyCache()
		if !slices.Equal(asked, want) {
			t.Errorf("a request asked %v, want %v", asked, want)
		}
		if got := b.LowMemoryCallbacks(); !slices.Equal(got, want) {
			t.Errorf("the callbacks are %v, want %v", got, want)
		}
	}
	requests()
	first, second, third := add("images"), add("weights"), add("scratch")
	requests("images", "weights", "scratch")
	testkit.Contains(t, testkit.Panic(t, func() { add("weights") }), `there is a callback named "weights" already`)
	second()
	requests("images", "scratch")
	again := add("weights")
	second() // which is not the one that has the name now
	requests("images", "scratch", "weights")
	first()
	third()
	again()
	requests()
}

// A callback that is removed while callbacks run is asked for the last time then.
func TestDefect15_ALowMemoryCallbackRemovesItself(t *testing.T) {
	b := newBench(t, 100*mib, "")
	asked := 0
	var remove func()
	remove = b.OnLowMemory("once", func() bool {
		asked++
		remove()
		return false
	})
	b.Free(b.alloc(4 * mib))
	b.emptyCache()
	b.Free(b.alloc(4 * mib))
	testkit.Equal(t, "calls", asked, 1)
}

// The limit is checked before the driver is called: a request that the driver refuses is served from memory that the
// cache gives back.
func TestDefect11_TheDriversRefusalIsNoRejection(t *testing.T) {
	for _, settings := range []string{"", "limit:900MiB", "max_split_size_mb:64", "expandable_segments:True"} {
		b := newBench(t, gib, settings)
		foreign := drivertest.Alloc(t, b.dev, 500*mib)
		b.Free(b.alloc(400 * mib))
		b.configure("throw_on_cudamalloc_oom:True," + settings)
		b.Free(b.alloc(450 * mib)) // there is room once the cache is given back
		s := b.Stats()
		testkit.Equal(t, settings+": rejections", s.NumOOMRejections, 0)
		testkit.Equal(t, settings+": errors", s.NumOOMs, 0)
		if err := b.dev.Free(foreign); err != nil {
			t.Fatal(err)
		}
	}
}

// A request over the limit is rejected at once: the driver is not called and the cache stays, but garbage collection
// runs first.
func TestDefect11_WhatPassesTheLimitIsRejectedBeforeTheDriverIsAsked(t *testing.T) {
	b := newBench(t, gib, "limit:500MiB,throw_on_cudamalloc_oom:True")
	b.Free(b.alloc(400 * mib))
	calls := b.Stats().NumDeviceAlloc
	oom := b.fails(450 * mib)
	s := b.Stats()
	testkit.Equal(t, "rejections", s.NumOOMRejections, 1)
	testkit.Equal(t, "retries", s.NumAllocRetries, 0)
	testkit.Equal(t, "waits", s.NumSyncAllStreams, 0)
	testkit.Equal(t, "driver calls", s.NumDeviceAlloc, calls)
	testkit.Equal(t, "reserved", s.ReservedBytes.All.Current, 400*mib)
	testkit.Equal(t, "rejected", oom.Rejected, true)
	b.configure("garbage_collection_threshold:0.5")
	b.Free(b.alloc(450 * mib))
	testkit.Equal(t, "rejections", b.Stats().NumOOMRejections, 1)
	b.configure("throw_on_cudamalloc_oom:False")
	testkit.Equal(t, "rejected without the setting", b.fails(600*mib).Rejected, false)
	testkit.Equal(t, "rejections", b.Stats().NumOOMRejections, 1)
}

// Without a limit there is nothing to reject, however full the device.
func TestDefect11_NothingIsRejectedWithoutALimit(t *testing.T) {
	b := newBench(t, 100*mib, "throw_on_cudamalloc_oom:True")
	b.Free(b.alloc(80 * mib))
	b.Free(b.alloc(90 * mib))
	testkit.Equal(t, "rejected", b.fails(200*mib).Rejected, false)
	testkit.Equal(t, "rejections", b.Stats().NumOOMRejections, 0)
	testkit.Equal(t, "retries", b.Stats().NumAllocRetries, 2)
}

// Observers of rejections receive the arguments of PyTorch's OomRejectionObserver, before the observers of all errors.
func TestDefect15_RejectionsAreObserved(t *testing.T) {
	b := newBench(t, gib, "limit:500MiB,throw_on_cudamalloc_oom:True")
	var told []string
	var rejected *mem.OutOfMemory
	b.OnOutOfMemory(func(*mem.OutOfMemory) { told = append(told, "error") })
	remove := b.OnRejection(func(e *mem.OutOfMemory) {
		told, rejected = append(told, "rejection"), e
	})
	b.Free(b.alloc(400 * mib))
	b.fails(401*mib + 1)
	if !slices.Equal(told, []string{"rejection", "error"}) {
		t.Fatalf("told %v", told)
	}
	testkit.Equal(t, "the device", rejected.Device, 0)
	testkit.Equal(t, "what the driver would be asked for", rejected.Segment, 402*mib)
	testkit.Equal(t, "what was reserved before", rejected.Reserved, 400*mib)
	testkit.Equal(t, "the device's memory", rejected.Total, gib)
	remove()
	remove()
	b.fails(450 * mib)
	b.configure("throw_on_cudamalloc_oom:False")
	b.fails(2 * gib)
	if !slices.Equal(told, []string{"rejection", "error", "error", "error"}) {
		t.Errorf("told %v", told)
	}
}
