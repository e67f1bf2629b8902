package pinned_test

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/internal/invariants"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// A warm Alloc and Free calls no device and allocates nothing in Go's heap.
func TestWarm(t *testing.T) {
	for name, cfg := range map[string]pinned.Config{"rounded": {}, "exact": {MaxRoundThreshold: -1}} {
		d := newDevice()
		a := open(t, d, cfg)
		first, second := alloc(t, a, 5000), alloc(t, a, 8000)
		a.Free(first)
		a.Free(second)
		calls := d.Calls()
		n := testing.AllocsPerRun(100, func() {
			b, _ := a.Alloc(5000)
			c, _ := a.Alloc(7000)
			a.Free(b)
			a.Free(c)
		})
		if d.Calls() != calls || n > 0 && !invariants.Enabled {
			t.Errorf("%s: %d calls of the device and %v heap allocations", name, d.Calls()-calls, n)
		}
		closeAll(t, a, d)
	}
}

func benchAllocator(b *testing.B, live int) *pinned.Allocator {
	a, err := pinned.New(newDevice(), pinned.Config{MaxRoundThreshold: mib})
	if err != nil {
		b.Fatal(err)
	}
	for range live {
		if _, err := a.Alloc(64); err != nil {
			b.Fatal(err)
		}
	}
	return a
}

// One Alloc and one Free of a cached block, while other blocks are live.
func BenchmarkWarm(b *testing.B) {
	for _, live := range []int{0, 1000, 100_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			a := benchAllocator(b, live)
			b.ReportAllocs()
			for b.Loop() {
				blk, _ := a.Alloc(4096)
				a.Free(blk)
			}
		})
	}
}

func BenchmarkWarmParallel(b *testing.B) {
	a := benchAllocator(b, 0)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			blk, _ := a.Alloc(4096)
			a.Free(blk)
		}
	})
}

// The same for a block that a stream used: this includes the simulated device's calls for two marks.
func BenchmarkRecorded(b *testing.B) {
	d := newDevice()
	a, err := pinned.New(d, pinned.Config{})
	if err != nil {
		b.Fatal(err)
	}
	s := d.DefaultStream()
	b.ReportAllocs()
	for b.Loop() {
		blk, _ := a.Alloc(4096)
		_ = a.RecordStream(blk, s)
		a.Free(blk)
	}
}
