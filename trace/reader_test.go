package trace_test

import (
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// What is read of a trace does not depend on its form.
func TestFormsOfATraceReadAlike(t *testing.T) {
	const n = 3000
	var w trace.ColumnsWriter
	full := &trace.Trace{}
	want := trace.Totals{}
	for i := range n {
		e := trace.Event{Action: mem.Action(i % int(mem.NumActions)), Size: int64(i), TimeUS: int64(1000 - i), Stack: trace.StackID(i / 7)}
		full.Events = append(full.Events, e)
		w.Add(&e)
		switch e.Action {
		case mem.ActionAlloc:
			want.Requested.Allocated += e.Size
		case mem.ActionFreeCompleted:
			want.Requested.Freed += e.Size
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			want.Reserved.Allocated += e.Size
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			want.Reserved.Freed += e.Size
		}
	}
	compact := &trace.Trace{Columns: w.Columns()}
	for form, tr := range map[string]*trace.Trace{"events": full, "columns": compact} {
		var times []int64
		tr.EachTime(func(first int, us []uint64) {
			if first != len(times) {
				t.Errorf("%s: times from %d on follow the first %d", form, first, len(times))
			}
			for _, x := range us {
				times = append(times, int64(x))
			}
		})
		if len(times) != n || tr.Len() != n {
			t.Fatalf("%s: %d times of %d events", form, len(times), tr.Len())
		}
		for i, e := range full.Events {
			if times[i] != e.TimeUS || tr.TimeUS(i) != e.TimeUS || tr.At(i) != e {
				t.Fatalf("%s: event %d is %+v at %d and %d, want %+v", form, i, tr.At(i), times[i], tr.TimeUS(i), e)
			}
		}
		got := tr.Totals()
		if got.Requested.Allocated != want.Requested.Allocated || got.Requested.Freed != want.Requested.Freed ||
			got.Reserved.Allocated != want.Reserved.Allocated || got.Reserved.Freed != want.Reserved.Freed ||
			got.Requested.Current != want.Requested.Allocated-want.Requested.Freed ||
			got.Reserved.Current != want.Reserved.Allocated-want.Reserved.Freed {
			t.Errorf("%s: %+v, want the sums of %+v", form, got, want)
		}
	}
	for a := range mem.NumActions {
		found, again := full.Find(a, mem.ActionOOM), compact.Find(a, mem.ActionOOM)
		if !slices.Equal(found, again) {
			t.Errorf("%v: %d events of one form, %d of the other", a, len(found), len(again))
		}
		for _, i := range found {
			if got := full.Events[i].Action; got != a && got != mem.ActionOOM {
				t.Errorf("event %d is %v, want %v", i, got, a)
			}
		}
		if want := n / int(mem.NumActions); len(found) < want {
			t.Errorf("%v: %d events, want at least %d", a, len(found), want)
		}
	}
	if full.Expanded() != full || compact.Expanded() == compact || compact.Columns == nil ||
		!slices.Equal(compact.Expanded().Events, full.Events) {
		t.Error("the expanded trace has other events, or the compact one was changed")
	}
	last := -1
	compact.Columns.EachNumber(trace.FieldStack, func(i int, number uint32) {
		if full.Events[i].Stack != trace.StackID(number) || i <= last {
			t.Errorf("stack %d at event %d, behind event %d", number, i, last)
		}
		last = i
	})
	if last < n-7 {
		t.Errorf("the last stack is that of event %d", last)
	}
}

// An event is had if each of its numbers is in the table of it, or there is no table.
func TestNumbersHave(t *testing.T) {
	e := &trace.Event{Stack: 2, Stream: 3, Metadata: 4, Pool: 5}
	table := func(n int) []uint32 { return make([]uint32, n) }
	for _, c := range []struct {
		stacks, streams, metadata, pools int
		want                             bool
	}{{3, 4, 5, 6, true}, {2, 4, 5, 6, false}, {3, 3, 5, 6, false}, {3, 4, 4, 6, false}, {3, 4, 5, 5, false}} {
		n := trace.Numbers{Streams: table(c.streams), Metadata: table(c.metadata), Pools: table(c.pools)}
		n.Stacks = make([]trace.StackID, c.stacks)
		if got := n.Have(e); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if !(&trace.Numbers{}).Have(e) {
		t.Error("without tables an event is not had")
	}
	n := trace.Numbers{
		Stacks: []trace.StackID{0, 0, 12}, Streams: []uint32{0, 0, 0, 13}, Metadata: []uint32{0, 0, 0, 0, 14}, Pools: []uint32{5: 15},
	}
	got, want := *e, trace.Event{Stack: 12, Stream: 13, Metadata: 14, Pool: 15}
	if n.Replace(&got); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	(&trace.Numbers{}).Replace(&got)
	if got != want {
		t.Errorf("without tables the event becomes %+v", got)
	}
}
