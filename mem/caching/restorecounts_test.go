package caching_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A restore to a state with nothing live is a number of frees, in the order of addresses: the statistics, every peak
// among them, are those of such frees.
func TestARestoreCountsAsFreesDo(t *testing.T) {
	for seed := range uint64(40) {
		stats := func(restore bool) mem.Stats {
			r := rand.New(rand.NewPCG(seed, 0))
			b := newBench(t, gib, "")
			id, streams := mem.PoolID{1, 0}, []driver.Stream{b.s, b.stream(), b.stream()}
			b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
			for _, s := range streams {
				b.Free(b.allocOn(s, 512))
				b.Free(b.allocOn(s, 3*mib))
			}
			state, err := b.Checkpoint(id)
			if err != nil {
				t.Fatal(err)
			}
			var live []mem.Block
			for range 40 {
				live = append(live, b.allocOn(streams[r.IntN(3)], 1+r.Int64N([]int64{40 * kib, 300 * kib, 3 * mib}[r.IntN(3)])))
			}
			for range 10 {
				i := r.IntN(len(live))
				b.Free(live[i])
				live = slices.Delete(live, i, i+1)
			}
			b.EndAllocateToPool(id)
			b.ResetPeakStats()
			if restore {
				if d, err := b.Restore(state); err != nil || len(d.Freed) != len(live) {
					t.Fatalf("seed %d: %+v, %v", seed, d, err)
				}
			} else {
				slices.SortFunc(live, func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) })
				for _, block := range live {
					b.Free(block)
				}
			}
			b.ReleasePool(id)
			return b.Stats()
		}
		if got, want := stats(true), stats(false); got != want {
			t.Errorf("seed %d: after a restore\n%+v, after frees\n%+v", seed, got, want)
		}
	}
}

// Peaks are those of frees and allocations one after the other: memory that is free at the checkpoint is never counted
// as live.
func TestARestoreMakesNoPeakOfItsOwn(t *testing.T) {
	b := newBench(t, gib, "")
	id, side := mem.PoolID{1, 0}, b.stream()
	b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	first, second := b.alloc(4*mib), b.allocOn(side, 4*mib)
	gap, end := b.alloc(6*mib), b.alloc(2*mib)
	b.Free(gap)
	b.EndAllocateToPool(id)
	state, err := b.Checkpoint(id)
	if err != nil {
		t.Fatal(err)
	}
	b.ResetPeakStats()
	want := b.Stats()
	for _, block := range []mem.Block{first, second, end} {
		b.Free(block)
	}
	d, err := b.Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	got := b.Stats()
	testkit.Equal(t, "peak of allocated bytes", got.AllocatedBytes.All.Peak, want.AllocatedBytes.All.Peak)
	testkit.Equal(t, "peak of blocks", got.Allocation.All.Peak, want.Allocation.All.Peak)
	testkit.Equal(t, "free split blocks", got.InactiveSplit.All.Current, want.InactiveSplit.All.Current)
	testkit.Equal(t, "their bytes", got.InactiveSplitBytes.All.Current, want.InactiveSplitBytes.All.Current)
	for _, block := range d.Live {
		b.Free(block)
	}
	b.ReleasePool(id)
}

// A recording of restores is a recording: what was asked for can be asked for again, and the verifier follows it to the
// byte.
func TestARecordingOfARestoreReplays(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		b := newBench(t, gib, settings)
		recorder := trace.NewRecorder(trace.RecorderOptions{})
		b.Observe(recorder.Observe)
		id := mem.PoolID{1, 0}
		in := func(f func()) {
			b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
			f()
			b.EndAllocateToPool(id)
		}
		var blocks []mem.Block
		in(func() {
			for _, size := range []int64{500, 1024, 1, 3*mib - 7, 2 * mib, 4*mib + 1, 1536, 31*mib + 300_000, 90} {
				blocks = append(blocks, b.alloc(size))
			}
		})
		b.Free(blocks[1])
		b.Free(blocks[4])
		state, err := b.Checkpoint(id)
		if err != nil {
			t.Fatal(err)
		}
		b.Free(blocks[0])
		b.Free(blocks[3])
		in(func() { b.alloc(5 * mib); b.alloc(2001) })
		d, err := b.Restore(state)
		if err != nil {
			t.Fatal(err)
		}
		b.Free(d.Live[1])
		in(func() { b.alloc(512) })

		p, err := trace.ToProgram(recorder.Trace(), trace.ProgramOptions{})
		if err != nil || p.Anomalies.Count != 0 {
			t.Fatalf("%q: error %v, anomalies %+v", settings, err, p.Anomalies)
		}
		dev := drivertest.OpenSim(t, gib)
		again := newAllocator(t, dev, settings)
		if _, err := replay.Run(p, again, dev, replay.Options{}); err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, "allocated after the replay", again.Stats().AllocatedBytes.All.Current, b.Stats().AllocatedBytes.All.Current)

		shot, err := snapshot.Of(b.Allocator, snapshot.Live{Recorder: recorder})
		if err != nil {
			t.Fatal(err)
		}
		v, err := verify.Verify(shot, verify.Options{TotalMemory: gib})
		// What was asked for at free blocks, which a restore gives back too, is not recorded: it may differ in the end.
		if err != nil || v.AddressesMatched != v.Allocs || v.SegmentEventsMatched != v.SegmentEvents || !v.PeaksEqual() || v.Restored == 0 {
			t.Errorf("%q: error %v, verdict %+v, difference %v", settings, err, v, v.Difference)
		}
	}
}
