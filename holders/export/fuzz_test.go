package export_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/holders/export"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// FuzzExports reads files of any content. What is a snapshot has holders that add up at every moment, and can be
// exported.
func FuzzExports(f *testing.F) {
	var b bytes.Buffer
	testkit.Must(f, small().WritePickle(&b))
	f.Add(b.Bytes())
	with := small()
	with.Traces[0].Gaps = []int{1, 5}
	b.Reset()
	testkit.Must(f, with.WritePickle(&b))
	f.Add(b.Bytes())
	b.Reset()
	_, err := snapshottest.Write(&b, snapshottest.Config{Seed: 3, Events: 60, Stacks: 3, Live: 9})
	testkit.Must(f, err)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		if s, err := snapshot.ReadBytes(file); err == nil {
			checkExports(t, s)
		}
	})
}

// Events that contradict each other, as in files that were edited or cut, change no sum and break no export.
func TestExportsOfContradictions(t *testing.T) {
	var b bytes.Buffer
	_, err := snapshottest.Write(&b, snapshottest.Config{Seed: 3, Events: 60, Stacks: 3, Live: 9})
	testkit.Must(t, err)
	r := testkit.Rand(t)
	for range 100 {
		s, err := snapshot.ReadBytes(b.Bytes())
		testkit.Must(t, err)
		tr := s.Traces[0]
		for range 1 + r.IntN(8) {
			i, j := r.IntN(len(tr.Events)), r.IntN(len(tr.Events))
			switch e := &tr.Events[i]; r.IntN(7) {
			case 0:
				e.Action = mem.Action(r.IntN(int(mem.NumActions)))
			case 1:
				e.Ptr = tr.Events[j].Ptr
			case 2:
				e.Size = tr.Events[j].Size
			case 3:
				tr.Events = append(tr.Events[:i], tr.Events[i+1:]...)
			case 4:
				tr.Events[i], tr.Events[j] = tr.Events[j], tr.Events[i]
			case 5:
				tr.Gaps = []int{i + 1}
			case 6:
				e.TimeUS = 0
			}
		}
		if len(tr.Gaps) > 0 {
			tr.Gaps[0] = min(tr.Gaps[0], len(tr.Events))
		}
		checkExports(t, s)
		if t.Failed() {
			return
		}
	}
}

// checkExports checks that the holders of a snapshot add up at every moment, and that it can be exported.
func checkExports(t *testing.T, s *snapshot.Snapshot) {
	t.Helper()
	histories, err := holders.All(s)
	if err != nil {
		return
	}
	var all []*holders.View
	for _, h := range histories {
		h.Steps()
		last := len(h.Trace.Events) - 1
		for event := -1; event <= last; event += 1 + last/20 {
			v := h.At(holders.Moment{Event: event})
			var bytes int64
			for _, x := range v.By(holders.ByStack, holders.ByCategory, holders.ByTag) {
				bytes += x.Bytes
			}
			if bytes != v.Bytes || bytes != h.ActiveBytes(event) {
				t.Fatalf("event %d: holders have %d, the view %d, the history %d bytes", event, bytes, v.Bytes,
					h.ActiveBytes(event))
			}
		}
		peak, err := h.Moment("peak")
		testkit.Must(t, err)
		all = append(all, h.At(peak))
	}
	testkit.Must(t, export.WriteProfile(io.Discard, all...))
	testkit.Must(t, export.WriteFlameGraph(io.Discard, all...))
	testkit.Must(t, export.WriteParquet(io.Discard, all...))
	cut := export.Snapshot(s, all...)
	if err := cut.Check(); err != nil && s.Check() == nil {
		t.Error(err)
	}
	testkit.Must(t, cut.WritePickle(io.Discard))
}
