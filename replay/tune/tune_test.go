package tune_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/tune"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func recording(t testing.TB, name string) *replay.Work {
	t.Helper()
	s, err := snapshot.ReadFile("../../testdata/traces/" + name + ".pickle.zst")
	testkit.Must(t, err)
	works, err := replay.Works(s)
	testkit.Must(t, err)
	return works[0]
}

func script(t testing.TB, text string) *replay.Work {
	t.Helper()
	s, err := trace.ParseScript(text)
	testkit.Must(t, err)
	w, err := replay.ScriptWork(s)
	testkit.Must(t, err)
	return w
}

func search(t testing.TB, opts tune.Options, works ...*replay.Work) *tune.Result {
	t.Helper()
	r, err := tune.Search(works, opts)
	testkit.Must(t, err)
	return r
}

// A block in the middle of a segment that was larger keeps the rest of it from a request: 110 MiB are live at most, and
// PyTorch's defaults need 180.
const fragmented = "alloc a 100MiB\nfree a\nalloc b 30MiB\nalloc c 80MiB\n"

func TestSearchFindsASettingThatHelps(t *testing.T) {
	w := script(t, fragmented)
	r := search(t, tune.Options{}, w)
	best := r.Best.Needs[0]
	if !r.Helps() || r.Recorded.Needs[0].Bytes != 180<<20 || best.Bytes != 110<<20 {
		t.Fatalf("%q needs %d bytes, the recorded settings %d", r.Best.Settings, best.Bytes, r.Recorded.Needs[0].Bytes)
	}
	if least, err := replay.SmallestLimit(w, "caching:"+r.Best.Settings, 0); err != nil || least != best.Limit {
		t.Errorf("a replay with %q needs %d, %v", r.Best.Settings, least, err)
	}
	if got, want := r.Saving(r.Best), 1-110.0/180; math.Abs(got-want) > 1e-9 {
		t.Errorf("the saving is %v, want %v", got, want)
	}
	if r.Tried[0] != r.Best || len(r.Tried) != tune.DefaultTries {
		t.Errorf("the best of %d settings is not the first: %q", len(r.Tried), r.Tried[0].Settings)
	}
	if len(r.HeldBack) > 0 || !slices.Equal(r.Untimed, []int{0}) {
		t.Errorf("a script of four lines is not divided and has no times: %v, %v", r.HeldBack, r.Untimed)
	}
}

func TestSearchFindsThatNothingHelps(t *testing.T) {
	for name, text := range map[string]string{
		"the live memory is the peak": "alloc a 100MiB\nalloc b 60MiB\nfree a\nalloc c 100MiB\n",
		"nothing is requested":        "empty_cache\n",
		"no device is so large":       "alloc a 200GiB\n",
	} {
		r := search(t, tune.Options{Tries: 8}, script(t, text))
		if r.Helps() || r.Best != r.Recorded || r.Saving(r.Best) != 0 {
			t.Errorf("%s: %q is recommended, for %v", name, r.Best.Settings, r.Saving(r.Best))
		}
	}
}

// The recommendation for a recording saves memory, costs no more than the budget, and is what a plain replay finds.
func TestSearchOnARecording(t *testing.T) {
	w := recording(t, "resnet")
	r := search(t, tune.Options{}, w)
	if !r.Helps() || r.Saving(r.Best) < 0.1 || !strings.Contains(r.Best.Settings, "expandable_segments:True") {
		t.Errorf("%q saves %v: expandable segments save 12 %%", r.Best.Settings, r.Saving(r.Best))
	}
	for _, trial := range append(r.Tried, r.Recorded) {
		n := &trial.Needs[0]
		if n.Bytes < 0 {
			continue
		}
		if n.Bytes < max(n.Limit, w.Program.LowerBound()) || !n.Smallest.Completed() || n.Smallest.ReservedPeak > n.Bytes {
			t.Errorf("%q: %d bytes for %+v", trial.Settings, n.Bytes, n.Smallest)
		}
		if share := n.Smallest.Later.Share(); share > tune.DefaultBudget {
			t.Errorf("%q: the driver takes %v of the time", trial.Settings, share)
		}
		if n.OverBudget() {
			t.Errorf("%q: over the budget with %d bytes", trial.Settings, n.Bytes)
		}
	}
	if len(r.HeldBack) != 2 || len(r.Untimed) > 0 {
		t.Errorf("checks %+v, without times %v", r.HeldBack, r.Untimed)
	}
}

