package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// A model is an executor whose storages contain numbers. It checks everything that the engine tells it.
type model struct {
	t        *testing.T
	e        *Engine
	contents map[Storage]uint64
	used     int64
	budget   int64
	fail     func() error // of the next Compute, if set
	reclaim  func()       // called within Compute, if set
	noise    uint64
}

// A task is the work of an operation of a model.
type task struct {
	seed  uint64
	noise bool // the results differ each time
}

func (m *model) Compute(r *Run) (int64, error) {
	w := r.Work.(task)
	sum := w.seed
	for _, v := range r.Inputs {
		content, ok := m.contents[m.e.Storage(v)]
		if !ok || !m.e.Resident(v) {
			m.t.Fatalf("operation %d reads value %d, which is not resident", r.Op, v)
		}
		sum = sum*0x9e3779b97f4a7c15 + content
		sum ^= sum >> 29
	}
	if used := m.e.Stats().Used; m.budget > 0 && used > m.budget {
		m.t.Fatalf("%d bytes are in use, the budget is %d", used, m.budget)
	}
	if m.reclaim != nil {
		m.reclaim()
	}
	if m.fail != nil {
		if err := m.fail(); err != nil {
			return 0, err
		}
	}
	for i, s := range r.Storages {
		content := sum + uint64(i)
		if w.noise {
			m.noise++
			content += m.noise
		}
		old, resident := m.contents[s]
		switch {
		case !resident && r.Keep[i]:
			m.contents[s] = content
			m.used += m.e.storages[s].size
		case resident && !m.e.values[r.Outputs[i]].alias && old != content:
			m.t.Fatalf("operation %d made %x of storage %d, and %x before", r.Op, content, s, old)
		}
	}
	return 0, nil
}

func (m *model) Drop(s Storage) {
	if _, ok := m.contents[s]; !ok {
		m.t.Fatalf("storage %d is dropped and was not resident", s)
	}
	delete(m.contents, s)
	m.used -= m.e.storages[s].size
}

func (m *model) ForgetStorage(s Storage) {
	if _, ok := m.contents[s]; ok {
		m.t.Fatalf("storage %d is forgotten and was not dropped", s)
	}
}

func (m *model) ForgetOp(Op) {}

func newModel(t *testing.T, policy string, budget int64) (*model, *Engine) {
	p, err := NewPolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{t: t, contents: map[Storage]uint64{}, budget: budget}
	m.e = New(Config{Budget: budget, Policy: p}, m)
	return m, m.e
}

// constant makes a constant with known contents.
func (m *model) constant(size int64, content uint64) Value {
	v, err := m.e.Constant(size)
	if err != nil {
		m.t.Fatal(err)
	}
	m.contents[m.e.Storage(v)] = content
	m.used += size
	return v
}

// check compares what the engine counts with what the executor has.
func (m *model) check() {
	m.t.Helper()
	if s := m.e.Stats(); s.Used != m.used {
		m.t.Fatalf("the engine counts %d bytes, the executor has %d", s.Used, m.used)
	}
	for i := range m.e.storages {
		s := &m.e.storages[i]
		if len(s.values) == 0 {
			continue
		}
		wanted := int32(0)
		for _, v := range s.values {
			if !m.e.values[v].base {
				wanted += m.e.values[v].refs
			}
		}
		if s.wanted != wanted {
			m.t.Fatalf("storage %d: %d references are counted to values that are no bases, want %d", i, s.wanted, wanted)
		}
		if _, ok := m.contents[Storage(i)]; ok != s.resident {
			m.t.Fatalf("storage %d: resident is %v, the executor says %v", i, s.resident, ok)
		}
		if pooled := s.pooled != None; pooled != (s.resident && !s.fixed && s.locks == 0 && s.size > 0) {
			m.t.Fatalf("storage %d: in the pool is %v of %+v", i, pooled, *s)
		}
	}
}

// A randomProgram announces random operations to several engines at once.
type randomProgram struct {
	rng     *rand.Rand
	models  []*model
	live    [][]Value // values with a reference, for each engine
	refused int       // operations for which the first engine had no room
}

func (p *randomProgram) step(t *testing.T, at int) {
	n := len(p.live)
	if k := p.rng.IntN(10); k < 3 && n > 6 {
		i := p.rng.IntN(n)
		for j, m := range p.models {
			m.e.Release(p.live[i][j])
		}
		p.live = append(p.live[:i], p.live[i+1:]...)
		return
	}
	if p.rng.IntN(25) == 0 {
		p.overwrite(t, p.rng.IntN(n))
		return
	}
	inputs := make([]int, 1+p.rng.IntN(2))
	for i := range inputs {
		inputs[i] = n - 1 - min(p.rng.IntN(n), p.rng.IntN(n))
	}
	outputs := make([]Output, 1+p.rng.IntN(2))
	w := task{seed: uint64(at)}
	for i := range outputs {
		outputs[i] = Output{Size: int64(p.rng.IntN(6)), Alias: -1}
		if i == 0 && p.rng.IntN(5) == 0 {
			outputs[i] = Output{Alias: 0}
		}
	}
	p.call(t, inputs, Call{
		Name: "op", Outputs: outputs, Cost: int64(1 + p.rng.IntN(9)), Scratch: int64(p.rng.IntN(2)), Work: w,
	})
}

func (p *randomProgram) call(t *testing.T, inputs []int, c Call) {
	made := make([][]Value, len(c.Outputs))
	for j, m := range p.models {
		c.Inputs = nil
		for _, i := range inputs {
			c.Inputs = append(c.Inputs, p.live[i][j])
		}
		_, values, err := m.e.Call(c)
		if no := new(NoMemory); j == 0 && errors.As(err, &no) {
			m.check()
			p.refused++
			return
		}
		if err != nil {
			t.Fatalf("engine %d: %v", j, err)
		}
		for i, v := range values {
			made[i] = append(made[i], v)
		}
		m.check()
	}
	p.live = append(p.live, made...)
}

