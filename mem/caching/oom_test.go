package caching_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// says asserts that an error's text contains the given parts, and does not contain those given with the prefix "not ".
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		part, not := strings.CutPrefix(part, "not ")
		if strings.Contains(err.Error(), part) == not {
			t.Errorf("%q, found %v, in:\n%v", part, not, err)
		}
	}
}

// A request that is larger than what an expandable segment has addresses for fails as others do, and is explained by the
// setting, unless the device is too small for it anyway. These are GlobalReserveUntaggedStream and
// OversizedAllocNotifiesOomObserver of PyTorch's CUDAExpandableSegmentReserveDeviceTest.
func TestDefect04_TheReserveIsNamedWhereItIsTheCause(t *testing.T) {
	b := newBench(t, 8*gib, "expandable_segments:True,expandable_segments_reserve:0.05")
	told := 0
	b.OnOutOfMemory(func(*mem.OutOfMemory) { told++ })
	const request = 8 * gib / 20 * 4
	oom := b.fails(request)
	testkit.Equal(t, "addresses", oom.Addresses, 420*mib) // a twentieth, in whole pages of 20 MiB
	testkit.Equal(t, "observers told", told, 1)
	testkit.Equal(t, "counted", b.Stats().NumOOMs, 1)
	if oom.Cause != nil {
		t.Errorf("the device said %v, and was not asked", oom.Cause)
	}
	says(t, oom, "expandable-segment reserve of 420.00 MiB is too small", "raise expandable_segments_reserve",
		"not live blocks", "not the device said")
	if len(oom.Remedies) != 1 || oom.Remedies[0].Estimate {
		t.Fatalf("remedies %v", oom.Remedies)
	}
	says(t, b.fails(100*8*gib), "not expandable-segment", "not expandable_segments_reserve", "it alone is more than the 8.00 GiB that the device has")
	b.configure("expandable_segments:True," + oom.Remedies[0].Name)
	b.Free(b.alloc(request)) // as was said

	// Where memory is short too, more addresses are no remedy.
	full := newBench(t, gib, "expandable_segments:True,expandable_segments_reserve:0.4")
	block := full.alloc(400 * mib)
	more := full.alloc(400 * mib)
	oom = full.fails(500 * mib)
	testkit.Equal(t, "remedies without memory", len(oom.Remedies), 0)
	says(t, oom, "expandable-segment reserve")
	says(t, full.fails(300*mib), "not expandable-segment", "live blocks leave too little room")
	full.Free(block)
	full.Free(more)
	// A limit that refuses a request before any addresses are looked for is the cause.
	limited := newBench(t, gib, "expandable_segments:True,expandable_segments_reserve:0.05,limit:100MiB")
	says(t, limited.fails(200*mib), "your own limit of 100.00 MiB was reached", "not expandable-segment")
}

// If the limit refused a request that the device has room for, the error's conclusion says so.
func TestDefect04_TheOwnLimitIsNamedWhereItIsTheCause(t *testing.T) {
	for settings, limit := range map[string]string{
		"limit:100MiB":                                               "100.00 MiB",
		"per_process_memory_fraction:0.125":                          "128.00 MiB",
		"limit:100MiB,throw_on_cudamalloc_oom:True":                  "100.00 MiB",
		"limit:100MiB,garbage_collection_threshold:0.5":              "100.00 MiB",
		"limit:100MiB,expandable_segments:True,max_split_size_mb:20": "100.00 MiB",
	} {
		b := newBench(t, gib, settings)
		keep := b.alloc(60 * mib)
		oom := b.fails(90 * mib)
		testkit.Equal(t, settings+": needed", oom.Needed, 150*mib)
		says(t, oom, "your own limit of "+limit+" was reached, the GPU had 964.00 MiB free; the request needed 150.00 MiB in all",
			"not live blocks", "not no setting")
		b.Free(keep)
	}
	// The device refused, whatever the limit is.
	b := newBench(t, gib, "limit:2GiB")
	keep := b.alloc(600 * mib)
	oom := b.fails(500 * mib)
	testkit.Equal(t, "needed of the limit", oom.Needed, 0)
	says(t, oom, "not own limit", "live blocks leave too little room: 600.00 MiB is allocated of the 1024.00 MiB", "the device said")
	b.Free(keep)
	// Neither: the memory is there, in pieces.
	b = newBench(t, 128*mib, "expandable_segments:False")
	var pieces []mem.Block
	for range 12 { // two to a segment
		pieces = append(pieces, b.alloc(9*mib))
	}
	for i := range 6 {
		b.Free(pieces[2*i])
	}
	oom = b.fails(40 * mib)
	says(t, oom, "not own limit", "not live blocks leave", "would have fitted with expandable_segments:True, by estimate",
		"not max_split_size_mb")
	if i := slices.IndexFunc(oom.Remedies, func(r mem.Remedy) bool { return !r.Estimate }); i >= 0 {
		t.Errorf("%q is said for certain", oom.Remedies[i].Name)
	}
	for i := range 6 {
		b.Free(pieces[2*i+1])
	}
}

