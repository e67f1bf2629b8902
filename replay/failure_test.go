package replay_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// The memory of a recording that ran out of memory is a lower bound of its limit; all rows but the recorded one are
// held to it.
func TestRecordedFailureLimitsTheOtherRows(t *testing.T) {
	w := works(t, "gpt2.oom")[0]
	const had = 19363004416
	if w.RecordedLimit != had || w.RecordedReserved != had || w.NumFailures != 1 || len(w.Failures) != 1 {
		t.Fatalf("%d, %d, %+v", w.RecordedLimit, w.RecordedReserved, w.Failures)
	}
	if f := w.Failures[0]; f.Entry != 125081 || f.Size != 2431634944 || f.Requested > f.Reserved || f.Reserved > had {
		t.Errorf("%+v", f)
	}
	c := compare(t, w, replay.CompareOptions{})
	if c.Limit != had || !c.LimitRecorded || c.Best != -1 {
		t.Errorf("limit %d (recorded: %v), best %d", c.Limit, c.LimitRecorded, c.Best)
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		var oom *mem.OutOfMemory
		if r.ReservedPeak > had || r.Failure == nil || !errors.As(r.Failure.Err, &oom) || r.Failure.Op != r.FirstOOM || r.SmallestLimit <= had {
			t.Errorf("%+v", r)
		}
	}
	if l := c.LeastLimit(); l == nil || l.Allocator != "caching:expandable_segments:True" {
		t.Errorf("the least limit is that of %+v", l)
	}
	if c := compare(t, w, replay.CompareOptions{Capacity: replay.H200Memory}); c.Limit != 0 || c.Best < 0 {
		t.Errorf("with a capacity: limit %d, best %d", c.Limit, c.Best)
	}
	if w := works(t, "gpt2")[0]; w.RecordedLimit != 0 || w.NumFailures != 0 {
		t.Errorf("a recording that had room: limit %d", w.RecordedLimit)
	}
}

// If the device had less free memory than a request that failed, the limit is what was reserved and what was free.
func TestTheDeviceWasFull(t *testing.T) {
	const size = 20 << 20
	for free, want := range map[int64]int64{0: size, 5 << 20: size + 5<<20, 10<<20 - 1: size + 10<<20 - 1, 10 << 20: size, 1 << 30: size} {
		s := &snapshot.Snapshot{
			Segments: []snapshot.Segment{{Ptr: 1 << 30, TotalSize: size}},
			Traces: []*trace.Trace{{Streams: []uint64{0}, Pools: []mem.PoolID{{}}, Events: []trace.Event{
				{Action: mem.ActionSegmentAlloc, Ptr: 1 << 30, Size: size},
				{Action: mem.ActionOOM, Ptr: driver.Pointer(free), Size: 10 << 20},
			}}},
		}
		w, err := replay.Histories(s)
		if err != nil {
			t.Fatal(err)
		}
		if w[0].RecordedLimit != want {
			t.Errorf("%d bytes free: the limit is %d, want %d", free, w[0].RecordedLimit, want)
		}
	}
}

// The best row by the smallest limit is not the row that reserves the least without a limit.
func TestSmallestChoosesTheBest(t *testing.T) {
	specs := []string{"caching:roundup_power2_divisions:2", "caching:max_split_size_mb:32"}
	w := works(t, "unet.split128")[0]
	for smallest, best := range map[bool]int{false: 0, true: 1} {
		if c := compare(t, w, replay.CompareOptions{Specs: specs, Smallest: smallest}); c.Best != best || c.BySmallest != smallest {
			t.Errorf("smallest %v: row %d is the best, want %d", smallest, c.Best, best)
		}
	}
}

func TestRecordedSettingsThatAreNotUnderstoodAreNotes(t *testing.T) {
	for conf, notes := range map[string]int{
		"future:3":                               1,
		"future:[1:2,3:4],max_split_size_mb:128": 1,
		"max_split_size_mb:banana,x:1":           2,
		"[,,]":                                   1,
	} {
		s, err := snapshot.ReadFile(traces + "streams.pickle.zst")
		if err != nil {
			t.Fatal(err)
		}
		s.Settings.Conf = conf
		w, err := replay.Works(s)
		if err != nil || len(w[0].Notes) != notes || !strings.Contains(w[0].Notes[0], "is ignored") {
			t.Errorf("%q: %v", conf, err)
			continue
		}
		if r := compare(t, w[0], replay.CompareOptions{Specs: []string{"caching:", replay.AsRecorded}}); r.Best < 0 {
			t.Errorf("%q: no row completes", conf)
		}
	}
}

func TestScriptsSayHowMuchMemoryThereIs(t *testing.T) {
	for text, want := range map[string]int64{
		"alloc a 1MiB\n": replay.H200Memory, "device sim\nalloc a 1MiB\n": replay.H200Memory, "device sim total=4MiB\nalloc a 1MiB\n": 4 << 20,
	} {
		w := scriptWork(t, text)
		if c := compare(t, w, replay.CompareOptions{}); c.Capacity != want || !w.Script {
			t.Errorf("%q: %d bytes, want %d", text, c.Capacity, want)
		}
	}
}
