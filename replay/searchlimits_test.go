package replay_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
)

// A search with a condition finds the smallest limit that meets it: one step less completes, but not as wanted.
func TestSearchLimitsMeetsItsCondition(t *testing.T) {
	w := works(t, "resnet")[0]
	const most = 140
	few := func(r *replay.Row) bool { return r.DriverCalls <= most }
	never := func(*replay.Row) bool { return false }
	var done []float64
	found, err := replay.SearchLimits([]replay.LimitSearch{
		{Work: w, Spec: "caching:"}, {Work: w, Spec: "caching:", Accept: few}, {Work: w, Spec: "caching:", Accept: never},
	}, replay.LimitOptions{Progress: func(part float64) { done = append(done, part) }})
	testkit.Must(t, err)
	any, cheap, none := found[0], found[1], found[2]
	if least, err := replay.SmallestLimit(w, "caching:", 0); err != nil || any.Limit != least {
		t.Errorf("%d, %v: without a condition the limit is %d", least, err, any.Limit)
	}
	if !reflect.DeepEqual(any.Limited, any.Free) {
		t.Errorf("without a limit the run under it is %+v, want %+v", any.Limited, any.Free)
	}
	if any.Smallest.DriverCalls <= most || cheap.Limit <= any.Limit || cheap.Smallest.DriverCalls > most {
		t.Errorf("%d calls under %d bytes; at most %d should be %d under %d", any.Smallest.DriverCalls, any.Limit, most,
			cheap.Smallest.DriverCalls, cheap.Limit)
	}
	for limit, want := range map[int64]bool{cheap.Limit: true, cheap.Limit - 1<<20: false} {
		row, err := replay.Simulate(w, "caching:", limit, 0)
		testkit.Must(t, err)
		if ok := row.Completed() && few(&row); ok != want {
			t.Errorf("%d calls under %d bytes", row.DriverCalls, limit)
		}
		if want && !reflect.DeepEqual(row, cheap.Smallest) {
			t.Errorf("the search has %+v, the run under its limit %+v", cheap.Smallest, row)
		}
	}
	if none.Limit != -1 || none.Smallest.Ops != 0 || !reflect.DeepEqual(none.Free, any.Free) {
		t.Errorf("a condition that nothing meets: %+v", none)
	}
	checkProgress(t, "three searches", done)
}

// checkProgress checks that progress never runs back, and is 1 at the end and not before the last step.
func checkProgress(t *testing.T, what string, done []float64) {
	t.Helper()
	if !slices.IsSorted(done) || len(done) == 0 || slices.Index(done, 1) < max(0, len(done)-2) {
		t.Errorf("%s: progress is %v", what, done)
	}
}

// A search over many limits reports progress to its end, too.
func TestSearchLimitsOfMuchMemory(t *testing.T) {
	var done []float64
	w := scriptWork(t, "alloc a 60GiB\nfree a\nalloc b 70GiB\n")
	found, err := replay.SearchLimits([]replay.LimitSearch{{Work: w, Spec: "caching:"}},
		replay.LimitOptions{Progress: func(part float64) { done = append(done, part) }})
	if testkit.Must(t, err); found[0].Limit != 70<<30 {
		t.Errorf("the smallest limit is %d", found[0].Limit)
	}
	checkProgress(t, "a long search", done)
}

// An allocator that cannot be made on the device is an error, and no limit.
func TestSmallestLimitOfNoAllocator(t *testing.T) {
	limit, err := replay.SmallestLimit(scriptWork(t, "alloc a 1MiB\n"), "arena:size=200GiB", 100<<30)
	if !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a limit of %d, %v", limit, err)
	}
}

// A part of a recording has the requests and the time of that part, and is simulated: PyTorch's own figures are those
// of the whole.
func TestWorkParts(t *testing.T) {
	w := works(t, "streams")[0]
	ops := len(w.Program.Ops)
	first, second := w.Part(0, ops/2), w.Part(ops/2, ops)
	for _, part := range []*replay.Work{first, second} {
		c := compare(t, part, replay.CompareOptions{Specs: []string{replay.AsRecorded}})
		row := c.Rows[0]
		if row.FromRecording || !row.Completed() || row.RequestedPeak > w.Program.LowerBound() || row.Later.Recorded <= 0 {
			t.Errorf("%+v", row)
		}
	}
	whole, err := replay.Simulate(w, replay.AsRecorded, 0, 0)
	testkit.Must(t, err)
	a, err := replay.Simulate(first, replay.AsRecorded, 0, 0)
	testkit.Must(t, err)
	b, err := replay.Simulate(second, replay.AsRecorded, 0, 0)
	testkit.Must(t, err)
	if a.Allocs+b.Allocs-second.Program.Prelude.Blocks != whole.Allocs {
		t.Errorf("%d and %d allocations, of which %d were live; the whole has %d", a.Allocs, b.Allocs,
			second.Program.Prelude.Blocks, whole.Allocs)
	}
	if max(a.RequestedPeak, b.RequestedPeak) != whole.RequestedPeak {
		t.Errorf("peaks of %d and %d bytes, %d in the whole", a.RequestedPeak, b.RequestedPeak, whole.RequestedPeak)
	}
	if rest := a.Later.Recorded + b.Later.Recorded; rest >= whole.Later.Recorded*2 || rest == 0 {
		t.Errorf("the later times are %v of %v", rest, whole.Later.Recorded)
	}
}

// A search with a coarse resolution finds a limit that completes, and a smaller one by the resolution does not.
func TestSearchLimitsWithinAResolution(t *testing.T) {
	const resolution = 256 << 20
	w := works(t, "unet")[0]
	opts := replay.LimitOptions{Resolution: resolution}
	found, err := replay.SearchLimits([]replay.LimitSearch{{Work: w, Spec: "caching:"}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	least, err := replay.SmallestLimit(w, "caching:", 0)
	if err != nil {
		t.Fatal(err)
	}
	if limit := found[0].Limit; limit < least || limit >= least+resolution || !found[0].Smallest.Completed() {
		t.Errorf("a limit of %d bytes, the smallest is %d", limit, least)
	}
}
