package planned_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/trace"
)

var histories = flag.Int("histories", 60, "random histories with departures")

// A shape describes a step: its requests in order, and the blocks that are freed before each request.
type shape struct {
	sizes []int64
	frees [][]int // before each request, and at the end: by request; the others are left to the next step
}

func newShape(rng *rand.Rand, n int) shape {
	s := shape{sizes: make([]int64, n), frees: make([][]int, n+1)}
	scale := int64(1 + rng.IntN(8))
	for i := range s.sizes {
		if s.sizes[i] = 700; rng.IntN(3) > 0 {
			s.sizes[i] = scale * int64(1+i%7) * 1111
		}
		if rng.IntN(20) > 0 {
			end := min(n, i+1+rng.IntN(1+rng.IntN(n)))
			s.frees[end] = append(s.frees[end], i)
		}
	}
	return s
}

// A rider makes the requests of steps, with work on every block, on a device that detects races.
type rider struct {
	t       testing.TB
	rng     *rand.Rand
	a       mem.Allocator
	streams []driver.Stream
	live    []ridden // by address
	rate    int      // one departure in so many; 0: none
	silent  bool     // no work
}

type ridden struct {
	mem.Block
	stream int
	used   []driver.Stream
}

// alloc allocates a block and writes it, sometimes on another stream too.
func (r *rider) alloc(stream int, size int64) mem.Block {
	b, err := r.a.Alloc(r.streams[stream], size)
	testkit.Must(r.t, err)
	i, found := slices.BinarySearchFunc(r.live, b.Ptr, func(x ridden, p driver.Pointer) int { return int(x.Ptr) - int(p) })
	if found || i > 0 && r.live[i-1].Ptr+driver.Pointer(r.live[i-1].Size) > b.Ptr || i < len(r.live) && b.Ptr+driver.Pointer(b.Size) > r.live[i].Ptr {
		r.t.Fatalf("%+v overlaps a live block", b)
	}
	if b.Size < size {
		r.t.Fatalf("%+v for %d bytes", b, size)
	}
	if !r.silent {
		testkit.Must(r.t, r.streams[stream].Fill(b.Ptr, byte(size), b.Size))
	}
	x := ridden{Block: b, stream: stream}
	if r.depart() {
		m, err := r.streams[stream].Mark()
		testkit.Must(r.t, err)
		other := r.streams[(stream+1)%len(r.streams)]
		testkit.Must(r.t, other.WaitFor(r.streams[stream], m))
		testkit.Must(r.t, other.Fill(b.Ptr, byte(size), b.Size))
		x.used = []driver.Stream{other}
	}
	r.live = slices.Insert(r.live, i, x)
	return b
}

func (r *rider) free(b mem.Block) {
	i := slices.IndexFunc(r.live, func(x ridden) bool { return x.Block == b })
	if i < 0 {
		return // freed as a departure
	}
	x := r.live[i]
	r.live = slices.Delete(r.live, i, i+1)
	r.a.Free(b, x.used...)
}

func (r *rider) depart() bool { return r.rate > 0 && r.rng.IntN(r.rate) == 0 }

// step makes a step's requests on a stream, and returns the blocks that it leaves live.
func (r *rider) step(stream int, s *shape, before []mem.Block) (left []mem.Block) {
	blocks := make([]mem.Block, len(s.sizes))
	for i := range len(s.sizes) + 1 {
		if i == len(s.sizes)/2 {
			for _, b := range before {
				r.free(b)
			}
		}
		for _, k := range s.frees[i] {
			if r.depart() {
				left = append(left, blocks[k]) // freed late
			} else if blocks[k] != (mem.Block{}) {
				r.free(blocks[k])
			}
			blocks[k] = mem.Block{}
		}
		if i == len(s.sizes) {
			break
		}
		size := s.sizes[i]
		if r.depart() {
			switch r.rng.IntN(4) {
			case 0:
				continue // left out
			case 1:
				size += r.rng.Int64N(5000)
			case 2:
				left = append(left, r.alloc(stream, 1+r.rng.Int64N(9000)))
			case 3: // early
				if k := r.rng.IntN(i + 1); blocks[k] != (mem.Block{}) {
					r.free(blocks[k])
					blocks[k] = mem.Block{}
				}
			}
		}
		blocks[i] = r.alloc(stream, size)
	}
	for _, b := range blocks {
		if b != (mem.Block{}) {
			left = append(left, b)
		}
	}
	return left
}

// A school is a program of weights and of steps of several shapes, on several streams, with its plan.
type school struct {
	weights []int64
	shapes  []shape
	streams int
	order   []int
	plan    *planned.Plan
}

