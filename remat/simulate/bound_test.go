package simulate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// smallNet is a random network, forward and back.
func smallNet(t *testing.T, seed uint64) *Log {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := new(schedule.Program)
	x := p.Constant(1)
	p.Retain(x)
	call := func(size int64, inputs ...schedule.Value) schedule.Value {
		ns := int64(10 + rng.IntN(100))
		return p.Call(schedule.Call{
			Name: "f", Inputs: inputs, Outputs: []schedule.Output{{Size: size, Alias: -1}}, Cost: ns, Work: ns,
		})
	}
	layers := make([]schedule.Value, 6)
	for i := range layers {
		inputs := []schedule.Value{x}
		if i > 1 && rng.IntN(3) == 0 {
			inputs = append(inputs, layers[i-2])
		}
		x = call(int64(2+rng.IntN(8)), inputs...)
		layers[i] = x
	}
	gradient := call(3, x)
	for i := len(layers) - 1; i >= 0; i-- {
		next := call(3, gradient, layers[i])
		p.Release(gradient)
		p.Release(layers[i])
		gradient = next
	}
	p.Release(gradient)
	l, err := newLog(p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestNoPolicyBeatsTheBound compares all policies with the least possible time on small programs.
func TestNoPolicyBeatsTheBound(t *testing.T) {
	programs, least, below := 0, 0.0, 0.0
	added := map[string]float64{}
	for seed := range uint64(40) {
		l := smallNet(t, seed)
		budget := max(l.Bottleneck, l.Peak*6/10)
		bound, ok, err := l.Least(budget)
		if err != nil || !ok || bound < l.Baseline {
			t.Fatalf("seed %d: %v, %v, %v, want at least the baseline %v", seed, bound, ok, err, l.Baseline)
		}
		if relaxed := l.AtLeast(budget, 0); relaxed > bound || relaxed < l.Baseline {
			t.Errorf("seed %d: the relaxation gives %v, the least time is %v", seed, relaxed, bound)
		} else {
			below += float64(relaxed)/float64(l.Baseline) - 1
		}
		programs++
		least += float64(bound)/float64(l.Baseline) - 1
		check := func(name string, c Config) {
			c.Budget = budget
			r, err := l.Run(c)
			if err != nil || r.Completed && r.Time < bound {
				t.Errorf("seed %d: %s takes %v (%v), less than the bound %v", seed, name, r.Time, err, bound)
			}
			if !r.Completed {
				added[name]++ // twice the time
				return
			}
			added[name] += r.Ratio(l) - 1
		}
		for _, p := range Policies() {
			check(p.Name, Config{Policy: p.Name})
		}
		check("plan", Config{Plan: true})
	}
	t.Logf("%d programs add %.3f on average at least, by the relaxation %.3f", programs, least/float64(programs),
		below/float64(programs))
	if below < least/2 {
		t.Errorf("the relaxation is less than half of what %d programs add at least: %.3f of %.3f", programs, below, least)
	}
	for name, sum := range added {
		t.Logf("%s adds %.3f", name, sum/float64(programs))
	}
	if added["chain"] > 2*least || added["plan"] > 1.2*least || added["plan"] > added["chain"] {
		t.Errorf("the least that %d programs add is %.3f; chain adds %.3f, plans %.3f", programs, least, added["chain"],
			added["plan"])
	}
}

func TestLeast(t *testing.T) {
	// The first result is read again at the end: it must be dropped and made again, or the second, which is dearer.
	l := read(t, `{"remat":1}
{"constant":1}
{"call":"a","in":[0],"out":[{"size":10}],"ns":100}
{"call":"b","in":[0],"out":[{"size":10}],"ns":300}
{"call":"c","in":[2],"out":[{"size":10}],"ns":50}
{"release":3}
{"call":"d","in":[2,1],"ns":5}
`)
	for budget, want := range map[int64]int64{31: 455, 30: 555, 21: 555} {
		if got, ok, err := l.Least(budget); int64(got) != want || !ok || err != nil {
			t.Errorf("with %d bytes: %d, %v, %v, want %d", budget, got, ok, err, want)
		}
	}
	if _, ok, err := l.Least(20); ok || err != nil {
		t.Errorf("with 20 bytes: %v, %v, want that it cannot run", ok, err)
	}
	if _, _, err := sample(t, "unet").Least(1 << 40); err == nil {
		t.Error("a large program was searched")
	}
}

// A program that does not fit adds at least the time of the cheapest results that must make room.
func TestAtLeast(t *testing.T) {
	l := longLog(t, 20)
	if got := l.AtLeast(l.Peak, 0); got != l.Baseline {
		t.Errorf("with all the memory it is %v, want the baseline %v", got, l.Baseline)
	}
	// A linear layer takes 10,000 ns and a rectifier, from it, 300 ns. So the rectifiers go first, 19 of 20: one is read.
	for results, want := range map[int64]int64{1: 300, 5: 1500, 19: 5700, 20: 15_700} {
		if got := l.AtLeast(l.Peak-1000*results, 0) - l.Baseline; int64(got) > want || int64(got) < want*9/10-300 {
			t.Errorf("with %d results less it is %d ns more, want at most %d", results, got, want)
		}
	}
	for _, name := range []string{"unet", "graph"} {
		l := sample(t, name)
		bound := l.AtLeast(l.Peak/2, 0)
		for _, p := range Policies() {
			r, err := l.Run(Config{Budget: l.Peak / 2, Policy: p.Name, MaxTime: 2 * l.Baseline})
			if err != nil || r.Completed && r.Time < bound || bound < l.Baseline*104/100 {
				t.Errorf("%s: %s takes %v (%v), the bound is %v", name, p.Name, r.Time, err, bound)
			}
		}
	}
}

// A constant that is announced later takes no memory before.
func TestAtLeastWithALateConstant(t *testing.T) {
	l := read(t, `{"remat":1}
{"constant":1}
{"call":"a","in":[0],"out":[{"size":10}],"ns":100}
{"call":"b","in":[0],"out":[{"size":10}],"ns":300}
{"call":"c","in":[1,2],"ns":5}
{"release":1}
{"release":2}
{"constant":20}
`)
	if got := l.AtLeast(21, 0); got != l.Baseline {
		t.Errorf("it is %v, want the baseline %v", got, l.Baseline)
	}
}

// A link lowers the bound, and lets copies alone be bounded.
func TestAtLeastWithALink(t *testing.T) {
	l := sample(t, "unet")
	budget := l.Peak / 2
	without, slow, fast := l.AtLeast(budget, 0), l.AtLeast(budget, 25e9), l.AtLeast(budget, 1e13)
	if !(l.Baseline == fast && fast < slow && slow < without) {
		t.Errorf("the bound is %v without a link, %v with a slow one and %v with a fast one, the baseline %v", without, slow,
			fast, l.Baseline)
	}
	// While d runs, 10 bytes are on the host. They take 200 ns each way: 300 ns are before d, and 50 ns after it.
	l = read(t, `{"remat":1}
{"constant":1}
{"call":"a","in":[0],"out":[{"size":10}],"ns":100}
{"call":"b","in":[1],"out":[{"size":10}],"ns":100}
{"call":"c","in":[2],"out":[{"size":10}],"ns":100}
{"call":"d","in":[2,3],"ns":50}
{"release":2}
{"release":3}
{"call":"e","in":[1],"ns":50}
{"release":1}
`)
	for budget, want := range map[int64]time.Duration{31: 400, 21: 550} {
		if got := l.CopiesAtLeast(budget, 5e7); got != want {
			t.Errorf("with %d bytes copies take at least %d ns, want %d", budget, got, want)
		}
	}
	// To make a again takes 100 ns. A part of it is carried before that: the relaxation has parts.
	if got := l.AtLeast(21, 5e7) - l.Baseline; got > 100 || got < 30 {
		t.Errorf("with a link it is %d ns more, want at most 100 and at least 30", got)
	}
}
