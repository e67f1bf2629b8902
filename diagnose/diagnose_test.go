package diagnose_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// known is testdata/causes.json: what testdata/traces/record_causes.py knows of its recordings.
type known struct {
	Lines map[string]int
	Cases []knownCase
}

type knownCase struct {
	Name          string
	Cause         diagnose.Cause
	Settings      string
	LimitBytes    int64 `json:"limit_bytes"`
	DeviceTotal   int64 `json:"device_total"`
	RequestedPeak int64 `json:"requested_peak"`
	ReservedPeak  int64 `json:"reserved_peak"`
	Trials        []struct {
		Settings string
		LimitMiB int64 `json:"limit_mib"`
		Finished bool
	}
}

func readKnown(t *testing.T) (k known) {
	t.Helper()
	text, err := os.ReadFile("testdata/causes.json")
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func read(t testing.TB, path string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func explain(t testing.TB, s *snapshot.Snapshot, opts diagnose.Options) *diagnose.Report {
	t.Helper()
	works, err := replay.Works(s)
	if err != nil {
		t.Fatal(err)
	}
	h, err := holders.New(s, works[0].Device)
	if err != nil {
		t.Fatal(err)
	}
	r, err := diagnose.Explain(s, works[0], h, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func causes(r *diagnose.Report) (list []diagnose.Cause) {
	for _, v := range r.Verdicts {
		list = append(list, v.Cause)
	}
	return list
}

// checkReport verifies what holds for the report of every recording.
func checkReport(t *testing.T, r *diagnose.Report) {
	t.Helper()
	if n := len(r.Answer); n != 3 {
		t.Errorf("an answer of %d lines, want 3: %q", n, r.Answer)
	}
	for _, line := range r.Answer {
		if n := utf8.RuneCountInString(line); n > 80 || !strings.HasSuffix(line, ".") {
			t.Errorf("a line of %d columns, want a sentence of at most 80: %s", n, line)
		}
	}
	var held int64
	for _, h := range r.Holders {
		held += h.Bytes
	}
	testkit.Equal(t, "the bytes of the holders", held, r.RequestedPeak)
	if l := r.Layout; l == nil && r.ReservedPeak > 0 {
		t.Error("no layout")
	} else if l == nil {
		return
	} else if sum := l.Requested + l.Rounding + l.FreeOwn + l.FreePools + l.FreeStreams; sum != l.Reserved {
		t.Errorf("the parts of the layout are %d bytes, reserved are %d", sum, l.Reserved)
	}
}

// The verdict on each recording is the cause that the recording script made, and no other.
func TestVerdictsOfKnownCauses(t *testing.T) {
	for _, c := range readKnown(t).Cases {
		t.Run(c.Name, func(t *testing.T) {
			s := read(t, "testdata/"+c.Name+".pickle.zst")
			r := explain(t, s, diagnose.Options{})
			testkit.Equal(t, "verdict", fmt.Sprint(causes(r)), fmt.Sprint([]diagnose.Cause{c.Cause}))
			testkit.Equal(t, "requested peak", r.RequestedPeak, c.RequestedPeak)
			testkit.Equal(t, "reserved peak", r.ReservedPeak, c.ReservedPeak)
			checkReport(t, r)
			if c.LimitBytes > 0 {
				limit, below := r.Limit()
				if limit > c.LimitBytes || below <= c.LimitBytes {
					t.Errorf("a limit of %d up to %d bytes, the true one is %d", limit, below, c.LimitBytes)
				}
				exact := explain(t, s, diagnose.Options{Limit: c.LimitBytes})
				testkit.Equal(t, "verdict with the limit", fmt.Sprint(causes(exact)), fmt.Sprint(causes(r)))
			}
			whole := explain(t, s, diagnose.Options{Memory: c.DeviceTotal})
			testkit.Equal(t, "verdict with the GPU's memory", fmt.Sprint(causes(whole)), fmt.Sprint(causes(r)))
			if v := whole.Verdicts[0]; v.Confidence != diagnose.Certain {
				t.Errorf("with the GPU's memory the verdict is %s, want certain", v.Confidence)
			}
		})
	}
}

// The settings with which the work finished on the GPU are those with which a replay needs no more than the limit.
func TestNeedsAgreeWithTheGPU(t *testing.T) {
	for _, c := range readKnown(t).Cases {
		if c.Cause == diagnose.Leak {
			continue // the trial went on leaking after the recording ended
		}
		r := explain(t, read(t, "testdata/"+c.Name+".pickle.zst"), diagnose.Options{})
		for _, trial := range c.Trials {
			n := slices.IndexFunc(r.Needed, func(n diagnose.Need) bool {
				return n.Name() == trial.Settings || n.Name() == "PyTorch's defaults" && trial.Settings == ""
			})
			if n < 0 || trial.LimitMiB == 0 {
				continue
			}
			if fits := r.Needed[n].Bytes <= trial.LimitMiB<<20; fits != trial.Finished {
				t.Errorf("%s: %s needs %d bytes of %d MiB here; on the GPU it finished: %t", c.Name, r.Needed[n].Name(),
					r.Needed[n].Bytes, trial.LimitMiB, trial.Finished)
			}
		}
	}
}

// A recording that begins late has the same cause as long as it shows it: a leak takes some steps.
func TestVerdictsOfLateRecordings(t *testing.T) {
	for _, c := range readKnown(t).Cases {
		s := read(t, "testdata/"+c.Name+".pickle.zst")
		s.Traces[0].Events = s.Traces[0].Events[len(s.Traces[0].Events)/5:]
		r := explain(t, s, diagnose.Options{})
		testkit.Equal(t, c.Name, fmt.Sprint(causes(r)), fmt.Sprint([]diagnose.Cause{c.Cause}))
		checkReport(t, r)
	}
}

// The lines that hold the memory or do the harm are named.
func TestLinesOfKnownCauses(t *testing.T) {
	lines := readKnown(t).Lines
	at := func(mark, function string) string {
		return fmt.Sprintf("record_causes.py:%d %s", lines[mark], function)
	}
	for _, c := range []struct{ name, answer string }{
		{"leak", at("leak", "<lambda>")},
		{"leak.limit", at("leak", "<lambda>")},
		{"limit", at("activations", "forward")},
		{"too_much", at("activations", "forward")},
		{"other_processes", at("activations", "forward")},
		{"none", at("activations", "forward")},
	} {
		r := explain(t, read(t, "testdata/"+c.name+".pickle.zst"), diagnose.Options{})
		if text := strings.Join(r.Answer, "\n"); !strings.Contains(text, c.answer) {
			t.Errorf("%s: no %q in\n%s", c.name, c.answer, text)
		}
	}
	r := explain(t, read(t, "testdata/leak.full.pickle.zst"), diagnose.Options{})
	if stack, want := r.Growth.Lines[0].Stack, at("leak_big", "<lambda>"); !strings.Contains(stack, want) {
		t.Errorf("the stack of the growth lacks %q: %s", want, stack)
	}
}

// The recordings of testdata/traces have known causes, too.
func TestVerdictsOfRecordings(t *testing.T) {
	for name, want := range map[string]string{
		"gpt2": "[none]", "gpt2.expandable": "[none]", "gpt2.oom": "[limit]", "resnet": "[none]",
		"resnet.round4": "[none]", "resnet.stacks": "[none]", "streams": "[none]", "streams.expandable": "[none]",
		"unet": "[none]", "unet.expandable": "[none]", "unet.gc6": "[none]", "unet.split128": "[setting]",
		"unet.stacks": "[none]",
	} {
		t.Run(name, func(t *testing.T) {
			s := read(t, "../testdata/traces/"+name+".pickle.zst")
			r := explain(t, s, diagnose.Options{})
			testkit.Equal(t, "verdict", fmt.Sprint(causes(r)), want)
			checkReport(t, r)
			event := r.View.Moment.Event
			if r.Failure != nil {
				event = r.Failure.Entry
			}
			var sums trace.Totals
			for _, e := range s.Traces[0].Events[:event+1] {
				sums.Add(e.Action, e.Size)
			}
			testkit.Equal(t, "reserved", r.Layout.Reserved, sums.Reserved.Current)
		})
	}
}

// With the limit that the recording lacks, expandable segments are known to fit.
func TestKnownLimit(t *testing.T) {
	const limit = 19_542_101_196 // 18.2 GiB
	s := read(t, "../testdata/traces/gpt2.oom.pickle.zst")
	r := explain(t, s, diagnose.Options{Limit: limit})
	testkit.Equal(t, "answer", strings.Join(r.Answer, "\n"), `Your limit of 18.2 GiB was reached; the GPU had 122 GiB free.
The recording has no stacks, so the lines that hold the memory are unknown.
With expandable_segments:True this run needs 18.1 GiB and fits.`)
	testkit.Equal(t, "verdict", fmt.Sprint(causes(r)), "[limit fragmentation]")
	if got, below := r.Limit(); got != limit || below != got+1 {
		t.Errorf("a limit of %d, less than %d", got, below)
	}

	works, err := replay.Works(s)
	if err != nil {
		t.Fatal(err)
	}
	h, err := holders.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range []diagnose.Options{{Limit: 1 << 30}, {At: "noon"}} {
		if r, err := diagnose.Explain(s, works[0], h, opts); err == nil {
			t.Errorf("%+v: %q", opts, r.Answer)
		}
	}
}

// The holders are those of the moment that was asked for.
func TestHoldersAtAMoment(t *testing.T) {
	s := read(t, "testdata/leak.limit.pickle.zst")
	r := explain(t, s, diagnose.Options{At: "step:3"})
	var held int64
	for _, h := range r.Holders {
		held += h.Bytes
	}
	testkit.Equal(t, "the bytes of the holders", held, r.View.Moment.Bytes)
	if r.View.Moment.Bytes >= r.RequestedPeak {
		t.Errorf("%d bytes at %s, %d at the peak", r.View.Moment.Bytes, r.View.Moment.Name, r.RequestedPeak)
	}
	if !strings.HasPrefix(r.Answer[1], "At the peak of step 3, ") {
		t.Errorf("no moment in %q", r.Answer[1])
	}
}

// The layout at the failed request is the one that the allocator would report: replay's error has the same figures.
func TestLayout(t *testing.T) {
	r := explain(t, read(t, "testdata/fragmentation.pickle.zst"), diagnose.Options{})
	const mib = 1 << 20
	l := r.Layout
	testkit.Equal(t, "reserved", l.Reserved, 2000*mib)
	testkit.Equal(t, "in use", l.Requested, 1280*mib)
	testkit.Equal(t, "free", l.FreeOwn, 720*mib)
	testkit.Equal(t, "largest hole", l.LargestHole, 40*mib)
	empty := fmt.Sprintf("record_causes.py:%d empty", 45)
	testkit.Equal(t, "pins", fmt.Sprint(l.Pins),
		fmt.Sprint([]diagnose.Pin{{Segments: 18, Segment: 100 * mib, Free: 40 * mib, Blocks: 1, Holder: empty}}))
	testkit.Equal(t, "move", *l.Move, diagnose.Move{Segment: 100 * mib, Bytes: 60 * mib, Blocks: 1, Holder: empty})

	r = explain(t, read(t, "testdata/cached.pickle.zst"), diagnose.Options{})
	testkit.Equal(t, "free on other streams", r.Layout.FreeStreams, 4*384*mib)
	testkit.Equal(t, "other streams", r.Layout.OtherStreams, 4)
	r = explain(t, read(t, "testdata/private_pools.mempool.pickle.zst"), diagnose.Options{})
	testkit.Equal(t, "free in private pools", r.Layout.FreePools, 8*150*mib)
	testkit.Equal(t, "private pools", r.Layout.PrivatePools, 1)
}

// If a category has many lines, the answer has the share of all of them.
func TestCategoryOfManyLines(t *testing.T) {
	r := explain(t, read(t, "../holders/testdata/tagged/accumulation.pickle.zst"), diagnose.Options{})
	var workspace int64
	for _, h := range r.Holders {
		if h.Values[1] == holders.Workspace.String() {
			workspace += h.Bytes
		}
	}
	want := fmt.Sprintf("%.0f %% of the peak is workspace, the largest part at record_tagged.py:", 100*float64(workspace)/
		float64(r.RequestedPeak))
	if !strings.HasPrefix(r.Answer[1], want) {
		t.Errorf("%q, want %q", r.Answer[1], want)
	}
}
