package tune

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// groupOf is works of 100 GiB that were run with the recorded settings and others. A trial has its needed GiB for each
// work; negative is more than the limit of the work.
func groupOf(recorded []int64, others ...[]int64) *group {
	g := &group{}
	for range recorded {
		g.bounds, g.works = append(g.bounds, 100<<30), append(g.works, nil)
	}
	trial := func(needs []int64) *Trial {
		t := &Trial{keys: 1}
		for _, bytes := range needs {
			n := Need{Bytes: max(bytes, -bytes) << 30, Fits: bytes > 0}
			n.Free.Later = &replay.Later{}
			t.Needs = append(t.Needs, n)
		}
		return t
	}
	g.recorded = trial(recorded)
	for i, needs := range others {
		g.trials = append(g.trials, trial(needs))
		g.settings = append(g.settings, defaults.with(divisions, i))
	}
	return g
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestChoose(t *testing.T) {
	const none = recordedTrial
	slow := groupOf([]int64{120}, []int64{110}, []int64{110})
	slow.trials[0].Needs[0].Free.Later.DriverTime = time.Second
	hardly := groupOf([]int64{120}, []int64{110}, []int64{110})
	hardly.trials[0].Needs[0].Free.Later.DriverTime = time.Second
	hardly.trials[1].Needs[0].Bytes += 1 << 20
	complex := groupOf([]int64{1200}, []int64{1097}, []int64{1100})
	complex.bounds[0], complex.trials[0].keys = 1000<<30, 2
	failed := groupOf([]int64{120, 120}, []int64{110, 119}, []int64{100, 0})
	failed.trials[1].Needs[1].Bytes = -1
	small := groupOf([]int64{120}, []int64{110})
	small.bounds[0], small.recorded.Needs[0].Bytes, small.trials[0].Needs[0].Bytes = 200<<20, 240<<20, 201<<20
	hopeless := groupOf([]int64{120, 0}, []int64{110, 0})
	for _, trial := range []*Trial{hopeless.recorded, hopeless.trials[0]} {
		trial.Needs[1].Bytes = -1
	}
	enough := groupOf([]int64{120}, []int64{110})
	enough.bounds[0], enough.recorded.Needs[0].Bytes, enough.trials[0].Needs[0].Bytes = 200<<20, 240<<20, 200<<20
	unmet := groupOf([]int64{-120}, []int64{-110})
	unmet.recorded.Needs[0].Bytes = -1
	empty := groupOf([]int64{120, 1}, []int64{110, 1})
	empty.bounds[1] = 0
	little := groupOf([]int64{120, 0}, []int64{110, 0})
	little.bounds[0], little.recorded.Needs[0].Bytes, little.trials[0].Needs[0].Bytes = 200<<20, 240<<20, 201<<20
	for _, trial := range []*Trial{little.recorded, little.trials[0]} {
		trial.Needs[1].Bytes = -1
	}
	average := groupOf([]int64{120, 120}, []int64{110, 110}, []int64{110, 110})
	for i := range 2 { // 0.04 % each
		average.trials[0].Needs[i].Free.Later.DriverTime = time.Second
		average.trials[1].Needs[i].Bytes += 40 << 20
	}
	for name, c := range map[string]struct {
		g    *group
		want int
	}{
		"one that saves 40 MiB":                     {enough, 0},
		"a recording of no requests does not count": {empty, 0},
		"no little beside what never completes":     {little, none},
		"one that completes, over the limit":        {unmet, 0},
		"the faster by the average of the memory":   {average, 1},
		"the one that needs the least":              {groupOf([]int64{120, 120}, []int64{110, 110}, []int64{105, 114}), 1},
		"no settings":                               {groupOf([]int64{120}), none},
		"none that is better":                       {groupOf([]int64{110}, []int64{110}, []int64{112}), none},
		"none that saves less than the price":       {groupOf([]int64{10000}, []int64{9910}), none},
		"one that saves a little more":              {groupOf([]int64{10000}, []int64{9890}), 0},
		"none that harms a recording":               {groupOf([]int64{120, 120}, []int64{100, 122}), none},
		"none that saves less than 40 MiB":          {small, none},
		"a little harm is none":                     {groupOf([]int64{120, 120}, []int64{100, 121}), 0},
		"less harm before less memory":              {groupOf([]int64{120, 120}, []int64{100, 122}, []int64{115, 115}), 1},
		"a recording more that fits before all":     {groupOf([]int64{110, -120}, []int64{125, 110}), 0},
		"none with which a recording less fits":     {groupOf([]int64{120, 120}, []int64{100, -100}), none},
		"the faster of two that need as much":       {slow, 1},
		"the faster for hardly more memory":         {hardly, 1},
		"a simpler one for hardly more memory":      {complex, 1},
		"none without room for a recording":         {failed, 0},
		"a recording without room does not count":   {hopeless, 0},
		"a setting with fewer fits is never better": {groupOf([]int64{-120, 100}, []int64{-100, -90}), none},
	} {
		if got := (judge{c.g}).choose(all(len(c.g.bounds))); got != c.want {
			t.Errorf("%s: trial %d is chosen, want %d", name, got, c.want)
		}
	}
}

// Halves take part in the choice by what they need, so that a setting is not chosen for one peak.
func TestHalvesTakePartInTheChoice(t *testing.T) {
	whole := groupOf([]int64{120}, []int64{105}, []int64{106})
	first, second := groupOf([]int64{110}, []int64{110}, []int64{104}), groupOf([]int64{110}, []int64{115}, []int64{104})
	if got := (judge{whole}).choose(all(1)); got != 0 {
		t.Errorf("by the whole recording, trial %d is chosen", got)
	}
	j := judge{whole, first, second}
	if got := j.choose(all(1)); got != 1 {
		t.Errorf("with the halves, trial %d is chosen", got)
	}
	checks := j.checks()
	if len(checks) != 2 || checks[0].Part != SecondHalf || checks[0].Chosen != whole.trials[1] || !checks[0].Complete ||
		checks[1].Part != FirstHalf || !near(checks[1].Saving, 1-104.0/110) {
		t.Errorf("checks %+v", checks)
	}
	second.trials[1].Needs[0].Bytes = -1
	if c := j.checks()[0]; c.Complete {
		t.Errorf("a setting that is not enough for a half: %+v", c)
	}
}

// A choice without a recording does not look at that recording.
func TestChecksLeaveRecordingsOut(t *testing.T) {
	g := groupOf([]int64{120, 120}, []int64{100, 119}, []int64{119, 100})
	checks := judge{g}.checks()
	if len(checks) != 2 || checks[0].Chosen != g.trials[1] || checks[1].Chosen != g.trials[0] ||
		!near(checks[0].Saving, 1-119.0/120) || checks[0].Work != 0 || checks[1].Work != 1 {
		t.Errorf("%+v", checks)
	}
}

// A search without an end tries every setting of PyTorch's that makes sense, once: no key is without effect.
func TestSearchTriesEverySetting(t *testing.T) {
	script, err := trace.ParseScript("alloc a 1MiB\n")
	testkit.Must(t, err)
	w, err := replay.ScriptWork(script)
	testkit.Must(t, err)
	r, err := Search([]*replay.Work{w}, Options{Tries: 100_000})
	testkit.Must(t, err)
	var tried []string
	for _, trial := range r.Tried {
		tried = append(tried, trial.Settings)
	}
	want := validSettings(t)
	slices.Sort(tried)
	slices.Sort(want)
	if !slices.Equal(tried, want) {
		t.Errorf("%d settings were tried, %d make sense", len(tried), len(want))
	}
}

// validSettings are all combinations of the values of keys that make sense, without PyTorch's defaults, which are the
// recorded settings.
func validSettings(t *testing.T) (valid []string) {
	t.Helper()
	all := []string{""}
	for _, k := range keys {
		for _, s := range slices.Clone(all) {
			for _, value := range k.values {
				all = append(all, Join(s, k.name+":"+value))
			}
		}
	}
	for _, s := range all {
		cfg, notes, err := caching.ParseConfig(s)
		split := cfg.MaxSplitSize != caching.Unlimited
		switch {
		case s == "" || err != nil: // the segments are larger than blocks that may be split
		case cfg.ExpandableSegments && (split || cfg.GarbageCollectionThreshold > 0):
		case strings.Contains(s, "max_non_split_rounding_mb") && !split:
		case len(notes) > 0:
			t.Errorf("%s: %q", s, notes)
		default:
			valid = append(valid, s)
		}
	}
	return valid
}
