package planned_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// A trainer makes the requests of a network in training, on one stream.
type trainer struct {
	t                testing.TB
	a                mem.Allocator
	s                driver.Stream
	rng              *rand.Rand
	rate             int // one departure in so many requests; 0: none
	departs          int // the request after so many departs; 0: none
	weights, moments []mem.Block
	loss             mem.Block // of the last step
	live, top        int64     // requested bytes
	asked            map[driver.Pointer]int64
}

const layers = 24

func newTrainer(t testing.TB, a mem.Allocator, s driver.Stream) *trainer {
	n := &trainer{t: t, a: a, s: s, asked: map[driver.Pointer]int64{}, rng: rand.New(rand.NewPCG(1, 2))}
	for i := range int64(layers) {
		n.weights = append(n.weights, n.alloc(30<<20+i*1000), n.alloc(3000))
	}
	return n
}

func (n *trainer) alloc(size int64) mem.Block {
	if n.departs--; n.departs == 0 || n.rate > 0 && n.rng.IntN(n.rate) == 0 {
		size += 1 + n.rng.Int64N(size)
	}
	b, err := n.a.Alloc(n.s, size)
	testkit.Must(n.t, err)
	n.asked[b.Ptr] = size
	n.live += size
	n.top = max(n.top, n.live)
	return b
}

func (n *trainer) free(blocks ...mem.Block) {
	for _, b := range blocks {
		n.live -= n.asked[b.Ptr]
		delete(n.asked, b.Ptr)
		n.a.Free(b)
	}
}

// step makes the requests of a step with batches of so many rows.
func (n *trainer) step(rows int64) {
	batch := n.alloc(rows * 8)
	var kept []mem.Block
	for i := range int64(layers) {
		kept = append(kept, n.alloc(rows*(400_000+i*30_000)))
		scratch := n.alloc(rows * 900_000)
		kept = append(kept, n.alloc(rows*100_000))
		n.free(scratch)
	}
	loss := n.alloc(4)
	n.free(n.loss)
	n.loss = loss
	var gradients []mem.Block
	for i := layers - 1; i >= 0; i-- {
		delta := n.alloc(rows * 400_000)
		gradients = append(gradients, n.alloc(30<<20+int64(i)*1000))
		n.free(kept[2*i+1], kept[2*i], delta)
	}
	n.free(batch)
	for i := range layers {
		if len(n.moments) < layers {
			n.moments = append(n.moments, n.alloc(60<<20+int64(i)*2000))
		}
		n.free(n.alloc(30<<20 + int64(i)*1000))
	}
	n.free(gradients...)
}

func (n *trainer) end() {
	n.free(append(append([]mem.Block{n.loss}, n.weights...), n.moments...)...)
}

// A learned is a Learner on a simulated GPU of 140 GiB.
type learned struct {
	*planned.Learner
	t     testing.TB
	dev   *sim.Device
	below *paged.Allocator
}

func newLearned(t testing.TB, cfg paged.Config, o planned.LearnOptions) *learned {
	t.Helper()
	dev := sim.New(sim.Options{Total: 140 << 30, Unchecked: true})
	if cfg.Page == 0 {
		cfg.Page = dev.Info().Granularity
	}
	below, err := paged.New(dev, cfg)
	testkit.Must(t, err)
	l, err := planned.NewLearner(dev, below, o)
	testkit.Must(t, err)
	t.Cleanup(func() {
		testkit.Must(t, below.Check())
		testkit.Must(t, l.Close())
		testkit.Must(t, dev.Close())
	})
	return &learned{l, t, dev, below}
}

// reserved checks that the reserved memory is at most 1.002 of the requested peak.
func (l *learned) reserved(n *trainer) {
	l.t.Helper()
	over := float64(l.below.PageStats().Reserved) / float64(n.top)
	l.t.Logf("%d MiB requested, %.5f of it reserved; %+v", n.top>>20, over, l.Learned())
	if over > 1.002 {
		l.t.Errorf("%.5f of the requested peak is reserved, want at most 1.002", over)
	}
}

// calls returns the number of driver calls of do.
func (l *learned) calls(do func()) int64 {
	before := l.dev.Calls()
	do()
	after := l.dev.Calls()
	return after.Total().Count - before.Total().Count
}