// With less time for the driver, settings need more memory.
func TestSearchKeepsTheBudget(t *testing.T) {
	w := recording(t, "streams")
	dear := search(t, tune.Options{Budget: tune.Budget{Part: 1}}, w)
	cheap := search(t, tune.Options{Budget: tune.Budget{Time: 1}}, w)
	allowed := cheap.Recorded.Needs[0].Free.DriverTime // more than a nanosecond
	more := 0
	for _, trial := range cheap.Tried {
		n := &trial.Needs[0]
		if took := n.Smallest.Later.DriverTime; took > allowed {
			t.Errorf("%q takes %v, and %v are allowed", trial.Settings, took, allowed)
		}
		i := slices.IndexFunc(dear.Tried, func(d *tune.Trial) bool { return d.Settings == trial.Settings })
		if i < 0 {
			continue
		}
		switch need := dear.Tried[i].Needs[0].Bytes; {
		case n.Bytes < need:
			t.Errorf("%q needs %d bytes, and with a larger budget %d", trial.Settings, n.Bytes, need)
		case n.Bytes > need:
			more++
		}
	}
	if more == 0 {
		t.Error("no setting needs more with a budget of nothing")
	}
}

// A split limit keeps blocks from smaller requests, each of which then calls the driver: that is over a small budget,
// even without a limit.
func TestSettingsOverTheBudget(t *testing.T) {
	var text strings.Builder
	for i := range 30 {
		fmt.Fprintf(&text, "alloc a%d %dMiB\nfree a%d\n", i, 1000-30*i, i)
	}
	w := script(t, text.String())
	for budget, over := range map[time.Duration]bool{1: true, time.Second: false} {
		r := search(t, tune.Options{Budget: tune.Budget{Time: budget}}, w)
		i := slices.IndexFunc(r.Tried, func(d *tune.Trial) bool { return d.Settings == "max_split_size_mb:64" })
		n := r.Tried[i].Needs[0]
		if n.OverBudget() != over || over != (n.Bytes < 0) || over == n.Fits || n.Free.DriverCalls < 15 {
			t.Errorf("a budget of %v: %+v", budget, n)
		}
		if r.Recorded.Needs[0].OverBudget() {
			t.Errorf("the recorded settings are over a budget of %v", budget)
		}
	}
}

// With a limit, the setting is one with which the recording fits, and a limit that is only known to have been higher
// than some size does not count.
func TestSearchFitsLimits(t *testing.T) {
	w := recording(t, "gpt2.oom")
	opts := tune.Options{Tries: 2, Limit: 18<<30 + 200<<20}
	r := search(t, opts, w)
	best := r.Best.Needs[0]
	if r.Recorded.Needs[0].Fits || !best.Fits || best.Bytes > opts.Limit || !best.Limited.Completed() {
		t.Errorf("%q: %+v", r.Best.Settings, best)
	}
	// Expandable segments map whole pages, beyond a limit that is not a multiple of them.
	page := script(t, "alloc a 11MiB\n")
	n := search(t, tune.Options{Tries: 1, Keep: "expandable_segments:True", Limit: 15 << 20}, page).Tried[0].Needs[0]
	if n.Fits || !n.Limited.Completed() || n.Limited.ReservedPeak != 20<<20 || n.Bytes != 20<<20 {
		t.Errorf("a page of 20 MiB fits into a limit of 15 MiB: %+v", n)
	}
	// PyTorch itself lets them, so a recorded limit does.
	page.RecordedLimit, page.LimitKnown = 15<<20, true
	n = search(t, tune.Options{Tries: 1, Keep: "expandable_segments:True"}, page).Tried[0].Needs[0]
	if !n.Fits || n.Limited.ReservedPeak != 20<<20 {
		t.Errorf("a page of 20 MiB does not fit into a recorded limit of 15 MiB: %+v", n)
	}
	page.RecordedLimit = 10 << 20
	if r := search(t, tune.Options{Tries: 1}, page); r.Recorded.Needs[0].Fits || r.Tried[0].Needs[0].Fits {
		t.Errorf("11 MiB fit into a recorded limit of 10 MiB: %+v", r.Recorded.Needs[0])
	}
	if opts.LimitOf(w) != opts.Limit {
		t.Errorf("limit %d", opts.LimitOf(w))
	}
	if none := (&tune.Options{}).LimitOf(w); none != 0 {
		t.Errorf("a limit that the recording does not know counts as %d", none)
	}
}

