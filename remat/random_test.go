package remat_test

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/remat"
	"github.com/ashlar-go/ashlar/tensor"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of the random programs")
	programs  = flag.Int("programs", 40, "how many random programs run on each device")
	steps     = flag.Int("steps", 100, "steps of each random program")
	faulty    = flag.Int("faulty", 2, "how many random programs run with each driver call failed in turn")
)

const side = 12 // of the square matrices of random programs: 576 bytes, a block of 1024

// A rig is a device for a runtime, whose live memory a counter below the runtime limits.
type rig struct {
	dev   *fault.Device
	sim   *sim.Device // nil on the host
	place *tensor.Place
	limit *meter
	alloc *caching.Allocator
	back  backend.Backend
}

// A meter is a limiter that knows the most bytes that were live at a time.
type meter struct {
	*layer.Limiter
	mu   sync.Mutex
	peak int64
}

const unlimited = 1 << 40

func (m *meter) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return m.AllocWith(s, size, mem.AllocOptions{})
}

func (m *meter) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := m.Limiter.AllocWith(s, size, o)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peak = max(m.peak, m.Live())
	return b, err
}

// inOrder are the options of a backend without libraries and threads.
var inOrder = compute.Options{Host: host.Options{Procs: 1, NoBLAS: true}}

// newRig opens a device: "sim", or a specification for driver.Open.
func newRig(t testing.TB, spec string, seed uint64) *rig {
	t.Helper()
	g := &rig{}
	var inner driver.Device
	var err error
	if spec == "sim" {
		g.sim = sim.New(sim.Options{Total: 64 << 20, Seed: seed, Completion: sim.AtRandom})
		inner = g.sim
	} else if inner, err = driver.Open(spec); err != nil {
		t.Fatal(err)
	}
	g.dev = fault.Wrap(inner)
	if g.alloc, err = caching.New(g.dev, caching.Default()); err != nil {
		t.Fatal(err)
	}
	if spec == "sim" || strings.HasPrefix(spec, "host") {
		g.back = host.New(g.dev, inOrder.Host)
	} else if g.back, err = compute.NewBackend(g.dev); err != nil {
		t.Fatal(err)
	}
	g.limit = &meter{Limiter: layer.NewLimiter(g.alloc, unlimited)}
	g.place = tensor.NewPlace(tensor.Config{Device: g.dev, Allocator: g.limit, Backend: g.back})
	return g
}

// close checks that everything was given back.
func (g *rig) close(t testing.TB) {
	t.Helper()
	if n := g.limit.Live(); n != 0 {
		t.Errorf("%d bytes are live after Close", n)
	}
	if err := g.place.Close(); err != nil {
		t.Error(err)
	}
	if g.sim != nil {
		for _, report := range g.sim.Reports() {
			t.Error(report)
		}
	}
	for _, err := range []error{g.back.Close(), g.alloc.Close(), g.dev.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

// A program runs the same random operations under a budget and, as plain tensors, without one.
type program struct {
	t    testing.TB
	rng  *rand.Rand
	rig  *rig
	r    *remat.Runtime
	seed uint64

	plain  *tensor.Scope // of the tensors without a budget
	own    *compute.Generator
	other  *compute.Generator // in the same state, for the plain tensors
	pairs  []pair
	held   []hold
	budget int64
	faults bool // operations may fail at any time
	// departs is true in a repetition whose second half is another program than that of the plan.
	departs bool
	denied  int   // operations without room
	remade  int64 // operations that were run again
	copied  int64 // bytes that were copied back from the host
	plans   int64 // repetitions that followed a plan
}

// A pair is a tensor of the program in both worlds.
type pair struct {
	under *remat.Tensor
	plain *tensor.Tensor
}

// A hold is a tensor that is locked over several steps.
type hold struct {
	pair
	locked *tensor.Tensor
}

func (p *program) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("seed %d: %v", p.seed, err)
	}
}

// An operation is a function that is made for each world, with that world's generator.
type operation struct {
	name   string
	f      func(g *compute.Generator) remat.Func
	writes []int
	random bool
	once   bool
}

// do runs an operation in both worlds, unless there is no room for it under the budget.
func (p *program) do(op operation, in ...int) {
	p.t.Helper()
	var handles []*remat.Tensor
	var plain []*tensor.Tensor
	for _, i := range in {
		handles = append(handles, p.pairs[i].under)
		plain = append(plain, p.pairs[i].plain)
	}
	o := remat.Op{Name: op.name, Func: op.f(p.own), Writes: op.writes, Once: op.once}
	if op.random {
		o.Random = []*compute.Generator{p.own}
	}
	before := p.own.Offset()
	out, err := p.r.Do(o, handles...)
	if err != nil {
		p.failed(op.name, err)
		p.own.SetOffset(before)
		return
	}
	want, err := op.f(p.other)(p.plain.Place, plain)
	p.must(err)
	if p.own.Offset() != p.other.Offset() {
		p.t.Fatalf("seed %d: %s: the generator is at %d, want %d", p.seed, op.name, p.own.Offset(), p.other.Offset())
	}
	for i, h := range out {
		p.pairs = append(p.pairs, pair{h, want[i]})
	}
}