// After its third repetition, a step needs no more memory than it requests, and no driver calls.
func TestALearnerPlansAStepThatRepeats(t *testing.T) {
	l := newLearned(t, paged.Config{}, planned.LearnOptions{})
	n := newTrainer(t, l, l.dev.DefaultStream())
	for range 5 { // the first one makes the moments
		n.step(300)
	}
	l.reserved(n)
	before := l.Learned()
	if calls := l.calls(func() { n.step(300) }); calls != 0 {
		t.Errorf("a planned step makes %d driver calls, want none", calls)
	}
	if after := l.Learned(); after.Departed != before.Departed || after.Steps != 1 {
		t.Errorf("%+v, then %+v: want no departures from a plan of one step", before, after)
	}
	n.end()
}

func TestALearnerPlansShapesInAnyOrder(t *testing.T) {
	l := newLearned(t, paged.Config{}, planned.LearnOptions{})
	n := newTrainer(t, l, l.dev.DefaultStream())
	rows := []int64{100, 130, 170, 200, 220, 250, 280, 300}
	for range 100 {
		n.step(rows[n.rng.IntN(len(rows))])
	}
	l.reserved(n)
	before := l.Learned()
	calls := l.calls(func() {
		for range 50 {
			n.step(rows[n.rng.IntN(len(rows))])
		}
	})
	if after := l.Learned(); calls != 0 || after.Departed != before.Departed || after.Steps < len(rows) {
		t.Errorf("%d driver calls; %+v, then %+v: want none, and no departures", calls, before, after)
	}
	n.end()
}

// Departures of one in 1,000 requests, from the beginning, are served, and what follows them is planned.
func TestALearnerServesDepartures(t *testing.T) {
	l := newLearned(t, paged.Config{}, planned.LearnOptions{})
	n := newTrainer(t, l, l.dev.DefaultStream())
	n.rate = 1000
	for range 20 {
		n.step(300)
	}
	before := l.Learned()
	for range 100 {
		n.step(300)
	}
	after := l.Learned()
	departed, planned := after.Departed-before.Departed, after.Planned-before.Planned
	t.Logf("%d planned, %d departed, %.5f reserved", planned, departed,
		float64(l.below.PageStats().Reserved)/float64(n.top))
	if departed == 0 || departed > planned/200 {
		t.Errorf("%d requests departed, %d were planned: want some, and at most one in 200", departed, planned)
	}
	n.end()
}

// Steps of several shapes are planned although no two of them are equal: one request in each is of another size.
func TestALearnerPlansStepsThatAreNearlyEqual(t *testing.T) {
	l := newLearned(t, paged.Config{}, planned.LearnOptions{})
	n := newTrainer(t, l, l.dev.DefaultStream())
	rows := []int64{100, 170, 220, 300}
	train := func(steps int) planned.Learned {
		for i := range steps {
			n.departs = 10 + n.rng.IntN(100)
			n.step(rows[i%len(rows)])
		}
		return l.Learned()
	}
	before := train(24)
	after := train(40)
	departed, planned := after.Departed-before.Departed, after.Planned-before.Planned
	if planned < 40*140 || departed > 40*3 {
		t.Errorf("%d requests departed, %d were planned: want two or three in a step, and the others", departed, planned)
	}
	n.end()
}

// A program whose steps never repeat is served as without a plan.
func TestALearnerWithoutRepetition(t *testing.T) {
	l := newLearned(t, paged.Config{}, planned.LearnOptions{})
	n := newTrainer(t, l, l.dev.DefaultStream())
	for i := range int64(10) {
		n.step(200 + i)
	}
	if c := l.Learned(); c != (planned.Learned{}) {
		t.Errorf("%+v: want no plan", c)
	}
	if l.Plan() != nil {
		t.Error("there is a plan to save")
	}
	const weight = 30 << 20
	without, err := l.below.Alloc(n.s, weight)
	testkit.Must(t, err)
	l.below.Free(without)
	with := n.alloc(weight)
	testkit.Equal(t, "the address of one more block", with.Ptr, without.Ptr)
	n.free(with)
	n.end()
}

