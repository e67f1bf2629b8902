package simulate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// extra is the share of the time that a policy adds at a budget, and whether the program ran to its end.
func extra(t *testing.T, l *Log, share float64, policy string) (float64, bool) {
	t.Helper()
	r, err := l.Run(Config{Budget: int64(share * float64(l.Peak)), Policy: policy, MaxTime: 2 * l.Baseline})
	if err != nil {
		t.Fatal(err)
	}
	if r.Peak > int64(share*float64(l.Peak)) {
		t.Errorf("%s uses %d bytes, more than the budget of %v of %d", policy, r.Peak, share, l.Peak)
	}
	return r.Ratio(l) - 1, r.Completed
}

// TestOwnPolicyAddsLessThanDTR compares the default policy with DTR at half of the peak.
func TestOwnPolicyAddsLessThanDTR(t *testing.T) {
	own, dtr := 0.0, 0.0
	for _, name := range []string{"resnet", "unet", "inception", "experts", "graph"} {
		l := sample(t, name)
		ours, ok := extra(t, l, 0.5, "")
		theirs, _ := extra(t, l, 0.5, "dtr-eq")
		if !ok || ours > theirs {
			t.Errorf("%s: the own policy adds %.3f (completed: %v), DTR %.3f", name, ours, ok, theirs)
		}
		own, dtr = own+ours, dtr+theirs
	}
	if own > 0.75*dtr {
		t.Errorf("the own policy adds %.3f in all, DTR %.3f: want at most three quarters", own, dtr)
	}
}

// TestAllPoliciesKeepTheBudget runs a program at a budget that all can keep.
func TestAllPoliciesKeepTheBudget(t *testing.T) {
	l := sample(t, "resnet")
	for _, p := range Policies() {
		if added, ok := extra(t, l, 0.9, p.Name); !ok || added <= 0 || added > 0.2 {
			t.Errorf("%s adds %.3f (completed: %v) at 0.9, want more than 0 and at most 0.2", p.Name, added, ok)
		}
	}
}

func TestWithoutABudgetNothingIsRepeated(t *testing.T) {
	l := sample(t, "unet")
	r, err := l.Run(Config{})
	if err != nil || !r.Completed || r.Time != l.Baseline || r.Peak != l.Peak || r.Evictions != 0 {
		t.Errorf("got %+v, %v, want the baseline %v and the peak %d", r, err, l.Baseline, l.Peak)
	}
}

func TestBelowTheBottleneckNothingRuns(t *testing.T) {
	l := sample(t, "unet")
	r, err := l.Run(Config{Budget: l.Bottleneck - 1, MaxTime: 3 * l.Baseline})
	if err != nil || r.Completed || r.Err == nil {
		t.Errorf("got %+v, %v, want a run that fails", r, err)
	}
}

func TestTheTimeIsLimited(t *testing.T) {
	l := sample(t, "resnet")
	r, err := l.Run(Config{Budget: l.Peak / 2, Policy: "lru", MaxTime: 2 * l.Baseline})
	if err != nil || r.Completed || !errors.Is(r.Err, errTime) || r.Time < l.Baseline || r.Time > 2*l.Baseline {
		t.Errorf("got %+v, %v, want an end at twice %v", r, err, l.Baseline)
	}
}

// A plan knows the future: it takes less time than the policy without it.
func TestPlan(t *testing.T) {
	for _, name := range []string{"unet", "resnet"} {
		l := sample(t, name)
		budget := l.Peak / 2
		online, _ := extra(t, l, 0.5, "")
		r, err := l.Run(Config{Budget: budget, Plan: true, Effort: 30_000})
		if err != nil || !r.Completed || r.Peak > budget || r.Ratio(l)-1 >= online {
			t.Errorf("%s: the plan gives %+v (%v), the policy adds %.4f", name, r, err, online)
		}
		again, err := l.Run(Config{Budget: budget, Plan: true, Effort: 30_000})
		if err != nil || again.Time != r.Time {
			t.Errorf("%s: the same plan takes %v and %v", name, r.Time, again.Time)
		}
	}
	if _, err := sample(t, "unet").Run(Config{Plan: true, Policy: "lru"}); err == nil {
		t.Error("a plan for another policy was accepted")
	}
}

// In a long chain of results most of those that are evicted are made again for others. With heavy weights for them a
// plan keeps results at even distances.
func TestPlanOfALongChain(t *testing.T) {
	l := sample(t, "lstm")
	r, err := l.Run(Config{Budget: l.Peak * 3 / 10, Plan: true, Effort: 600_000})
	if err != nil || !r.Completed || r.Ratio(l) > 1.41 {
		t.Errorf("got %+v, %v, want at most 1.41 of %v", r, err, l.Baseline)
	}
}