// Memory cached in private pools is also reserved and unallocated, and is counted once, as in PyTorch's message.
func TestDefect04_CachedBytesOfPrivatePoolsCountOnce(t *testing.T) {
	b := newBench(t, gib, "limit:40MiB")
	p := b.NewPool(caching.PoolOptions{})
	block, err := p.Alloc(b.s, 2*mib)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(block)
	says(t, b.fails(30*mib), "0 bytes is allocated, 20.00 MiB cached in private pools, and 0 bytes is reserved but unallocated")
	other := b.alloc(2 * mib)
	b.Free(other)
	_, err = b.AllocWith(b.s, 30*mib, mem.AllocOptions{NoRetry: true})
	says(t, err, "20.00 MiB cached in private pools, and 20.00 MiB is reserved but unallocated")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// A freed block that a stream may still use pins its segment, too. The error does not say that live blocks do.
func TestFreedBlocksPinSegments(t *testing.T) {
	b := newBench(t, gib, "")
	side := b.stream()
	pending := b.alloc(2 * mib)
	b.dev.Hold(side.ID())
	testkit.Must(t, side.Fill(pending.Ptr, 1, pending.Size))
	b.Free(pending, side)
	_, err := b.AllocWith(b.s, 1020*mib, mem.AllocOptions{NoRetry: true}) // does not wait for the side stream
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) {
		t.Fatalf("a request beyond the memory: %v", err)
	}
	testkit.Equal(t, "allocated", oom.Allocated, 0)
	testkit.Equal(t, "stranded", oom.Stranded, 18*mib)
	if len(oom.Pinning) != 1 || oom.Pinning[0].Ptr != pending.Ptr || !oom.Pinning[0].Pending {
		t.Errorf("pinning blocks: %+v", oom.Pinning)
	}
	says(t, oom, "not live block", "a freed block of 2.00 MiB, which a stream may still use, at ")
}

// max_split_size_mb is a remedy where the segments that small blocks cut would have had room. What is free in whole
// segments does not count: the setting does not change it.
func TestSplitLimitIsARemedyWhereItMakesRoom(t *testing.T) {
	for request, want := range map[int64]bool{370 * mib: true, 372 * mib: false} {
		b := newBench(t, gib, "limit:600MiB")
		cut, whole := b.alloc(200*mib), b.alloc(200*mib)
		b.Free(cut)
		keep := b.alloc(30 * mib) // leaves 170 MiB, and the limit 200
		b.Free(whole)
		_, err := b.AllocWith(b.s, request, mem.AllocOptions{NoRetry: true})
		var oom *mem.OutOfMemory
		if !errors.As(err, &oom) {
			t.Fatalf("%d bytes: %v", request, err)
		}
		if got := strings.Contains(oom.Error(), "max_split_size_mb:200"); got != want {
			t.Errorf("%d bytes: named %v, want %v, in:\n%v", request, got, want, oom)
		}
		b.Free(keep)
	}
}