// The next run begins with the plan of the last one, from a file.
func TestASavedPlanIsUsedFromTheFirstStep(t *testing.T) {
	first := newLearned(t, paged.Config{}, planned.LearnOptions{})
	n := newTrainer(t, first, first.dev.DefaultStream())
	for range 6 {
		n.step(300)
		n.step(200)
	}
	text := written(t, first.Plan())
	n.end()
	saved, err := planned.Read(bytes.NewReader(text))
	testkit.Must(t, err)
	l := newLearned(t, paged.Config{}, planned.LearnOptions{Plan: saved})
	n = newTrainer(t, l, l.dev.DefaultStream())
	n.step(200)
	n.step(300)
	l.reserved(n)
	if c := l.Learned(); c.Plans != 1 || c.Departed > 3*layers+1 { // weights and moments are outside the steps
		t.Errorf("%+v: want the steps to be as in the saved plan", c)
	}
	n.end()
}

// Followed gets each plan once, when steps have followed it, and a run that begins with that plan follows it.
func TestALearnerReportsPlansThatAreFollowed(t *testing.T) {
	plans := make(chan *planned.Plan, 100)
	l := newLearned(t, paged.Config{}, planned.LearnOptions{Followed: func(p *planned.Plan) { plans <- p }})
	n := newTrainer(t, l, l.dev.DefaultStream())
	for range 50 {
		n.step(300)
	}
	n.end()
	testkit.Must(t, l.Close()) // waits for the reports
	close(plans)
	var last *planned.Plan
	reported := 0
	for p := range plans {
		last = p
		reported++
	}
	if made := l.Learned().Plans; reported == 0 || int64(reported) > made {
		t.Fatalf("%d plans are reported, and %d were made", reported, made)
	}
	next := newLearned(t, paged.Config{}, planned.LearnOptions{Plan: last})
	n = newTrainer(t, next, next.dev.DefaultStream())
	n.step(300)
	n.step(300)
	if c := next.Learned(); c.Departed > 0 || c.Placed < 200 || c.Placed < c.Planned*9/10 {
		t.Errorf("with the plan: %+v", c)
	}
	n.end()
}

// A plan of a recording, made offline, serves its weights too.
func TestAPlanOfARecordingIsUsed(t *testing.T) {
	made := plan(t, training(steps(6, 2, 5)), planned.Options{})
	l := newLearned(t, paged.Config{}, planned.LearnOptions{Plan: made})
	s := l.dev.DefaultStream()
	var blocks []mem.Block
	for _, slot := range made.Streams[0].Slots[:20] {
		b, err := l.Alloc(s, slot.Size)
		testkit.Must(t, err)
		blocks = append(blocks, b)
	}
	if c := l.Learned(); c.Planned != 20 {
		t.Errorf("%+v: want all 20 requests planned", c)
	}
	for _, b := range blocks {
		l.Free(b)
	}
}

func TestALearnerRefusesPlansThatItCannotFollow(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	below, err := paged.New(dev, paged.Config{})
	testkit.Must(t, err)
	for name, p := range map[string]*planned.Plan{
		"room":    {Room: 10, Streams: broad(t).Streams},
		"apart":   {Streams: make([]planned.StreamPlan, 2)},
		"invalid": {Streams: []planned.StreamPlan{{Size: -1}}},
	} {
		if _, err := planned.NewLearner(dev, below, planned.LearnOptions{Plan: p}); err == nil {
			t.Errorf("a plan with %s is no error", name)
		}
	}
	testkit.Must(t, below.Close())
	testkit.Must(t, dev.Close())
}

// A plan to which steps were added is valid, so that the next run can read it.
func TestAPlanOfARecordingAndOfStepsIsValid(t *testing.T) {
	made := plan(t, training(steps(6, 2, 5)), planned.Options{})
	l := newLearned(t, paged.Config{}, planned.LearnOptions{Plan: made})
	n := newTrainer(t, l, l.dev.DefaultStream())
	for range 6 {
		n.step(300)
	}
	if c := l.Learned(); c.Plans < 2 {
		t.Errorf("%+v: want the steps added to the plan", c)
	}
	testkit.Must(t, l.Plan().Check())
	n.end()
}