// A plan with copies is never slower than the plan without them, and than the policy with copies. Over a link as fast
// as PCIe 4 it is faster than both, and than copies alone can be.
func TestPlansWithCopiesAreTheBest(t *testing.T) {
	for _, name := range []string{"unet", "graph"} {
		l := sample(t, name)
		budget := l.Peak / 2
		run := func(c Config) time.Duration {
			c.Budget, c.Effort = budget, 40_000
			r, err := l.Run(c)
			if err != nil || !r.Completed || r.Peak > budget {
				t.Fatalf("%+v, %v", r, err)
			}
			return r.Time
		}
		plan := run(Config{Plan: true})
		for _, link := range []float64{1e9, 25e9, 100e9} {
			both, copies := run(Config{Plan: true, Link: link}), run(Config{Link: link})
			most := min(plan, copies)
			if link == 25e9 {
				most = min(most, l.CopiesAtLeast(budget, link)) - l.Baseline/1000
			}
			if both > most || both < l.AtLeast(budget, link) {
				t.Errorf("%s, %v bytes a second: the plan with copies takes %v, without %v, and the policy with copies %v; "+
					"copies alone take at least %v, the bound is %v", name, link, both, plan, copies,
					l.CopiesAtLeast(budget, link), l.AtLeast(budget, link))
			}
		}
	}
}

// longLog is a chain of layers, forward and back, with two kinds of results.
func longLog(t testing.TB, layers int) *Log {
	p := new(schedule.Program)
	x := p.Constant(1000)
	p.Retain(x)
	call := func(ns, size int64, inputs ...schedule.Value) schedule.Value {
		return p.Call(schedule.Call{
			Name: "f", Inputs: inputs, Outputs: []schedule.Output{{Size: size, Alias: -1}}, Cost: ns, Work: ns,
		})
	}
	linear, relu := make([]schedule.Value, layers), make([]schedule.Value, layers)
	for i := range layers {
		linear[i] = call(10_000, 1000, x)
		relu[i] = call(300, 1000, linear[i])
		x = relu[i]
	}
	gradient := call(100, 1000, x)
	for i := layers - 1; i >= 0; i-- {
		next := call(300, 1000, gradient, relu[i])
		p.Release(gradient)
		p.Release(relu[i])
		gradient = call(20_000, 1000, next, linear[i])
		p.Release(next)
		p.Release(linear[i])
	}
	p.Release(gradient)
	l, err := newLog(p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// BenchmarkLongLog simulates 60,000 operations.
func BenchmarkLongLog(b *testing.B) {
	l := longLog(b, 15_000)
	for _, policy := range []string{"chain", "dtr-eq"} {
		for _, share := range []float64{0.7, 0.5, 0.3} {
			b.Run(fmt.Sprintf("%s/%v", policy, share), func(b *testing.B) {
				var r *Result
				for b.Loop() {
					r, _ = l.Run(Config{
						Budget: int64(share * float64(l.Peak)), Policy: policy, MaxTime: 2 * l.Baseline,
					})
				}
				b.ReportMetric(r.Ratio(l), "ratio")
				b.ReportMetric(float64(l.Operations), "operations")
			})
		}
	}
}

// A fast link saves time, and the limit of the host holds.
func TestLink(t *testing.T) {
	l := sample(t, "gan")
	run := func(c Config) *Result {
		c.Budget = l.Peak / 2
		r, err := l.Run(c)
		if err != nil || !r.Completed {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	without, with, little := run(Config{}), run(Config{Link: 25e9}), run(Config{Link: 25e9, HostLimit: 20 << 20})
	if with.Time >= without.Time || with.CopiedOut == 0 || with.HostPeak == 0 {
		t.Errorf("with a link: %+v, without: %+v", with, without)
	}
	if little.HostPeak > 20<<20 {
		t.Errorf("%d bytes are on the host, the limit is %d", little.HostPeak, 20<<20)
	}
}

func TestUnknownPolicy(t *testing.T) {
	if _, err := sample(t, "unet").Run(Config{Policy: "best"}); err == nil {
		t.Error("an unknown policy was accepted")
	}
}

func BenchmarkLog(b *testing.B) {
	for _, name := range []string{"resnet", "treelstm", "lstm"} {
		l := sample(b, name)
		for _, policy := range []string{"chain", "dtr-eq"} {
			b.Run(name+"/"+policy, func(b *testing.B) {
				for b.Loop() {
					l.Run(Config{Budget: int64(0.7 * float64(l.Peak)), Policy: policy, MaxTime: 3 * l.Baseline})
				}
				b.ReportMetric(float64(l.Operations), "operations")
			})
		}
	}
}

func Example() {
	// Three layers forward and two back, in the own format. Each result takes 10 bytes.
	log, err := Read(strings.NewReader(`{"remat":1}
{"constant":1}
{"call":"f1","in":[0],"out":[{"size":10}],"ns":100}
{"call":"f2","in":[1],"out":[{"size":10}],"ns":10}
{"call":"f3","in":[2],"out":[{"size":10}],"ns":100}
{"call":"b3","in":[3,2],"out":[{"size":10}],"ns":100}
{"release":3}
{"release":2}
{"call":"b2","in":[4,1],"out":[{"size":10}],"ns":100}
{"release":4}
{"release":1}
`))
	if err != nil {
		panic(err)
	}
	for _, budget := range []int64{log.Peak, 31} {
		r, _ := log.Run(Config{Budget: budget})
		fmt.Printf("%d bytes: %v of %v, %d evictions\n", budget, r.Time, log.Baseline, r.Evictions)
	}
	// Output:
	// 41 bytes: 410ns of 410ns, 0 evictions
	// 31 bytes: 510ns of 410ns, 1 evictions
}
