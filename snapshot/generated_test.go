package snapshot_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// TestGeneratedFiles reads generated files back: the trace is one that an allocator can have, and leads to the blocks.
func TestGeneratedFiles(t *testing.T) {
	for protocol := 2; protocol <= 5; protocol++ {
		for _, stacks := range []int{0, 50} {
			t.Run(fmt.Sprintf("protocol=%d/stacks=%d", protocol, stacks), func(t *testing.T) {
				c := snapshottest.Config{Seed: 11, Events: 10_000, Protocol: protocol, Stacks: stacks, Live: 500}
				b, sum := generated(t, c)
				testkit.Equal(t, "bytes", int64(len(b)), sum.Bytes)
				again, _ := generated(t, c)
				testkit.Equal(t, "the same bytes again", bytes.Equal(b, again), true)
				s, err := snapshot.ReadBytes(b)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Check(); err != nil {
					t.Error(err)
				}
				tr := s.Traces[0]
				counts, requested, reserved := peaks(tr)
				testkit.Equal(t, "events", len(tr.Events), sum.Events)
				testkit.Equal(t, "allocs", counts[mem.ActionAlloc], sum.Allocs)
				testkit.Equal(t, "frees", counts[mem.ActionFreeCompleted], sum.Frees)
				testkit.Equal(t, "segments", len(s.Segments), sum.Segments)
				testkit.Equal(t, "requested peak", requested, sum.RequestedPeak)
				testkit.Equal(t, "reserved", reserved, sum.ReservedBytes)
				testkit.Equal(t, "stacks", s.Stacks.Len(), stacks)
				live := map[driver.Pointer]int64{}
				for i, e := range tr.Events {
					_, held := live[e.Ptr]
					switch e.Action {
					case mem.ActionAlloc:
						if held {
							t.Fatalf("event %d allocates %#x, which is allocated", i, uint64(e.Ptr))
						}
						live[e.Ptr] = e.Size
					case mem.ActionFreeCompleted:
						if !held {
							t.Fatalf("event %d frees %#x, which is not allocated", i, uint64(e.Ptr))
						}
						delete(live, e.Ptr)
					}
				}
				for _, seg := range s.Segments {
					for _, block := range seg.Blocks {
						if block.State == mem.ActiveAllocated && live[block.Ptr] != block.RequestedSize {
							t.Fatalf("block %#x: the trace requests %d, the block %d",
								uint64(block.Ptr), live[block.Ptr], block.RequestedSize)
						}
						delete(live, block.Ptr)
					}
				}
				testkit.Equal(t, "allocations without a block", len(live), 0)
			})
		}
	}
}

// TestLiveHeap bounds what a Snapshot holds: 64 bytes an event, everything included.
func TestLiveHeap(t *testing.T) {
	b, sum := generated(t, snapshottest.Config{Seed: 5, Events: 300_000, Stacks: 200})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, err := snapshot.ReadBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := float64(after.HeapAlloc-before.HeapAlloc) / float64(sum.Events); each > 64 {
		t.Errorf("%.1f bytes an event, want at most 64", each)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(b)
}