// A saved plan stays valid while a step is recorded in which a block lives longer than in the plan.
func TestAPlanIsValidAfterABlockLivesLonger(t *testing.T) {
	step := func(l *learned, last int64) {
		var kept mem.Block
		for i := range int64(12) {
			b, err := l.Alloc(l.dev.DefaultStream(), (10+i)<<20)
			testkit.Must(t, err)
			if i == last {
				kept = b
			} else {
				l.Free(b)
			}
			if p := l.Plan(); p != nil {
				testkit.Must(t, p.Check())
			}
		}
		l.Free(kept)
	}
	first := newLearned(t, paged.Config{}, planned.LearnOptions{})
	for range 4 {
		step(first, 11)
	}
	l := newLearned(t, paged.Config{}, planned.LearnOptions{Plan: first.Plan()})
	for range 3 {
		step(l, 0)
	}
}

// Memory of requests with a key, which are not planned, does not hide where steps end.
func TestALearnerPlansStepsWithRequestsThatAreNotPlanned(t *testing.T) {
	l := newLearned(t, paged.Config{}, planned.LearnOptions{})
	n := newTrainer(t, l, l.dev.DefaultStream())
	for range 8 {
		b, err := l.AllocWith(n.s, 20<<20, mem.AllocOptions{Key: "a"})
		testkit.Must(t, err)
		n.step(300)
		l.Free(b)
	}
	if c := l.Learned(); c.Steps == 0 {
		t.Errorf("%+v: want the steps planned", c)
	}
	n.end()
}

// An observer of the placer may ask for the figures at each event, also for those of Close.
func TestObserversAskALearner(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	below, err := paged.New(dev, paged.Config{})
	testkit.Must(t, err)
	l, err := planned.NewLearner(dev, below, planned.LearnOptions{})
	testkit.Must(t, err)
	var last mem.Action
	below.Observe(func(e mem.Event) {
		last = e.Action
		l.Learned()
	})
	b, err := l.Alloc(dev.DefaultStream(), 1<<20)
	testkit.Must(t, err)
	l.Free(b)
	last = mem.ActionAlloc
	testkit.Must(t, l.Close())
	if last == mem.ActionAlloc {
		t.Error("Close had no events")
	}
	testkit.Must(t, dev.Close())
}

// If memory is short, a Learner needs no more than paged memory alone.
func TestALearnerUnderALimit(t *testing.T) {
	run := func(a mem.Allocator, s driver.Stream) *trainer {
		n := newTrainer(t, a, s)
		for i := range int64(12) {
			n.step(200 + 50*(i%3))
		}
		return n
	}
	free := newLearned(t, paged.Config{}, planned.LearnOptions{})
	n := run(free, free.dev.DefaultStream())
	peak := n.top
	n.end()
	l := newLearned(t, paged.Config{Limit: peak + peak/250}, planned.LearnOptions{})
	run(l, l.dev.DefaultStream()).end()
}

// In programs of steps with departures, on several streams, no two blocks overlap, and no work on a block races with
// other work on its memory.
func TestHistoriesOfALearner(t *testing.T) {
	seed := testkit.FreshSeed()
	var all planned.Learned
	for i := range *histories {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		if !t.Run("", func(t *testing.T) {
			dev := drivertest.OpenSim(t, 256<<20)
			below, err := paged.New(dev, paged.Config{})
			testkit.Must(t, err)
			l, err := planned.NewLearner(dev, below, planned.LearnOptions{Background: rng.IntN(2) == 0})
			testkit.Must(t, err)
			r := &rider{t: t, rng: rng, a: l, rate: []int{0, 0, 50, 1000}[rng.IntN(4)]}
			for range 1 + rng.IntN(3) {
				r.streams = append(r.streams, drivertest.NewStream(t, dev))
			}
			var shapes []shape
			for range 1 + rng.IntN(4) {
				shapes = append(shapes, newShape(rng, 5+rng.IntN(60)))
			}
			left := make([][]mem.Block, len(r.streams))
			for range 40 {
				which := rng.IntN(len(shapes))
				for s := range r.streams {
					left[s] = r.step(s, &shapes[which], left[s])
				}
				if rng.IntN(100) == 0 {
					testkit.Must(t, below.EmptyCache())
				}
				testkit.Must(t, below.Check())
			}
			for len(r.live) > 0 {
				r.free(r.live[rng.IntN(len(r.live))].Block)
			}
			c := l.Learned()
			all.Plans, all.Planned, all.Placed = all.Plans+c.Plans, all.Planned+c.Planned, all.Placed+c.Placed
			all.Departed += c.Departed
			testkit.Must(t, l.Close())
			testkit.Must(t, dev.Close())
		}) {
			t.Fatalf("seed %#x, history %d", seed, i)
		}
	}
	t.Logf("%+v", all)
	if all.Placed == 0 || all.Departed == 0 {
		t.Errorf("%+v: want blocks at planned addresses, and departures", all)
	}
}