func newSchool(t testing.TB, rng *rand.Rand, o planned.Options) *school {
	c := &school{streams: 1 + rng.IntN(3)}
	for range rng.IntN(6) {
		c.weights = append(c.weights, 1+rng.Int64N(20_000))
	}
	for range 1 + rng.IntN(4) {
		c.shapes = append(c.shapes, newShape(rng, 1+rng.IntN(60)))
	}
	round := rng.Perm(len(c.shapes))
	for range 2 + rng.IntN(3) {
		c.order = append(c.order, round...)
	}
	rec := &recorder{p: trace.Program{Streams: c.streams}, blocks: map[driver.Pointer]uint32{}, at: 1 << 20}
	dev := drivertest.OpenSim(t, 1<<30)
	c.ride(t, rec, dev, rand.New(rand.NewPCG(0, 0)), 0, c.order)
	testkit.Must(t, dev.Close())
	c.plan = plan(t, &rec.p, o)
	return c
}

// ride runs the steps in an order.
func (c *school) ride(t testing.TB, a mem.Allocator, dev driver.Device, rng *rand.Rand, rate int, order []int) {
	r := &rider{t: t, rng: rng, a: a, rate: rate, streams: []driver.Stream{dev.DefaultStream()}}
	for len(r.streams) < c.streams {
		s := drivertest.NewStream(t, dev)
		r.streams = append(r.streams, s)
	}
	_, r.silent = a.(*recorder)
	for _, size := range c.weights {
		r.alloc(0, size)
	}
	left := make([][]mem.Block, c.streams)
	check, _ := a.(*planned.Allocator)
	for _, which := range order {
		for s := range c.streams {
			left[s] = r.step(s, &c.shapes[which], left[s])
			if check != nil {
				testkit.Must(t, check.Check())
				testkit.Must(t, check.CheckMarks())
			}
		}
	}
	if check == nil {
		return
	}
	s := check.Stats()
	if n := s.Allocation.All.Current; n != int64(len(r.live)) {
		t.Errorf("%d live blocks, want %d", n, len(r.live))
	}
	for len(r.live) > 0 {
		r.free(r.live[rng.IntN(len(r.live))].Block)
	}
	testkit.Must(t, check.Check())
	testkit.Must(t, check.Close())
	if free, total, err := dev.Available(); err != nil || free != total {
		t.Errorf("%d bytes of %d are free after Close, %v", free, total, err)
	}
}

// A recorder is an allocator with unlimited addresses that records its requests.
type recorder struct {
	p      trace.Program
	blocks map[driver.Pointer]uint32
	at     driver.Pointer
}

func (r *recorder) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b := mem.Block{Ptr: r.at, Size: size}
	r.at += driver.Pointer(size)
	r.blocks[b.Ptr] = uint32(r.p.Blocks)
	r.p.Ops = append(r.p.Ops, trace.Op{Kind: trace.OpAlloc, Block: uint32(r.p.Blocks), Stream: uint32(s.ID()), Size: size})
	r.p.Blocks++
	return b, nil
}

func (r *recorder) Free(b mem.Block, _ ...driver.Stream) {
	r.p.Ops = append(r.p.Ops, trace.Op{Kind: trace.OpFree, Block: r.blocks[b.Ptr]})
}

// In histories that follow a plan and depart from it in every way, no two blocks overlap, and no work on a block races
// with work on an earlier block with the same memory.
func TestHistories(t *testing.T) {
	seed := testkit.FreshSeed()
	var all planned.Counts
	for i := range *histories {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		if !t.Run("", func(t *testing.T) {
			c := newSchool(t, rng, planned.Options{Room: []int{0, 0, 50}[rng.IntN(3)], Apart: rng.IntN(2) == 0})
			dev := drivertest.OpenSim(t, 256<<20)
			a := open(t, dev, c.plan)
			order := slices.Clone(c.order)
			if i%2 > 0 {
				order = append(order, order...)
				rng.Shuffle(len(order), func(x, y int) { order[x], order[y] = order[y], order[x] })
			}
			rate := []int{0, 5, 30, 200}[rng.IntN(4)]
			c.ride(t, a, dev, rng, rate, order)
			n := a.Counts()
			if placed, slots := c.plan.Slots(); rate == 0 && i%2 == 0 && placed == slots && n.Missed > 0 {
				t.Errorf("%+v: want all of what was recorded served", n)
			}
			all.Served, all.Missed, all.Found = all.Served+n.Served, all.Missed+n.Missed, all.Found+n.Found
			testkit.Must(t, dev.Close())
		}) {
			t.Fatalf("seed %#x, history %d", seed, i)
		}
	}
	t.Logf("%+v", all)
}
