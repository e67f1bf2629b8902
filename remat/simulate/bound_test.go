package simulate

import (
	"math/rand/v2"
	"testing"

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
	programs, least := 0, 0.0
	added := map[string]float64{}
	for seed := range uint64(40) {
		l := smallNet(t, seed)
		budget := max(l.Bottleneck, l.Peak*6/10)
		bound, ok, err := l.Least(budget)
		if err != nil || !ok || bound < l.Baseline {
			t.Fatalf("seed %d: %v, %v, %v, want at least the baseline %v", seed, bound, ok, err, l.Baseline)
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
		check("plan", Config{Plan: true, Effort: 3000})
	}
	t.Logf("%d programs add %.3f on average at least", programs, least/float64(programs))
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
