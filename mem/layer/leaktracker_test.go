package layer_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
)

//go:noinline
func allocHere(t testing.TB, a mem.Allocator, s driver.Stream, size int64) mem.Block {
	b, err := a.Alloc(s, size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

//go:noinline
func freeHere(a mem.Allocator, b mem.Block) { a.Free(b) }

//go:noinline
func freeThere(a mem.Allocator, b mem.Block) { a.Free(b) }

func TestTrackReportsLeaksBySite(t *testing.T) {
	tr := layer.NewLeakTracker(fake.NewPile(512), layer.LeakTrackerOptions{})
	if l := tr.Leaks(); l.Count != 0 || l.String() != "no live blocks\n" {
		t.Fatalf("before anything: %v", l)
	}
	first := fake.MustAlloc(t, tr, 100)
	for i := range 3 {
		allocHere(t, tr, []driver.Stream{fake.S1, fake.S0, fake.S1}[i], 1000)
	}
	tr.Free(fake.MustAlloc(t, tr, 4000))

	live := tr.Live()
	if len(live) != 4 || live[0].Block != first || live[0].Requested != 100 || live[0].Number != 1 || live[1].Stream != 1 {
		t.Errorf("live blocks: %+v", live)
	}
	l := tr.Leaks()
	if l.Count != 4 || l.Bytes != 512+3*1024 || len(l.Sites) != 2 {
		t.Fatalf("leaks: %+v", l)
	}
	worst := l.Sites[0]
	if worst.Count != 3 || worst.Bytes != 3072 || worst.Oldest.Number != 2 ||
		!slices.Equal(worst.Streams, []driver.StreamID{0, 1}) {
		t.Errorf("the worst site: %+v", worst)
	}
	if !strings.HasSuffix(worst.Frames[0].Function, "layer_test.allocHere") {
		t.Errorf("the innermost frame is %q", worst.Frames[0].Function)
	}
	testkit.Contains(t, l.String(), "4 blocks allocated: 3.50KiB", "3 blocks", "streams 0, 1", "allocHere", "leaktracker_test.go:",
		"TestTrackReportsLeaksBySite", "1 block,", "100 bytes asked for, 512 at 0x1000")
}

func TestTrackSampling(t *testing.T) {
	tr := layer.NewLeakTracker(fake.NewPile(512), layer.LeakTrackerOptions{Every: 3, Depth: 1})
	for range 7 {
		fake.MustAlloc(t, tr, 1)
	}
	var recorded []uint64
	for _, b := range tr.Live() {
		if len(b.Site) > 0 {
			recorded = append(recorded, b.Number)
			if len(b.Site) != 1 {
				t.Errorf("%d frames at a depth of 1", len(b.Site))
			}
		}
	}
	if !slices.Equal(recorded, []uint64{3, 6}) {
		t.Errorf("stacks of allocations %v, want 3 and 6", recorded)
	}
	testkit.Contains(t, tr.Leaks().String(), "5 blocks", "not recorded")
}

// A caller's mistakes panic with the places, and do not affect the layers below.
func TestBehaviour85TrackPanics(t *testing.T) {
	tests := []struct {
		name string
		opts layer.LeakTrackerOptions
		do   func(t *testing.T, tr *layer.LeakTracker)
		want []string
	}{
		{"wrong size", layer.LeakTrackerOptions{}, func(t *testing.T, tr *layer.LeakTracker) {
			b := allocHere(t, tr, fake.S0, 1024)
			b.Size = 512
			tr.Free(b)
		}, []string{"Free of 512 bytes", "has 1024 bytes", "allocHere"}},
		{"never allocated", layer.LeakTrackerOptions{}, func(t *testing.T, tr *layer.LeakTracker) {
			tr.Free(mem.Block{Ptr: 0xabc, Size: 512})
		}, []string{"0xabc", "not a block of this tracker"}},
		{"twice", layer.LeakTrackerOptions{}, func(t *testing.T, tr *layer.LeakTracker) {
			b := allocHere(t, tr, fake.S0, 512)
			freeHere(tr, b)
			freeThere(tr, b)
		}, []string{"double free of 512 bytes", "allocated at", "allocHere", "first freed at", "freeHere"}},
		{"twice, frees not remembered", layer.LeakTrackerOptions{Freed: -1}, func(t *testing.T, tr *layer.LeakTracker) {
			b := allocHere(t, tr, fake.S0, 512)
			freeHere(tr, b)
			freeThere(tr, b)
		}, []string{"not a block of this tracker, or was freed long ago"}},
		{"twice, forgotten since", layer.LeakTrackerOptions{Freed: 1}, func(t *testing.T, tr *layer.LeakTracker) {
			b, c := allocHere(t, tr, fake.S0, 512), allocHere(t, tr, fake.S0, 512)
			freeHere(tr, b)
			freeHere(tr, c)
			freeThere(tr, b)
		}, []string{"or was freed long ago"}},
		{"after its address went to another", layer.LeakTrackerOptions{}, func(t *testing.T, tr *layer.LeakTracker) {
			b := allocHere(t, tr, fake.S0, 512)
			freeHere(tr, b)
			allocHere(t, tr, fake.S0, 512)
			b.Tag++ // an allocator whose tags say which block it is
			freeThere(tr, b)
		}, []string{"has been freed", "now another block's", "allocHere"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := fake.NewPile(512)
			tr := layer.NewLeakTracker(base, tt.opts)
			text := testkit.Panic(t, func() { tt.do(t, tr) })
			testkit.Contains(t, text, append(tt.want, "layer: LeakTracker: ")...)
			if strings.Contains(text, "freeThere") {
				t.Errorf("the second free's own place needs no telling:\n%s", text)
			}
			if len(base.Live) != len(tr.Live()) {
				t.Errorf("%d blocks live below and %d tracked", len(base.Live), len(tr.Live()))
			}
		})
	}
}

// A freed block that is remembered is not confused with a later one at its address.
func TestTrackRemembersTheLatestFree(t *testing.T) {
	tr := layer.NewLeakTracker(fake.NewPile(512), layer.LeakTrackerOptions{Freed: 2})
	for range 5 {
		freeHere(tr, allocHere(t, tr, fake.S0, 512))
	}
	b := allocHere(t, tr, fake.S0, 512)
	other := allocHere(t, tr, fake.S0, 4096)
	tr.Free(other)
	tr.Free(allocHere(t, tr, fake.S0, 4096))
	if live := tr.Live(); len(live) != 1 || live[0].Block != b {
		t.Fatalf("live: %+v", live)
	}
	tr.Free(b)
	testkit.Contains(t, testkit.Panic(t, func() { tr.Free(b) }), "double free")
}

func TestTrackFindsOverlapBelow(t *testing.T) {
	base := fake.NewPile(512)
	tr := layer.NewLeakTracker(base, layer.LeakTrackerOptions{})
	b := allocHere(t, tr, fake.S0, 512)
	base.Free(b) // behind the tracker's back
	testkit.Contains(t, testkit.Panic(t, func() { fake.MustAlloc(t, tr, 512) }), "returned", "live", "allocHere")
}

// The allocator below may hand the address out again before its Free has returned.
func TestBehaviour86TrackForgetsBeforeFreeing(t *testing.T) {
	base := fake.NewPile(512)
	tr := layer.NewLeakTracker(base, layer.LeakTrackerOptions{})
	b := fake.MustAlloc(t, tr, 512)
	var again mem.Block
	base.OnFree = func(mem.Block) {
		base.OnFree = nil
		again = fake.MustAlloc(t, tr, 512)
	}
	tr.Free(b)
	if live := tr.Live(); len(live) != 1 || again.Ptr != b.Ptr {
		t.Fatalf("live %+v after the address came back as %#x", live, again.Ptr)
	}
	tr.Free(again)
	if l := tr.Leaks(); l.Count != 0 {
		t.Errorf("left: %v", l)
	}
}

// Blocks of zero bytes, from many goroutines, never make a count fall below zero.
func TestBehaviour85TrackZeroBytesConcurrently(t *testing.T) {
	base := fake.NewPile(512)
	tr := layer.NewLeakTracker(base, layer.LeakTrackerOptions{Freed: 16})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 1000 {
				b, err := tr.Alloc(fake.S0, int64(n%2*512*(1+i)))
				if err != nil {
					t.Error(err)
				}
				if n%100 == 0 {
					tr.Leaks()
				}
				tr.Free(b)
			}
		})
	}
	wg.Wait()
	if l := tr.Leaks(); l.Count != 0 || l.Bytes != 0 || len(base.Live) != 0 {
		t.Errorf("left: %v", l)
	}
}