// failed checks the error of an operation.
func (p *program) failed(name string, err error) {
	p.t.Helper()
	if !errors.Is(err, mem.ErrNoMemory) && !p.faults || errors.Is(err, errCalledAgain) {
		p.t.Fatalf("seed %d: %s: %v", p.seed, name, err)
	}
	p.denied++
}

// constant enters a new constant.
func (p *program) constant() {
	data := make([]float32, side*side)
	for i := range data {
		data[i] = p.rng.Float32()*2 - 1
	}
	at := p.r.Place()
	if p.rng.IntN(2) == 0 {
		at = p.rig.place // outside of the runtime's memory
	}
	x, err := tensor.FromSlice(at, data, side, side)
	if err != nil {
		p.failed("constant", err)
		return
	}
	h, err := p.r.Constant(x)
	x.Release()
	p.rig.limit.peak = p.rig.limit.Live() // memory outside of the runtime's was not in its budget
	if err != nil {
		p.failed("constant", err)
		return
	}
	p.pairs = append(p.pairs, pair{h, tensor.Must(tensor.FromSlice(p.plain.Place, data, side, side))})
}

// check compares a tensor of both worlds.
func (p *program) check(i int) {
	p.t.Helper()
	x, err := p.pairs[i].under.Lock()
	if err != nil {
		p.failed("Lock", err)
		return
	}
	defer p.pairs[i].under.Unlock()
	p.compare(x, p.pairs[i].plain)
}

// compare compares a locked tensor with that without a budget.
func (p *program) compare(x, plain *tensor.Tensor) {
	p.t.Helper()
	got, want := make([]byte, x.Size()), make([]byte, x.Size())
	if err := x.Read(got); err != nil {
		p.failed("Read", err)
		return
	}
	p.must(plain.Read(want))
	if !bytes.Equal(got, want) {
		p.t.Fatalf("seed %d: %s differs:\n%x\n%x", p.seed, x.Brief(), got, want)
	}
}

// hold locks a tensor over the next steps.
func (p *program) hold() {
	i := p.pick()
	x, err := p.pairs[i].under.Lock()
	if err != nil {
		p.failed("Lock", err)
		return
	}
	p.held = append(p.held, hold{p.pairs[i], x})
}

// letGo compares the tensors that are locked, and unlocks them.
func (p *program) letGo() {
	p.t.Helper()
	for _, h := range p.held {
		p.compare(h.locked, h.plain)
		h.under.Unlock()
	}
	p.held = p.held[:0]
}

// squeeze evicts tensors, or has the allocator run out of memory before the budget does, until the next squeeze.
func (p *program) squeeze() {
	size := p.rng.Int64N(p.budget)
	switch p.rng.IntN(3) {
	case 0:
		p.r.Evict(size)
	case 1:
		p.rig.limit.SetLimit(p.budget - size/2)
	default:
		p.rig.limit.SetLimit(unlimited)
	}
}

// doOnce runs a function that fails when it is called again.
func (p *program) doOnce() {
	f := func(*compute.Generator) remat.Func {
		called := false
		return func(at *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			if called {
				return nil, errCalledAgain
			}
			sum, err := compute.Add(at, in[0], in[1])
			called = err == nil
			return []*tensor.Tensor{sum}, err
		}
	}
	p.do(operation{name: "once", f: f, once: true}, p.pick(), p.pick())
}

var errCalledAgain = errors.New("a function that runs only once was called again")

// pick returns a random tensor of the program, the later ones more often.
func (p *program) pick() int {
	n := len(p.pairs)
	return n - 1 - int(float64(n)*p.rng.Float64()*p.rng.Float64())
}

func single(f func(p *tensor.Place, in []*tensor.Tensor) (*tensor.Tensor, error)) func(*compute.Generator) remat.Func {
	return func(*compute.Generator) remat.Func {
		return func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			x, err := f(p, in)
			return []*tensor.Tensor{x}, err
		}
	}
}