func TestSearchKeepsSettings(t *testing.T) {
	w := script(t, fragmented)
	r := search(t, tune.Options{Keep: "release_lock_on_cudamalloc:True, expandable_segments:False,"}, w)
	for _, trial := range r.Tried {
		if strings.Contains(trial.Settings, "expandable") || strings.Contains(trial.Settings, "release") {
			t.Errorf("%q varies a key that is to be kept", trial.Settings)
		}
	}
	tried := search(t, tune.Options{Keep: "expandable_segments:True", Tries: 1000}, w).Tried
	for _, trial := range tried {
		for _, key := range []string{"max_split_size_mb", "max_non_split_rounding_mb", "garbage_collection_threshold"} {
			if strings.Contains(trial.Settings, key) {
				t.Errorf("%q varies a key without effect on expandable segments", trial.Settings)
			}
		}
	}
	kept := tried[0].Needs[0].Free
	if kept.ReservedPeak >= 180<<20 {
		t.Errorf("%d bytes are reserved: the settings to keep have no effect", kept.ReservedPeak)
	}
	for _, keep := range []string{"expandable_segments:yes", "none:1"} {
		var wrong *replay.SpecError
		if _, err := tune.Search([]*replay.Work{w}, tune.Options{Keep: keep}); !errors.As(err, &wrong) {
			t.Errorf("%q: %v", keep, err)
		}
	}
}

// Limits in the recorded settings do not bound the memory that a search finds.
func TestRecordedLimitsDoNotBoundASearch(t *testing.T) {
	limit, part := script(t, fragmented), script(t, fragmented)
	limit.Recorded.Limit, part.Recorded.MemoryFraction = 150<<20, 1e-3
	for _, w := range []*replay.Work{limit, part} {
		if n := search(t, tune.Options{Tries: 1}, w).Recorded.Needs[0]; n.Bytes != 180<<20 {
			t.Errorf("the recorded settings need %d bytes", n.Bytes)
		}
	}
}

// A search begins near the recorded settings too, and does not try them again.
func TestSearchBeginsAtTheRecordedSettings(t *testing.T) {
	w := script(t, "alloc a 100MiB\n")
	w.Recorded.ExpandableSegments = true
	for i := range w.Recorded.RoundupDivisions {
		w.Recorded.RoundupDivisions[i] = 4
	}
	var tried []string
	for _, trial := range search(t, tune.Options{}, w).Tried {
		tried = append(tried, trial.Settings)
	}
	const recorded = "expandable_segments:True,roundup_power2_divisions:4"
	for settings, want := range map[string]bool{
		recorded: false, recorded + ",large_segment_size_mb:12": true,
		"expandable_segments:True,roundup_power2_divisions:2": true, "": true,
	} {
		if slices.Contains(tried, settings) != want {
			t.Errorf("%q: want it tried: %v; tried are %q", settings, want, tried)
		}
	}
}