// overwrite settles what was made of a value, which is not read again.
func (p *randomProgram) overwrite(t *testing.T, of int) {
	for j, m := range p.models {
		err := m.e.Settle(p.live[of][j])
		if no := new(NoMemory); j == 0 && errors.As(err, &no) {
			p.refused++
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := p.models[0].e.Storage(p.live[of][0])
	kept := p.live[:0:0]
	for _, v := range p.live {
		if p.models[0].e.Storage(v[0]) != s {
			kept = append(kept, v)
			continue
		}
		for j, m := range p.models {
			m.e.Release(v[j])
		}
	}
	p.live = kept
}

// TestResultsAreEqualUnderABudget runs random programs with and without a budget: what is made again is the same.
func TestResultsAreEqualUnderABudget(t *testing.T) {
	for _, policy := range PolicyNames() {
		t.Run(policy, func(t *testing.T) {
			evicted, refused := int64(0), 0
			for seed := range uint64(60) {
				free, _ := newModel(t, policy, 0)
				tight, _ := newModel(t, policy, 60)
				p := &randomProgram{rng: rand.New(rand.NewPCG(seed, 1)), models: []*model{tight, free}}
				for i := range 4 {
					p.live = append(p.live, []Value{tight.constant(1, uint64(i)), free.constant(1, uint64(i))})
				}
				for at := range 120 {
					if tight.e.Stats().Fixed > 24 || len(p.live) > 60 {
						p.releaseAll(4)
					}
					p.step(t, at)
				}
				evicted += tight.e.Stats().Evictions
				refused += p.refused
				p.compare(t)
				p.releaseAll(0)
				for _, m := range p.models {
					if m.used != 0 || len(m.contents) != 0 {
						t.Fatalf("%d bytes are left after everything was released", m.used)
					}
				}
			}
			if evicted < 1000 || refused > 60*120/10 {
				t.Errorf("%d evictions and %d operations without room: want many and few", evicted, refused)
			}
		})
	}
}

func (p *randomProgram) releaseAll(but int) {
	for len(p.live) > but {
		v := p.live[len(p.live)-1]
		p.live = p.live[:len(p.live)-1]
		for j, m := range p.models {
			m.e.Release(v[j])
		}
	}
}

// compare reads all values on all engines.
func (p *randomProgram) compare(t *testing.T) {
	for i, v := range p.live {
		var want uint64
		for j, m := range p.models {
			err := m.e.Lock(v[j])
			if no := new(NoMemory); j == 0 && errors.As(err, &no) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got := m.contents[m.e.Storage(v[j])]
			if j == 0 {
				want = got
			} else if got != want {
				t.Fatalf("value %d is %x on engine %d, and %x on the first", i, got, j, want)
			}
			m.e.Unlock(v[j])
			m.check()
		}
	}
}

func TestWhatCannotFit(t *testing.T) {
	m, e := newModel(t, "dtr-eq", 10)
	in := m.constant(4, 1)
	_, _, err := e.Call(Call{Name: "large", Inputs: []Value{in}, Outputs: []Output{{Size: 7, Alias: -1}}, Work: task{}})
	var no *NoMemory
	if !errors.As(err, &no) || no.Need != 7 || no.Used != 4 || no.Budget != 10 {
		t.Fatalf("got %v, want NoMemory of 7 bytes beside 4", err)
	}
	m.check()
	if s := e.Stats(); s.Used != 4 {
		t.Errorf("%d bytes are in use after the error, want 4", s.Used)
	}
}

func TestErrorOfAnOperationChangesNothing(t *testing.T) {
	m, e := newModel(t, "dtr-eq", 10)
	in := m.constant(4, 1)
	broken := errors.New("broken")
	m.fail = func() error { return broken }
	call := Call{Name: "op", Inputs: []Value{in}, Outputs: []Output{{Size: 3, Alias: -1}}, Work: task{}}
	if _, _, err := e.Call(call); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	m.check()
	m.fail = nil
	if _, _, err := e.Call(call); err != nil {
		t.Fatal(err)
	}
	m.check()
}

func ExampleEngine() {
	// An executor allocates, computes and frees; this one prints.
	e := New(Config{Budget: 30}, printer{})
	x, _ := e.Constant(10)
	_, a, _ := e.Call(Call{Name: "a", Inputs: []Value{x}, Outputs: []Output{{Size: 10, Alias: -1}}, Cost: 5, Work: "a"})
	_, b, _ := e.Call(Call{Name: "b", Inputs: a, Outputs: []Output{{Size: 10, Alias: -1}}, Cost: 5, Work: "b"})
	_, c, _ := e.Call(Call{Name: "c", Inputs: b, Outputs: []Output{{Size: 10, Alias: -1}}, Cost: 5, Work: "c"})
	e.Release(c[0])
	_ = e.Lock(a[0])
	// Output:
	// compute a
	// compute b
	// drop
	// compute c
	// drop
	// compute a again
}

type printer struct{}

func (printer) Compute(r *Run) (int64, error) {
	again := ""
	if r.Again {
		again = " again"
	}
	fmt.Printf("compute %v%s\n", r.Work, again)
	return 0, nil
}
func (printer) Drop(Storage)          { fmt.Println("drop") }
func (printer) ForgetStorage(Storage) {}
func (printer) ForgetOp(Op)           {}
