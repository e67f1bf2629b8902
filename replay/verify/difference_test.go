package verify_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// record records the requests of work on a device of 100 MiB. The file does not name private pools, as files of older
// versions.
func record(
	t *testing.T, work func(a *caching.Allocator, alloc func(size int64) mem.Block, free func(mem.Block)),
) *snapshot.Snapshot {
	t.Helper()
	dev := drivertest.OpenSim(t, 100<<20)
	recorder := trace.NewRecorder(trace.RecorderOptions{})
	a, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	top := recorder.Attach(a)
	work(a, func(size int64) mem.Block {
		b, err := top.Alloc(dev.DefaultStream(), size)
		testkit.Must(t, err)
		return b
	}, func(b mem.Block) { top.Free(b) })
	s, err := snapshot.Of(top, snapshot.Live{Recorder: recorder})
	testkit.Must(t, err)
	tr := s.Traces[0]
	tr.PoolsKnown, tr.Pools = false, nil
	for i := range tr.Events {
		tr.Events[i].Pool = 0
	}
	return s
}

// moveLastBlock moves the last block to an address where no attempt places it, and returns the entry of its request.
func moveLastBlock(s *snapshot.Snapshot) int {
	events := s.Traces[0].Events
	last := len(events) - 1
	for events[last].Action != mem.ActionAlloc {
		last--
	}
	for i, ptr := last, events[last].Ptr; i < len(events); i++ {
		if events[i].Ptr == ptr {
			events[i].Ptr += 512
		}
	}
	return last
}

// Of all attempts Verify reports the one that followed the recording furthest, also if another is nearer to the final
// state where it left the recording.
func TestVerifyReportsTheFurthestAttempt(t *testing.T) {
	s := record(t, func(a *caching.Allocator, alloc func(int64) mem.Block, free func(mem.Block)) {
		for range 20 {
			alloc(1 << 10)
		}
		free(alloc(5 << 20))
		hidden := mem.NewPoolID()
		a.BeginAllocateToPool(hidden, func(driver.Stream) bool { return true })
		b := alloc(5 << 20)
		a.EndAllocateToPool(hidden)
		free(b)
		a.ReleasePool(hidden)
		testkit.Must(t, a.EmptyCache())
		x, y := alloc(4<<10), alloc(4<<10)
		free(x)
		free(y)
	})
	v, err := verify.Verify(s, verify.Options{})
	if err != nil || !v.Exact || len(v.Notes) == 0 {
		t.Fatalf("the recording itself: %v, %v, notes %q", v.Difference, err, v.Notes)
	}
	last := moveLastBlock(s)
	v, err = verify.Verify(s, verify.Options{})
	if d := v.Difference; err != nil || d == nil || d.Entry != last {
		t.Errorf("entry %d is changed: %v, %v", last, d, err)
	}
}

// Of attempts that followed the recording equally far Verify reports the first, the likeliest: here not the one with a
// memory limit that changed.
func TestVerifyReportsTheLikeliestOfEqualAttempts(t *testing.T) {
	s := record(t, func(a *caching.Allocator, alloc func(int64) mem.Block, free func(mem.Block)) {
		alloc(1 << 10)
		free(alloc(30 << 20))
		testkit.Must(t, a.EmptyCache())
		alloc(4 << 10)
	})
	s.Settings.GarbageCollectionThreshold = 0.5
	last := moveLastBlock(s)
	v, err := verify.Verify(s, verify.Options{})
	if d := v.Difference; err != nil || d == nil || d.Entry != last || !v.LimitFound || v.Limit == 0 || len(v.Notes) > 0 {
		t.Errorf("entry %d is changed: %v, %v, limit %d (found: %v), notes %q; want a limit, the same all the time", last, d,
			err, v.Limit, v.LimitFound, v.Notes)
	}
}

// A request that freed the cache could not use a larger free block: that belongs to a private pool.
func TestVerifyFindsAHiddenPoolByARetry(t *testing.T) {
	s := record(t, func(a *caching.Allocator, alloc func(int64) mem.Block, free func(mem.Block)) {
		alloc(1 << 10)
		free(alloc(30 << 20))
		hidden := mem.NewPoolID()
		a.BeginAllocateToPool(hidden, func(driver.Stream) bool { return true })
		b := alloc(50 << 20)
		a.EndAllocateToPool(hidden)
		free(b)
		alloc(40 << 20)
		a.ReleasePool(hidden)
		testkit.Must(t, a.EmptyCache())
		alloc(4 << 10)
	})
	v, err := verify.Verify(s, verify.Options{})
	if err != nil || !v.Exact || v.Retries != 1 || len(v.Notes) != 1 || !strings.HasPrefix(v.Notes[0], "1 segments,") {
		t.Errorf("%v, %v, %d retries, notes %q; want 1 retry and 1 hidden segment", v.Difference, err, v.Retries, v.Notes)
	}
}

// Memory that a request may have freed to fit was freed by the program, if that is known: at that entry and no other.
func TestVerifyIsToldWhereTheProgramEmptiedTheCache(t *testing.T) {
	s := record(t, func(a *caching.Allocator, alloc func(int64) mem.Block, free func(mem.Block)) {
		free(alloc(30 << 20))
		free(alloc(80 << 20)) // gives 30 MiB back to fit
		testkit.Must(t, a.EmptyCache())
		alloc(90 << 20)
	})
	emptied := -1 // the last entry of a segment that was given back
	for i, e := range s.Traces[0].Events {
		if e.Action == mem.ActionSegmentFree {
			emptied = i
		}
	}
	for _, c := range []struct {
		at      []int
		retries int64
	}{{nil, 2}, {[]int{emptied}, 1}} {
		v, err := verify.Verify(s, verify.Options{EmptiedAt: c.at})
		if err != nil || !v.Exact || v.Retries != c.retries {
			t.Errorf("emptied at %v: %v, %v, %d retries, want %d", c.at, v.Difference, err, v.Retries, c.retries)
		}
	}
}
