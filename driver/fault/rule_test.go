package fault_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// failures makes n calls, alternately of Available and Alloc, and returns the numbers of those that failed.
func failures(t *testing.T, d *fault.Device, n int) []int {
	t.Helper()
	var failed []int
	for i := 1; i <= n; i++ {
		var err error
		if i%2 == 1 {
			_, _, err = d.Available()
		} else {
			var p driver.Pointer
			if p, err = d.Alloc(1); err == nil {
				testkit.Must(t, d.Unwrap().Free(p)) // uncounted
			}
		}
		if err != nil {
			failed = append(failed, i)
		}
	}
	return failed
}

func TestRules(t *testing.T) {
	d := fault.Wrap(open(t, "sim:total=64MiB"))
	defer d.Close()
	for _, c := range []struct {
		rules string
		want  []int
	}{
		{"", nil},
		{"all", []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"nth=3", []int{3}},
		{"nth=9", nil},
		{"nth=6,onwards", []int{6, 7, 8}},
		{"kind=Alloc", []int{2, 4, 6, 8}},
		{"kind=Alloc,nth=3", []int{6}},
		{"kind=Available,nth=3,onwards", []int{5, 7}},
		{"kind=Free", nil},
		{"nth=1;kind=Alloc,nth=2", []int{1, 4}},
		{"all;nth=2", []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"rate=1", []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"kind=Alloc,rate=1", []int{2, 4, 6, 8}},
	} {
		rules, err := fault.ParseRules(c.rules)
		testkit.Must(t, err)
		d.SetRules(rules...)
		if got := failures(t, d, 8); !slices.Equal(got, c.want) {
			t.Errorf("rules %q: calls %v failed, want %v", c.rules, got, c.want)
		}
		if d.Calls() != 8 || d.Failed() != int64(len(c.want)) {
			t.Errorf("rules %q: %d calls and %d failed, want 8 and %d", c.rules, d.Calls(), d.Failed(), len(c.want))
		}
	}
}

// TestRate: the same seed fails the same calls, another seed others, and about as many as were asked for.
func TestRate(t *testing.T) {
	d := fault.Wrap(open(t, "sim:total=64MiB"))
	defer d.Close()
	run := func(rate float64, seed uint64, others ...fault.Rule) []int {
		d.SetRules(append(others, fault.Rule{Rate: rate, Seed: seed})...)
		return failures(t, d, 1000)
	}
	a := run(0.1, 1)
	if n := len(a); n < 60 || n > 140 {
		t.Errorf("%d of 1000 calls failed at a rate of 0.1", n)
	}
	if b := run(0.1, 1); !slices.Equal(a, b) {
		t.Error("the same seed failed other calls")
	}
	if b := run(0.1, 2); slices.Equal(a, b) {
		t.Error("another seed failed the same calls")
	}
	if b := run(0.1, 1, fault.Rule{Nth: 500}); !slices.Equal(slices.DeleteFunc(b, func(i int) bool { return i == 500 }),
		slices.DeleteFunc(slices.Clone(a), func(i int) bool { return i == 500 })) {
		t.Error("another rule changed which calls the rate failed")
	}
}

func TestCodes(t *testing.T) {
	for name, code := range map[string]error{
		"nomemory": driver.ErrNoMemory, "invalid": driver.ErrInvalid, "unsupported": driver.ErrUnsupported,
		"closed": driver.ErrClosed, "lost": driver.ErrLost, "notready": driver.ErrNotReady,
		"capturing": driver.ErrCapturing, "absent": driver.ErrAbsent,
	} {
		rules, err := fault.ParseRules("kind=Graphs.Begin,code=" + name)
		testkit.Must(t, err)
		if len(rules) != 1 || rules[0].Kind != intercept.Begin || rules[0].Code != code {
			t.Errorf("%s: %+v, want a rule for Graphs.Begin with %v", name, rules, code)
		}
	}
}

func TestOpen(t *testing.T) {
	d := open(t, "fault:kind=Stream.Mark,nth=2,code=closed/sim:total=64MiB")
	for i := 1; i <= 3; i++ {
		if _, err := d.DefaultStream().Mark(); errors.Is(err, driver.ErrClosed) != (i == 2) {
			t.Errorf("mark %d: %v", i, err)
		}
	}
	testkit.Must(t, d.Close())
	for _, c := range []struct {
		spec string
		code error
		says string
	}{
		{"fault", driver.ErrInvalid, "RULES/SPEC"},
		{"fault:nth=1", driver.ErrInvalid, "RULES/SPEC"},
		{"fault:nth=1/", driver.ErrInvalid, "RULES/SPEC"},
		{"fault:nth=0/sim", driver.ErrInvalid, "from 1"},
		{"fault:nth=x/sim", driver.ErrInvalid, "from 1"},
		{"fault:kind=Malloc/sim", driver.ErrInvalid, "VirtualMemory.Map"},
		{"fault:rate=2/sim", driver.ErrInvalid, "up to 1"},
		{"fault:rate=NaN/sim", driver.ErrInvalid, "up to 1"},
		{"fault:seed=-1/sim", driver.ErrInvalid, "number"},
		{"fault:code=busy/sim", driver.ErrInvalid, "nomemory"},
		{"fault:often/sim", driver.ErrInvalid, "the keys are"},
		{"fault:/none", driver.ErrUnknown, "none"},
	} {
		if _, err := driver.Open(c.spec); !errors.Is(err, c.code) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v, want %v with %q", c.spec, err, c.code, c.says)
		}
	}
}