// step does something at random.
func (p *program) step() {
	p.t.Helper()
	switch k := p.rng.IntN(100); {
	case k < 4:
		p.constant()
	case k < 24:
		op := []backend.UnaryOp{backend.Tanh, backend.Neg, backend.Sigmoid, backend.Abs}[p.rng.IntN(4)]
		p.do(operation{name: op.String(), f: single(func(at *tensor.Place, in []*tensor.Tensor) (*tensor.Tensor, error) {
			return compute.Unary(at, op, in[0])
		})}, p.pick())
	case k < 44:
		op := []backend.BinaryOp{backend.Add, backend.Mul, backend.Maximum}[p.rng.IntN(3)]
		p.do(operation{name: op.String(), f: single(func(at *tensor.Place, in []*tensor.Tensor) (*tensor.Tensor, error) {
			return compute.Binary(at, op, in[0], in[1])
		})}, p.pick(), p.pick())
	case k < 52:
		p.do(operation{name: "matmul", f: single(func(at *tensor.Place, in []*tensor.Tensor) (*tensor.Tensor, error) {
			return compute.MatMul(at, in[0], in[1])
		})}, p.pick(), p.pick())
	case k < 58:
		p.do(operation{name: "random", random: true, f: random}, p.pick())
	case k < 62:
		p.do(operation{name: "sort", f: sorted}, p.pick())
	case k < 66:
		p.do(operation{name: "transpose", f: single(func(at *tensor.Place, in []*tensor.Tensor) (*tensor.Tensor, error) {
			return in[0].T(), nil // a view
		})}, p.pick())
	case k < 68:
		p.view()
	case k < 77:
		p.letGo()
		p.inPlace()
	case k < 78:
		p.doOnce()
	case k < 82:
		p.check(p.pick())
	case k < 84:
		p.squeeze()
	case k < 85 && len(p.held) < 2:
		p.hold()
	case k < 87:
		p.letGo()
	default:
		if len(p.pairs) > 4 {
			p.letGo()
			i := p.rng.IntN(len(p.pairs))
			p.pairs[i].under.Release()
			p.pairs = append(p.pairs[:i], p.pairs[i+1:]...)
		}
	}
}

// random adds noise twice, through a temporary tensor.
func random(g *compute.Generator) remat.Func {
	return func(at *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		noise, err := g.Normal(at, dtype.Float32, side, side)
		if err != nil {
			return nil, err
		}
		more, err := g.Uniform(at, dtype.Float32, side, side)
		if err != nil {
			return nil, err
		}
		sum, err := compute.Add(at, in[0], noise)
		if err != nil {
			return nil, err
		}
		out, err := compute.Mul(at, sum, more)
		return []*tensor.Tensor{out}, err
	}
}

// sorted returns two new storages, two views of one of them, and a view of the input.
func sorted(*compute.Generator) remat.Func {
	return func(at *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		values, indices, err := compute.Sort(at, in[0], 0, false)
		if err != nil {
			return nil, err
		}
		floats, err := indices.Cast(at, dtype.Float32)
		return []*tensor.Tensor{values, floats, values.T(), in[0].T()}, err
	}
}

// view makes a view outside of an operation.
func (p *program) view() {
	i := p.pick()
	h, err := p.r.View(p.pairs[i].under, (*tensor.Tensor).MT)
	if err != nil {
		p.failed("view", err)
		return
	}
	p.pairs = append(p.pairs, pair{h, tensor.Must(p.pairs[i].plain.MT())})
}

// inPlace changes a tensor in place, or a part of it. In the plain world its other views change with it.
func (p *program) inPlace() {
	part := p.rng.IntN(2) == 0
	f := func(*compute.Generator) remat.Func {
		return func(at *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			dst, src := in[0], in[1]
			if part {
				var err error
				if dst, err = dst.Narrow(0, 2, 5); err != nil {
					return nil, err
				}
				if src, err = src.Narrow(0, 4, 5); err != nil {
					return nil, err
				}
			}
			return nil, compute.BinaryInto(at, dst, backend.Sub, dst, src)
		}
	}
	p.do(operation{name: "inplace", f: f, writes: []int{0}}, p.pick(), p.pick())
}

// newProgram starts a program on a rig.
func newProgram(t testing.TB, g *rig, seed uint64) *program {
	rng := rand.New(rand.NewPCG(seed, 18))
	p := &program{
		t: t, rng: rng, rig: g, seed: seed,
		own: compute.NewGenerator(seed), other: compute.NewGenerator(seed),
		budget: int64(6+rng.IntN(20)) << 10,
	}
	config := remat.Config{Budget: p.budget, Policy: append(remat.Policies(), "")[rng.IntN(len(remat.Policies())+1)]}
	if rng.IntN(2) == 0 {
		config.Spill = remat.Spill{Limit: int64(rng.IntN(40)+1) << 10, Bandwidth: 1e9 * float64(1+rng.IntN(1000))}
	}
	r, err := remat.New(g.place, config)
	if err != nil {
		t.Fatal(err)
	}
	p.r = r
	spec := "host:total=64MiB"
	if g.place.Device().Info().Driver == "cuda" {
		spec = "cuda:0" // which rounds as it does
	}
	plain, err := inOrder.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	p.plain = plain.Scope()
	return p
}