// Goroutines that share a Learner get blocks of their own.
func TestALearnerIsSafeForConcurrentUse(t *testing.T) {
	l := newLearned(t, paged.Config{}, planned.LearnOptions{Background: true})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			n := newTrainer(t, l, l.dev.DefaultStream())
			for range 10 {
				n.step(100)
				l.Learned()
				l.Plan()
			}
			n.end()
		})
	}
	wg.Wait()
	testkit.Must(t, l.below.Check())
}

func TestConformanceOfALearner(t *testing.T) {
	memtest.RunAll(t, memtest.Config{
		Sim: sim.Options{Granularity: 1 << 20}, Waits: true, Alignment: 512, Ops: 500, Seeds: 2, FaultOps: 30,
	}, func(dev driver.Device, o planned.LearnOptions) (*planned.Learner, error) {
		below, err := paged.New(dev, paged.Config{})
		if err != nil {
			return nil, err
		}
		return planned.NewLearner(dev, below, o)
	}, map[string]planned.LearnOptions{"waiting": {}, "background": {Background: true}})
}

// A trimCounter counts how often unused memory is freed.
type trimCounter struct {
	*paged.Allocator
	trims int
}

func (c *trimCounter) EmptyCache() error {
	c.trims++
	return c.Allocator.EmptyCache()
}

// Once the steps are as planned, unused memory is freed once, and again after a departure: it would be needed soon.
func TestLearnerFreesUnusedMemorySeldom(t *testing.T) {
	dev := sim.New(sim.Options{Total: 140 << 30, Unchecked: true})
	below, err := paged.New(dev, paged.Config{Page: dev.Info().Granularity})
	testkit.Must(t, err)
	c := &trimCounter{Allocator: below}
	l, err := planned.NewLearner(dev, c, planned.LearnOptions{})
	testkit.Must(t, err)
	n := newTrainer(t, l, dev.DefaultStream())
	steps := func(times int) int {
		before := c.trims
		for range times {
			n.step(40)
		}
		return c.trims - before
	}
	testkit.Equal(t, "at the start", steps(8), 1)
	testkit.Equal(t, "as planned", steps(60), 0)
	n.departs = 20
	testkit.Equal(t, "in a step with a departure", steps(1), 0)
	testkit.Equal(t, "after a departure", steps(60), 1)
	n.end()
	testkit.Must(t, l.Close())
	testkit.Must(t, dev.Close())
}

// A narrowPlacer has fewer addresses than its allocator.
type narrowPlacer struct {
	*paged.Allocator
	size int64
}

func (p narrowPlacer) Places() (driver.Pointer, int64, error) {
	base, _, err := p.Allocator.Places()
	return base, p.size, err
}

// A plan is followed if it fits into the addresses of the placer to the byte, and not if one is missing.
func TestLearnerNeedsAddresses(t *testing.T) {
	size := int64(1 << 40)
	for _, short := range []int64{0, 0, 1} {
		dev := sim.New(sim.Options{Total: 140 << 30, Unchecked: true})
		below, err := paged.New(dev, paged.Config{Page: dev.Info().Granularity})
		testkit.Must(t, err)
		l, err := planned.NewLearner(dev, narrowPlacer{below, size - short}, planned.LearnOptions{})
		testkit.Must(t, err)
		n := newTrainer(t, l, dev.DefaultStream())
		for range 4 {
			n.step(40)
		}
		if fits := l.Learned().Placed > 0; fits != (short == 0) {
			t.Errorf("%d bytes fewer than the plan has: planned addresses were used: %v", short, fits)
		}
		if short == 0 {
			size = l.Plan().Streams[0].Size
		}
		n.end()
		testkit.Must(t, l.Close())
		testkit.Must(t, dev.Close())
	}
}