// The result depends neither on the number of cores nor on the run.
func TestSearchIsDeterministic(t *testing.T) {
	works := []*replay.Work{recording(t, "streams"), recording(t, "streams.expandable")}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one := search(t, tune.Options{}, works...)
	runtime.GOMAXPROCS(4)
	var done []float64
	four := search(t, tune.Options{Progress: func(part float64) { done = append(done, part) }}, works...)
	if !reflect.DeepEqual(one, four) {
		t.Errorf("on one core %q, on four %q", one.Best.Settings, four.Best.Settings)
	}
	if n := len(done); n < 100 || !slices.IsSorted(done) || done[n-1] != 1 || done[n-2] < 0.99 {
		t.Errorf("progress in %d steps, sorted: %v, the last %v", n, slices.IsSorted(done), done[max(0, n-2):])
	}
}

// A check has the saving of its choice on the part that was held back, found by searches on that part alone.
func TestChecksAreOfPartsThatWereHeldBack(t *testing.T) {
	works := []*replay.Work{recording(t, "streams"), recording(t, "resnet")}
	r := search(t, tune.Options{Tries: 10, Budget: tune.Budget{Part: 100}}, works...)
	need := func(w *replay.Work, spec string) float64 {
		limit, err := replay.SmallestLimit(w, spec, 0)
		testkit.Must(t, err)
		row, err := replay.Simulate(w, spec, limit, 0)
		testkit.Must(t, err)
		return float64(max(limit, row.ReservedPeak))
	}
	var parts []string
	for _, c := range r.HeldBack {
		parts = append(parts, fmt.Sprint(c.Part, c.Work))
		spec := "caching:" + c.Chosen.Settings + ",pytorch-exact:True"
		if c.Chosen.Settings == "" {
			spec = "caching:pytorch-exact:True"
		}
		sum, n := 0.0, 0
		for i, w := range works {
			if c.Work >= 0 && c.Work != i {
				continue
			}
			ops := len(w.Program.Ops)
			switch c.Part {
			case tune.FirstHalf:
				w = w.Part(0, ops/2)
			case tune.SecondHalf:
				w = w.Part(ops/2, ops)
			}
			sum += 1 - need(w, spec)/need(w, replay.AsRecorded)
			n++
		}
		want := sum / float64(n)
		if !c.Complete || c.Chosen != r.Recorded && math.Abs(c.Saving-want) > 1e-9 {
			t.Errorf("%v of %d: %q saves %v, want %v", c.Part, c.Work, c.Chosen.Settings, c.Saving, want)
		}
	}
	if want := []string{"0 0", "0 1", "2 -1", "1 -1"}; !slices.Equal(parts, want) {
		t.Errorf("the parts are %q, want %q", parts, want)
	}
}

// Halves are held back of recordings of at least 200 operations.
func TestChecksOfShortRecordings(t *testing.T) {
	pair := "alloc a 1MiB\nfree a\n"
	for pairs, want := range map[int]int{99: 0, 100: 2} {
		if r := search(t, tune.Options{Tries: 1}, script(t, strings.Repeat(pair, pairs))); len(r.HeldBack) != want {
			t.Errorf("of %d operations: %d checks, want %d", 2*pairs, len(r.HeldBack), want)
		}
	}
}

func TestSearchRefusesWrongOptions(t *testing.T) {
	w := script(t, fragmented)
	testkit.WantPanic(t, "no works", "tune: ", func() { _, _ = tune.Search(nil, tune.Options{}) })
	for _, opts := range []tune.Options{
		{Tries: -1}, {Limit: -1}, {Budget: tune.Budget{Part: -1}}, {Budget: tune.Budget{Time: -time.Second}},
	} {
		testkit.WantPanic(t, fmt.Sprint(opts), "tune: ", func() { _, _ = tune.Search([]*replay.Work{w}, opts) })
	}
}

// A search with the default number of settings on a recorded GPT-2 training run of 129,268 entries, halves included.
func BenchmarkSearch(b *testing.B) {
	w := recording(b, "gpt2")
	for b.Loop() {
		search(b, tune.Options{}, w)
	}
}