// run runs the program and then compares all its tensors.
func (p *program) run(steps int) {
	p.t.Helper()
	p.start(steps)
	p.finish()
}

// start runs so many steps. Every second program repeats, some often enough for all modes of a step. The first times
// are checked at once.
func (p *program) start(steps int) {
	p.t.Helper()
	repetitions := p.seed % 2 * 3
	if p.seed%8 == 1 {
		repetitions = 9
	}
	for n := range repetitions {
		p.rng = rand.New(rand.NewPCG(p.seed, 19))
		p.departs = n > 2 && n == p.seed%repetitions
		p.must(p.r.Step(func() error { p.once(steps / 3); return nil }))
		p.r.WaitForPlan()
		for i := range p.pairs {
			p.check(i)
		}
		p.releaseAll()
	}
	p.once(steps)
}

// once runs so many steps once.
func (p *program) once(steps int) {
	p.t.Helper()
	for range 3 {
		p.constant()
	}
	for n := range steps {
		if len(p.pairs) == 0 {
			p.constant()
			continue
		}
		if p.departs && n == steps/2 {
			p.rng = rand.New(rand.NewPCG(p.seed, 20))
		}
		p.step()
		if peak := p.rig.limit.peak; peak > p.budget {
			p.t.Fatalf("seed %d: %d bytes were live, the budget is %d", p.seed, peak, p.budget)
		}
	}
	p.departs = false
	p.letGo()
}

// finish compares all tensors, which needs no luck any more, and releases them.
func (p *program) finish() {
	p.t.Helper()
	p.rig.dev.SetRules()
	p.rig.limit.SetLimit(unlimited)
	p.faults = false
	for i := range p.pairs {
		p.check(i)
	}
	s := p.r.Stats()
	p.remade, p.copied, p.plans = s.Remade, s.CopiedIn, s.Planned
	if s.Peak > p.budget || s.Used > p.budget {
		p.t.Errorf("seed %d: peak of %d bytes, %d used, the budget is %d", p.seed, s.Peak, s.Used, p.budget)
	}
	p.end()
}

func (p *program) releaseAll() {
	for _, h := range p.pairs {
		h.under.Release()
	}
	p.pairs = nil
}

func (p *program) end() {
	if p.seed%2 == 0 { // the others are released by Close
		p.releaseAll()
		if live := p.rig.limit.Live(); live > 0 {
			p.t.Errorf("seed %d: %d bytes are live after the last release", p.seed, live)
		}
	}
	p.must(p.r.Close())
	place := p.plain.Place
	p.plain.Close()
	p.must(place.Close())
}

// Random programs give the same results, bit for bit, under a budget, which is never exceeded.
func TestRandomPrograms(t *testing.T) {
	for _, spec := range devices {
		t.Run(spec, func(t *testing.T) { randomPrograms(t, spec, *programs) })
	}
}

var devices = []string{"sim", "host:total=64MiB"}

func randomPrograms(t *testing.T, spec string, n int) {
	t.Helper()
	denied, remade, copied, plans := 0, int64(0), int64(0), int64(0)
	for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
		g := newRig(t, spec, seed)
		p := newProgram(t, g, seed)
		p.run(*steps)
		denied, remade, copied, plans = denied+p.denied, remade+p.remade, copied+p.copied, plans+p.plans
		g.close(t)
	}
	t.Logf("%d programs: %d operations run again, %d bytes copied back, %d repetitions by plan, %d operations refused", n,
		remade, copied, plans, denied)
	if remade == 0 || copied == 0 || plans == 0 {
		t.Error("nothing was made again, copied back or planned")
	}
}

// Whatever driver call fails, what the program still has is right, and nothing is left behind.
func TestEachDriverCallFails(t *testing.T) {
	for _, spec := range devices {
		t.Run(spec, func(t *testing.T) {
			calls, failures := int64(0), 0
			for seed := *firstSeed; seed < *firstSeed+uint64(*faulty); seed++ {
				for n, more := int64(1), true; more; n++ {
					g := newRig(t, spec, seed)
					p := newProgram(t, g, seed)
					p.faults = true
					g.dev.SetRules(fault.Rule{Nth: n})
					p.start(20)
					more = g.dev.Failed() > 0
					p.finish()
					g.close(t)
					calls, failures = calls+1, failures+p.denied
				}
			}
			t.Logf("%d calls failed, %d operations with them", calls, failures)
		})
	}
}
