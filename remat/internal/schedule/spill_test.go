package schedule

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// A copyingModel is a model that copies to the host and back, and may fail to.
type copyingModel struct {
	*model
	host map[Storage]uint64
	rng  *rand.Rand // nil: no copy fails
}

var errCopy = errors.New("no copy")

func (m *copyingModel) CopyOut(s Storage) error {
	content, resident := m.contents[s]
	if _, again := m.host[s]; !resident || again {
		m.t.Fatalf("storage %d is copied out: resident is %v, copied before is %v", s, resident, again)
	}
	if m.rng != nil && m.rng.IntN(8) == 0 {
		return errCopy
	}
	m.host[s] = content
	return nil
}

func (m *copyingModel) CopyIn(s Storage) error {
	content, ok := m.host[s]
	if _, resident := m.contents[s]; resident || !ok {
		m.t.Fatalf("storage %d is copied in: resident is %v, on the host is %v", s, resident, ok)
	}
	m.contents[s] = content
	m.used += m.e.storages[s].size
	return nil
}

func (m *copyingModel) CopyDone(Storage) bool { return true }
func (m *copyingModel) Wait(Storage) error    { return nil }

func (m *copyingModel) DropHost(s Storage) {
	if _, ok := m.host[s]; !ok {
		m.t.Fatalf("storage %d has no copy to drop", s)
	}
	delete(m.host, s)
}

// Results are the same with copies to the host, whose memory has its limit and is given back.
func TestResultsAreEqualWithCopies(t *testing.T) {
	copied, remade := int64(0), int64(0)
	const limit = 40
	for seed := range uint64(200) {
		tight, _ := newModel(t, "dtr-eq", 60)
		c := &copyingModel{tight, map[Storage]uint64{}, rand.New(rand.NewPCG(seed, 2))}
		c.e = New(Config{
			Budget: 60, Policy: Default(), HostLimit: limit, Link: Link{BytesPerSecond: 1e9 / float64(1+seed%5), LatencyNs: 1},
		}, c)
		free, _ := newModel(t, "dtr-eq", 0)
		p := &randomProgram{rng: rand.New(rand.NewPCG(seed, 3)), models: []*model{tight, free}}
		for i := range 4 {
			p.live = append(p.live, []Value{tight.constant(1, uint64(i)), free.constant(1, uint64(i))})
		}
		for at := range 120 {
			if tight.e.Stats().Fixed > 24 || len(p.live) > 60 {
				p.releaseAll(4)
			}
			p.step(t, at)
		}
		p.compare(t)
		s := tight.e.Stats()
		if copied, remade = copied+s.CopiedIn, remade+s.Recomputes; s.HostPeak > limit {
			t.Fatalf("%d bytes were on the host, the limit is %d", s.HostPeak, limit)
		}
		p.releaseAll(0)
		if tight.used != 0 || len(c.host) != 0 || tight.e.Stats().Host != 0 {
			t.Fatalf("%d bytes and %d copies are left after everything was released", tight.used, len(c.host))
		}
	}
	if copied < 1000 || remade < 1000 {
		t.Errorf("%d bytes were copied back and %d operations run again: want many", copied, remade)
	}
}

// chain runs n operations of a cost and a size, and then reads their results backwards.
func chain(t *testing.T, n int, cost, size int64, c Config) Stats {
	t.Helper()
	e := New(c, printless{})
	x, err := e.Constant(1)
	if err != nil {
		t.Fatal(err)
	}
	values := []Value{x}
	for range n {
		out := []Output{{Size: size, Alias: -1}}
		_, v, err := e.Call(Call{Name: "f", Inputs: values[len(values)-1:], Outputs: out, Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, v[0])
	}
	for i := n; i > 0; i-- {
		_, _, err := e.Call(Call{Name: "b", Inputs: []Value{values[i]}, Cost: 2 * cost})
		if err != nil {
			t.Fatal(err)
		}
		e.Release(values[i])
	}
	return e.Stats()
}

type printless struct{}

func (printless) Compute(*Run) (int64, error) { return 0, nil }
func (printless) Drop(Storage)                {}
func (printless) ForgetStorage(Storage)       {}
func (printless) ForgetOp(Op)                 {}

// A link that keeps up with the computation hides the copies: what is read last is copied out ahead of need, and back
// ahead of need. A slow link is used less, and is never worse than none.
func TestCopiesAreHidden(t *testing.T) {
	const n, cost, size = 400, 1000, 1000
	baseline := int64(3 * n * cost)
	budget := int64(n * size / 2)
	without := chain(t, n, cost, size, Config{Budget: budget})
	fast := chain(t, n, cost, size, Config{Budget: budget, Link: Link{BytesPerSecond: 2e9}})
	slow := chain(t, n, cost, size, Config{Budget: budget, Link: Link{BytesPerSecond: 1e8}})
	extra := func(s Stats) int64 { return s.ComputeNs + s.StallNs - baseline }
	t.Logf("extra time: %d without a link, %d with a fast one, %d with a slow one", extra(without), extra(fast),
		extra(slow))
	if extra(fast) > baseline/50 {
		t.Errorf("a fast link costs %d ns beside %d", extra(fast), baseline)
	}
	if extra(slow) > extra(without) {
		t.Errorf("a slow link costs %d ns, none costs %d", extra(slow), extra(without))
	}
}

// A plan copies results to the host before the peak and back before they are read. Copies that fail cost time, but not
// the results.
func TestPlannedCopies(t *testing.T) {
	const n, cost, size = 100, 1_000_000, 1000
	p := &Program{}
	layers := []Value{p.Constant(1)}
	call := func(seed uint64, inputs ...Value) Value {
		return p.Call(Call{
			Name: "f", Inputs: inputs, Outputs: []Output{{Size: size, Alias: -1}}, Cost: cost, Work: task{seed: seed},
		})
	}
	for i := range n {
		layers = append(layers, call(uint64(i), layers[i]))
	}
	gradient := call(n, layers[n])
	for i := n; i > 0; i-- {
		next := call(uint64(n+i), gradient, layers[i])
		p.Release(gradient)
		p.Release(layers[i])
		gradient = next
	}
	budget := int64(n * size / 2)
	plan := MakePlan(p, PlanConfig{Budget: budget, Link: Link{BytesPerSecond: 1e6}, Effort: 100_000})
	for _, failing := range []bool{false, true} {
		tight, _ := newModel(t, "dtr-eq", budget)
		c := &copyingModel{tight, map[Storage]uint64{}, rand.New(rand.NewPCG(1, 1))}
		if !failing {
			c.rng = nil
		}
		c.e = New(Config{Budget: budget, Link: Link{BytesPerSecond: 1e6}}, c)
		tight.contents[0], tight.used = 1, 1 // the constant of the program
		c.e.Follow(plan)
		if err := p.Run(c.e); err != nil {
			t.Fatal(err)
		}
		s := c.e.Stats()
		extra := s.ComputeNs + s.StallNs - (2*n+1)*cost
		if s.CopiedIn < n*size/4 || !failing && extra > 3*cost || extra > 20*cost {
			t.Errorf("failing copies are %v: %d bytes are copied back and %d ns are added", failing, s.CopiedIn, extra)
		}
	}
}
