package replay_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

const traces = "../testdata/traces/"

func works(t *testing.T, name string) []*replay.Work {
	t.Helper()
	s, err := snapshot.ReadFile(traces + name + ".pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	w, err := replay.Works(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// scriptWork is the work of a script.
func scriptWork(t *testing.T, script string) *replay.Work {
	t.Helper()
	s, err := trace.ParseScript(script)
	testkit.Must(t, err)
	w, err := replay.ScriptWork(s)
	testkit.Must(t, err)
	return w
}

func compare(t *testing.T, w *replay.Work, opts replay.CompareOptions) *replay.Comparison {
	t.Helper()
	c, err := replay.Compare(w, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A figuresRow has PyTorch's own counts of a recorded run.
type figuresRow struct {
	name                                   string
	allocs, requested, allocated, reserved int64
}

// pyTorchFigures reads the table of testdata/traces/README.md.
func pyTorchFigures(t *testing.T) []figuresRow {
	t.Helper()
	text, err := os.ReadFile(traces + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []figuresRow
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 10 {
			continue
		}
		var n [4]int64
		for i := range n {
			n[i], err = strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(cells[4+i]), ",", ""), 10, 64)
			if err != nil {
				break
			}
		}
		if err == nil {
			rows = append(rows, figuresRow{strings.TrimSpace(cells[1]), n[0], n[1], n[2], n[3]})
		}
	}
	return rows
}

// The limits under which the files of testdata/traces were recorded; see its README.
var recordedLimit = map[string]string{"gpt2.oom": "18.2GiB", "unet.gc6": "9.5GiB"}

// The peaks of the recorded settings are PyTorch's, byte for byte, whether or not the limit of the recording is given.
func TestPeaksAsRecordedArePyTorchs(t *testing.T) {
	files, err := filepath.Glob(traces + "*.pickle.zst")
	rows := pyTorchFigures(t)
	if err != nil || len(rows) != len(files) || len(rows) != 13 {
		t.Fatalf("the table has %d rows, and there are %d traces: want 13 of each: %v", len(rows), len(files), err)
	}
	for _, want := range rows {
		limits := []string{""}
		if l := recordedLimit[want.name]; l != "" {
			limits = append(limits, l)
		}
		for _, l := range limits {
			t.Run(want.name+"/limit="+l, func(t *testing.T) {
				opts := replay.CompareOptions{Specs: []string{replay.AsRecorded}}
				if l != "" {
					if opts.Limit, err = bytesize.Parse(l); err != nil {
						t.Fatal(err)
					}
				}
				r := compare(t, works(t, want.name)[0], opts).Rows[0]
				got := figuresRow{want.name, int64(r.Allocs), r.RequestedPeak, r.AllocatedPeak, r.ReservedPeak}
				if got != want || !r.FromRecording {
					t.Errorf("got %+v, PyTorch had %+v (from the recording: %v, notes %q)", got, want, r.FromRecording, r.Notes)
				}
				u := r.AtPeak
				if u.Reserved != r.ReservedPeak || u.Requested+u.Rounding+u.Stranded+u.Free != u.Reserved || u.Requested > r.RequestedPeak {
					t.Errorf("at the peak of %d: %+v", r.ReservedPeak, u)
				}
			})
		}
	}
}

// For the same calls, the recorded device charges the same times as a simulated device.
func TestRecordedRunIsPricedLikeASimulatedOne(t *testing.T) {
	for _, name := range []string{"resnet", "gpt2.expandable", "unet.split128", "streams", "streams.expandable"} {
		w := works(t, name)[0]
		recorded := compare(t, w, replay.CompareOptions{Specs: []string{replay.AsRecorded}}).Rows[0]
		plain := compare(t, w, replay.CompareOptions{Specs: []string{"caching:" + conf(t, name)}}).Rows[0]
		if !recorded.FromRecording || plain.FromRecording {
			t.Fatalf("%s: from the recording: %v and %v", name, recorded.FromRecording, plain.FromRecording)
		}
		if recorded.DriverUse != plain.DriverUse || *recorded.Later != *plain.Later {
			t.Errorf("%s: recorded %+v, later %+v; simulated %+v, later %+v", name,
				recorded.DriverUse, *recorded.Later, plain.DriverUse, *plain.Later)
		}
		l := recorded.Later
		if l.DriverCalls >= recorded.DriverCalls || l.Recorded < time.Millisecond || l.Share() < 0 || l.Share() > 0.01 {
			t.Errorf("%s: of %+v later %+v, %v of the time", name, recorded.DriverUse, *l, l.Share())
		}
	}
}

func conf(t *testing.T, name string) string {
	t.Helper()
	s, err := snapshot.ReadFile(traces + name + ".pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	return s.Settings.Conf
}

func TestDefaultComparisonShowsWhatWouldHaveSavedMemory(t *testing.T) {
	w := works(t, "gpt2")[0]
	c := compare(t, w, replay.CompareOptions{})
	if c.Rows[0].Allocator != replay.AsRecorded || c.Best < 0 || c.Rows[c.Best].Allocator != "caching:expandable_segments:True" {
		t.Fatalf("best %d of %+v", c.Best, c.Rows)
	}
	if got := c.Saving(); got < 5<<30 || got > 7<<30 {
		t.Errorf("saving %d", got)
	}
	var all []string
	for i := range c.Rows {
		all = append(all, c.Rows[i].Allocator)
	}
	for _, part := range []string{"expandable_segments:True", "roundup_power2_divisions:", "max_split_size_mb:"} {
		if !strings.Contains(strings.Join(all, " "), part) {
			t.Errorf("no row with %s in %q", part, all)
		}
	}
	if again := compare(t, w, replay.CompareOptions{}); !reflect.DeepEqual(c.Rows, again.Rows) {
		t.Errorf("a second comparison differs:\n%+v\n%+v", c.Rows, again.Rows)
	}
}

// A row that ran out of memory shows it, and is never the best one.
func TestLimitAppliesToEveryRow(t *testing.T) {
	w := works(t, "gpt2.oom")[0]
	c := compare(t, w, replay.CompareOptions{Limit: 19541098496}) // 18.2 GiB
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.ReservedPeak > c.Limit {
			t.Errorf("%s reserved %d", r.Allocator, r.ReservedPeak)
		}
		if r.Completed() != (r.FirstOOM < 0) {
			t.Errorf("%s: %d out of memory, the first at op %d", r.Allocator, r.OOMs, r.FirstOOM)
		}
	}
	if c.Rows[0].Completed() || c.Rows[0].OOMs != 1 || c.Best < 0 || c.Rows[c.Best].Allocator != "caching:expandable_segments:True" {
		t.Errorf("best %d of %+v", c.Best, c.Rows)
	}
	// Without the limit that it was recorded under, the request that failed has room.
	free := compare(t, w, replay.CompareOptions{Limit: 100 << 30, Specs: []string{replay.AsRecorded}}).Rows[0]
	if free.FromRecording || !free.Completed() || len(free.Notes) != 1 {
		t.Errorf("under 100 GiB: %+v", free)
	}
	// A request that no allocator can serve completes in no row.
	if c := compare(t, w, replay.CompareOptions{Limit: 1 << 30, Specs: []string{"caching:", replay.AsRecorded}}); c.Best != -1 {
		t.Errorf("under 1 GiB row %d is the best", c.Best)
	}
	small := compare(t, w, replay.CompareOptions{Capacity: 8 << 30, Specs: []string{replay.AsRecorded}})
	if small.Best != -1 || small.Rows[0].FromRecording || small.Rows[0].ReservedPeak > 8<<30 {
		t.Errorf("on a device of 8 GiB: %+v", small.Rows[0])
	}
}

// Memory that a program gave back by emptying the cache was not given back for want of memory.
func TestEmptiedCacheIsNoRetry(t *testing.T) {
	r := compare(t, works(t, "streams")[0], replay.CompareOptions{Specs: []string{replay.AsRecorded}}).Rows[0]
	if !r.FromRecording || r.Retries != 0 || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestSmallestLimitCompletesAndOneStepLessDoesNot(t *testing.T) {
	w := works(t, "streams")[0]
	for _, spec := range []string{replay.AsRecorded, "caching:expandable_segments:True", "caching:garbage_collection_threshold:0.5"} {
		limit, err := replay.SmallestLimit(w, spec, 0)
		if err != nil {
			t.Fatal(err)
		}
		run := func(limit int64) *replay.Row {
			// The spec is spelt otherwise so that the row is a plain run, as those of the search are.
			if spec == replay.AsRecorded {
				return &compare(t, w, replay.CompareOptions{Specs: []string{"caching:pytorch-exact:True"}, Limit: limit}).Rows[0]
			}
			return &compare(t, w, replay.CompareOptions{Specs: []string{spec}, Limit: limit}).Rows[0]
		}
		at, below := run(limit), run(limit-1<<20)
		if limit%(1<<20) != 0 || limit < at.RequestedPeak || !at.Completed() || below.Completed() {
			t.Errorf("%s: smallest limit %d: completes %v, below it %v", spec, limit, at.Completed(), below.Completed())
		}
		row := compare(t, w, replay.CompareOptions{Specs: []string{spec}, Smallest: true}).Rows[0]
		if row.SmallestLimit != limit {
			t.Errorf("%s: Compare finds %d, SmallestLimit %d", spec, row.SmallestLimit, limit)
		}
	}
	if limit, err := replay.SmallestLimit(w, "caching", 256<<20); err != nil || limit != -1 {
		t.Errorf("on a device that is too small: %d, %v", limit, err)
	}
}

func TestSpecsThatNameNothingAreErrors(t *testing.T) {
	for spec, part := range map[string]string{
		"":                                `unknown name ""`,
		"cacheing":                        "want one of arena, bfc, caching, direct, paged, planned",
		"caching:max_split_size_mb:x":     "max_split_size_mb",
		"caching:no_such_setting:1":       "no_such_setting",
		"caching:expandable_segments:yes": "expandable_segments",
		"arena:compact=perhaps":           "want on or off",
		"arena:round=100":                 "want a multiple of 512",
		"arena:page=1000":                 "multiple of the granularity",
		"direct:session=1":                "session",
		"direct:pool=1":                   "pool",
	} {
		_, err := replay.ParseSpec(spec, caching.Default())
		var bad *replay.SpecError
		if !errors.As(err, &bad) || bad.Spec != spec || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// A recording that starts late is compared nevertheless, with a note that the figures are not PyTorch's.
func TestLateRecordingFallsBackToAPlainRun(t *testing.T) {
	s, err := snapshot.ReadFile(traces + "streams.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	s.Traces[0].Events = s.Traces[0].Events[2000:]
	w, err := replay.Works(s)
	if err != nil {
		t.Fatal(err)
	}
	r := compare(t, w[0], replay.CompareOptions{Specs: []string{replay.AsRecorded}}).Rows[0]
	if r.FromRecording || !r.Completed() || r.ReservedPeak < r.RequestedPeak || r.AtPeak.Reserved != r.ReservedPeak {
		t.Errorf("%+v", r)
	}
	if len(w[0].Notes) == 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "before the recording") {
		t.Errorf("notes %q and %q", w[0].Notes, r.Notes)
	}
}

func TestEachDeviceIsWorkOfItsOwn(t *testing.T) {
	s, err := snapshot.ReadFile(traces + "resnet.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	other, err := snapshot.ReadFile(traces + "streams.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	s.Traces = append(s.Traces[:1:1], nil, other.Traces[0])
	s.Traces[2].Device = 2
	for _, seg := range other.Segments {
		seg.Device = 2
		s.Segments = append(s.Segments, seg)
	}
	all, err := replay.Works(s)
	if err != nil || len(all) != 2 || all[0].Device != 0 || all[1].Device != 2 {
		t.Fatalf("%d works, %v", len(all), err)
	}
	for i, peak := range []int64{5190451200, 1151336448} {
		r := compare(t, all[i], replay.CompareOptions{Specs: []string{replay.AsRecorded}}).Rows[0]
		if !r.FromRecording || r.ReservedPeak != peak {
			t.Errorf("device %d: %+v", all[i].Device, r)
		}
	}
	if _, err := replay.Works(&snapshot.Snapshot{}); !errors.Is(err, verify.ErrNoHistory) {
		t.Errorf("no history: %v", err)
	}
}

func TestCompareTimesAndReportsProgress(t *testing.T) {
	var clock time.Time
	var done []float64
	c := compare(t, works(t, "resnet")[0], replay.CompareOptions{
		Smallest: true,
		Now:      func() time.Time { clock = clock.Add(time.Millisecond); return clock },
		Progress: func(d float64) { done = append(done, d) },
	})
	for i := range c.Rows {
		if want := 1e6 / float64(c.Rows[i].Ops); c.Rows[i].NsPerOp != want {
			t.Errorf("%s: %v ns an op, want %v", c.Rows[i].Allocator, c.Rows[i].NsPerOp, want)
		}
	}
	checkProgress(t, "with limits and times", done)
	for what, opts := range map[string]replay.CompareOptions{
		"plain":          {},
		"on real memory": {Smallest: true, OpenDevice: func(total int64) (driver.Device, error) { return host.Open(host.Options{Total: total}) }},
	} {
		done = nil
		opts.Specs, opts.Capacity = []string{"caching", "paged"}, 256<<20
		opts.Progress = func(d float64) { done = append(done, d) }
		compare(t, scriptWork(t, "alloc a 3MiB\nalloc b 70000\nfree a\n"), opts)
		checkProgress(t, what, done)
	}
}

// The row of the recorded settings says why it has no figures of the recording.
func TestAsRecordedSaysWhyItIsSimulated(t *testing.T) {
	const at, mib = 0x10000000, 1 << 20
	segment := trace.Event{Action: mem.ActionSegmentAlloc, Ptr: at, Size: 20 * mib}
	block := func(p driver.Pointer) []trace.Event {
		return []trace.Event{
			{Action: mem.ActionAlloc, Ptr: p, Size: 2 * mib},
			{Action: mem.ActionFreeRequested, Ptr: p, Size: 2 * mib},
			{Action: mem.ActionFreeCompleted, Ptr: p, Size: 2 * mib},
		}
	}
	for name, c := range map[string]struct {
		events []trace.Event
		gaps   []int
		want   string
	}{
		"elsewhere":    {append([]trace.Event{segment}, block(at+4*mib)...), nil, "the allocator did not follow the recording, which reserved 20.00MiB ("},
		"off":          {append([]trace.Event{segment}, block(at)...), []int{1}, "the recording could not be followed (the recording leaves entries out: "},
		"no begin":     {block(at)[1:], nil, "what was there before the recording is not in the file, "},
		"late and off": {block(at)[1:], []int{1}, "what was there before the recording is not in the file, "},
		"no segment":   {block(at), nil, "what was there before the recording is not in the file, "},
	} {
		s := &snapshot.Snapshot{Traces: []*trace.Trace{{Events: c.events, Gaps: c.gaps, Streams: []uint64{0}, Pools: []mem.PoolID{{}}}}}
		w, err := replay.Works(s)
		testkit.Must(t, err)
		row := compare(t, w[0], replay.CompareOptions{Specs: []string{replay.AsRecorded}}).Rows[0]
		if row.FromRecording || len(row.Notes) != 1 || !strings.HasPrefix(row.Notes[0], "As recorded: "+c.want) {
			t.Errorf("%s: notes %q, want %q", name, row.Notes, c.want)
		}
	}
}

// On real memory every block keeps its contents, and figures that only a simulation has are left out.
func TestCompareOnRealMemoryChecksContents(t *testing.T) {
	w := scriptWork(t, "alloc a 3MiB\nalloc b 70000\nfree a\nalloc c 1MiB\nalloc d 5MiB\nfree b pending\nalloc e 600\ncomplete b\n")
	c := compare(t, w, replay.CompareOptions{
		Capacity: 256 << 20, Contents: replay.WholeContents, Specs: []string{"caching", "caching:max_split_size_mb:32"},
		OpenDevice: func(total int64) (driver.Device, error) { return host.Open(host.Options{Total: total}) },
	})
	for i := range c.Rows {
		if r := &c.Rows[i]; !r.Completed() || r.Priced || r.Allocs != 5 || r.ReservedPeak < r.AllocatedPeak {
			t.Errorf("%+v", r)
		}
	}
}
