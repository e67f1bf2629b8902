package holders_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

// A recording whose events are in columns has the same history.
func TestCompactRecordings(t *testing.T) {
	for _, path := range recordings(t) {
		s, want := recorded(t, path)
		f, err := os.Open(path)
		testkit.Must(t, err)
		compact, err := snapshot.ReadCompact(f, snapshot.Limits{})
		testkit.Must(t, err)
		testkit.Must(t, f.Close())
		if n := len(compact.Traces[0].Events); n > 0 {
			t.Fatalf("%s: %d events of 40 bytes", path, n)
		}
		got := history(t, compact)
		if !slices.Equal(got.Blocks(), want.Blocks()) {
			t.Fatalf("%s: the blocks differ", path)
		}
		if !slices.Equal(got.Segments(), want.Segments()) {
			t.Errorf("%s: the segments differ", path)
		}
		testkit.Equal(t, path+": steps", len(got.Steps().List), len(want.Steps().List))
		for event, bytes := range want.Active(-1, want.Trace.Len()) {
			if event%97 == 0 && (got.ActiveBytes(event) != bytes || want.ActiveBytes(event) != bytes) {
				t.Fatalf("%s: %d and %d bytes after event %d, want %d", path, got.ActiveBytes(event),
					want.ActiveBytes(event), event, bytes)
			}
		}
		if !slices.Equal(compact.Expanded().Traces[0].Events, s.Traces[0].Events) {
			t.Errorf("%s: the events differ", path)
		}
		var a, b bytes.Buffer
		testkit.Must(t, s.WritePickle(&a))
		testkit.Must(t, compact.WritePickle(&b))
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: it is written otherwise", path)
		}
		program, err := s.Program(0, trace.ProgramOptions{})
		testkit.Must(t, err)
		again, err := compact.Program(0, trace.ProgramOptions{})
		testkit.Must(t, err)
		testkit.Equal(t, path+": blocks before the recording", got.Lifetimes.Prelude, program.Prelude)
		if a, b := got.Lifetimes.Anomalies, program.Anomalies; a.Count != b.Count || !slices.Equal(a.First, b.First) {
			t.Errorf("%s: the anomalies are %v, want %v", path, a, b)
		}
		if !slices.Equal(program.Ops, again.Ops) || !slices.Equal(program.Entries, again.Entries) {
			t.Errorf("%s: the programs differ", path)
		}
	}
}

// The blocks of a history are those of the program, and their lifetimes those of its ops.
func TestLifetimesAreThoseOfThePrograms(t *testing.T) {
	for _, path := range recordings(t) {
		s, h := recorded(t, path)
		p, err := s.Program(0, trace.ProgramOptions{})
		testkit.Must(t, err)
		testkit.Equal(t, path+": blocks", h.NumBlocks(), p.Blocks)
		allocated, freed, last := map[int32]int64{}, map[int32]bool{}, int32(-1)
		for i, op := range p.Ops {
			switch {
			case p.Entries[i] == trace.NoEntry:
			case op.Kind == trace.OpAlloc:
				allocated[int32(p.Entries[i])] = op.Size
			case op.Kind == trace.OpFree || op.Kind == trace.OpFreeDeferred:
				freed[int32(p.Entries[i])] = true
			}
		}
		for _, b := range h.Blocks() {
			if size, ok := allocated[b.Start]; b.Recorded && (!ok || size != b.Size) || b.Start < last || b.End < b.Start {
				t.Fatalf("%s: %+v, want %d bytes", path, b, size)
			}
			if last = b.Start; int(b.Freed) < h.Trace.Len() && b.Freed >= 0 && !freed[b.Freed] && b.Recorded {
				t.Fatalf("%s: no op frees %+v", path, b)
			}
		}
	}
}

// Sums are those of the blocks and of the events.
func TestActiveBytes(t *testing.T) {
	for _, path := range recordings(t) {
		s, h := recorded(t, path)
		active := activeOf(h)
		changes := make([]int64, h.Trace.Len()+2) // from event -1 on
		for _, b := range h.Blocks() {
			changes[b.Start+1] += b.Size
			changes[b.End+1] -= b.Size
		}
		sums := trace.Totals{Requested: mem.Stat{Current: active[0]}}
		bytes := changes[0]
		for i, e := range s.Traces[0].Events {
			sums.Add(e.Action, e.Size)
			if bytes += changes[i+1]; bytes != active[i+1] || sums.Requested.Current != bytes {
				t.Fatalf("%s: %d bytes after event %d, want %d", path, active[i+1], i, bytes)
			}
		}
	}
}

// activeOf returns the active bytes after each event, and first those before all.
func activeOf(h *holders.History) (active []int64) {
	for _, bytes := range h.Active(-1, h.Trace.Len()) {
		active = append(active, bytes)
	}
	return active
}

// Extremes are those of the bytes after each event, wherever groups of events begin.
func TestExtremes(t *testing.T) {
	_, h := recorded(t, recordings(t)[0])
	active := activeOf(h)
	for first := -1; first < h.Trace.Len(); first += 1 + first/3 + 50 {
		for _, n := range []int{1, 2, holders.ExtremeEvents - 1, holders.ExtremeEvents, 1000, 100_000} {
			limit := min(first+n, h.Trace.Len())
			part := active[first+1 : limit+1]
			x := h.Extremes(first, limit)
			if x.High != slices.Max(part) || x.Low != slices.Min(part) || part[int(x.At)-first] != x.High ||
				slices.Index(part, x.High) != int(x.At)-first {
				t.Fatalf("events %d to %d: %+v, want %d and %d", first, limit-1, x, slices.Max(part), slices.Min(part))
			}
		}
	}
}

// The inference of categories and steps needs little memory besides a byte for each block.
func TestMemoryOfInference(t *testing.T) {
	var file bytes.Buffer
	_, err := snapshottest.Write(&file, snapshottest.Config{Seed: 1, Events: 2_000_000, Stacks: 3000})
	testkit.Must(t, err)
	s, err := snapshot.ReadCompact(&file, snapshot.Limits{})
	testkit.Must(t, err)
	all, err := holders.AllUncategorized(s)
	testkit.Must(t, err)
	before := testkit.Allocated()
	all[0].Categorize()
	all[0].Steps()
	took := testkit.Allocated() - before
	bound := uint64(10<<20 + all[0].NumBlocks())
	if took > bound {
		t.Errorf("%d bytes allocated for %d blocks, want at most %d", took, all[0].NumBlocks(), bound)
	}
}
