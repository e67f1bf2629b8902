package diagnose_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// Recordings that contradict themselves are explained somehow or refused, without a panic.
func TestMutatedRecordings(t *testing.T) {
	rng := testkit.Rand(t)
	for _, name := range []string{"cached", "fragmentation", "leak", "private_pools.graphs", "too_much"} {
		for range 8 {
			s := read(t, "testdata/"+name+".pickle.zst")
			mutate(rng, s)
			works, err := replay.Works(s)
			if err != nil {
				continue
			}
			h, err := holders.New(s, works[0].Device)
			if err != nil {
				continue
			}
			r, err := diagnose.Explain(s, works[0], h, diagnose.Options{})
			if err != nil {
				continue
			}
			if len(r.Verdicts) == 0 || len(r.Answer) == 0 {
				t.Errorf("%s: no verdict or no answer: %+v", name, r)
			}
			for _, line := range r.Answer {
				if n := utf8.RuneCountInString(line); n > 80 {
					t.Errorf("%s: %d columns: %s", name, n, line)
				}
			}
		}
	}
}

// mutate changes some events and segments.
func mutate(rng *rand.Rand, s *snapshot.Snapshot) {
	tr := s.Traces[0]
	size := func() int64 { return rng.Int64N(int64(1) << rng.IntN(45)) }
	for range 1 + rng.IntN(10) {
		i := rng.IntN(len(tr.Events))
		switch e := &tr.Events[i]; rng.IntN(7) {
		case 0:
			e.Size = size()
		case 1:
			e.Ptr += driver.Pointer(size())
		case 2:
			e.Action = mem.Action(rng.IntN(int(mem.NumActions)))
		case 3:
			tr.Events = slices.Delete(tr.Events, i, i+1)
		case 4:
			tr.Events = slices.Insert(tr.Events, i, trace.Event{Action: mem.ActionOOM, Ptr: driver.Pointer(size()), Size: size()})
		case 5:
			e.Stack = trace.StackID(rng.IntN(tr.Stacks.Len() + 1))
		case 6:
			if n := len(s.Segments); n > 0 {
				seg := &s.Segments[rng.IntN(n)]
				seg.Blocks = seg.Blocks[:rng.IntN(len(seg.Blocks)+1)]
			}
		}
	}
}
