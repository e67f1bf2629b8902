// Package pack places buffers with known lifetimes in as little memory as it can find: offline packing, also called
// dynamic storage allocation. It computes with numbers and allocates no device memory.
//
// Pack finds a packing: by greedy placement in several orders, then by exact search and a search for better orders in
// turns. Exact reports whether a packing within a capacity exists. Bound returns a lower bound, and Validate checks
// offsets. ReadCSV and WriteCSV use the format of MiniMalloc's instances. All functions are deterministic for a given
// seed and number of steps, and safe for concurrent use. Pack uses two processors.
package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ashlar-go/ashlar/fit"
)

// # How Pack works
//
// A packing is made from an order: each buffer in turn gets the lowest offset that is free during its lifetime (first
// fit), or the tightest gap (best fit). Some order gives a lowest packing by first fit: the order of the offsets of
// that packing. The first packing is in order of time (online), as an allocator would make it, in O(n log n). The
// greedy orders, which may examine every gap for every buffer, stop after greedyLooks.
//
// If no greedy order reaches the bound, two searches run at the same time, until the best packing is as low as the
// proved minimum: Pack takes turns, and a rebuilder takes rounds (search.go, rebuild.go). Each turn is longer than the
// last, and has three parts:
//
//	at the least  exact search at the proved minimum: the bound, or above the capacities that were ruled out
//	between       exact search at capacities that bisect the range up to the best packing
//	improve       a walk and a climb through orders, which stay under the best height so far
//
// A round of the rebuilder, too, has three parts:
//
//	upwards       for at most upwardsMost buffers: another exact search at the proved minimum
//	skyline       a packing from below for a lower ceiling, with the least room wasted where the least is left
//	repair        buffers above the ceiling go where they displace the least, and so do the displaced ones
//
// Exact search handles hundreds of buffers. For more, it gets a core: the buffers that are live at the peak. A packing
// has to be tight there and has room elsewhere, so the other buffers, perhaps a hundred times as many, are placed
// around the core by first fit. Cores grow from turn to turn. If a core has no packing, neither have all buffers.
//
// The walk is squeaky wheel optimization (Joslin and Clements, 1999): the first buffer without room always moves to a
// random earlier place in the order. The climb leaves out the buffers without room. One of them moves earlier, and
// stays there if the total size left out does not grow. Placing an order stops early when its result is known.
//
// A tree over time (occupancy) holds the units taken during a lifetime, so that placing a buffer does not examine each
// buffer that it meets: weights that live through a whole trace cost no more than others.

// A Buffer is one request: Size units during [Lower, Upper).
type Buffer struct {
	ID           string // used in errors and files only
	Lower, Upper int64  // half-open: a buffer may begin where another ends
	Size         int64
}

// Options control the effort of Pack.
type Options struct {
	Seed uint64 // of random choices

	// Steps is the length of the search after the greedy orders. 0 means no search; a negative value means no limit
	// except ctx. A step is one order, or 16 nodes of an exact search, which take about as long. Pack searches in two
	// ways at once, on two processors if there are as many; each takes these steps.
	Steps int
}

// A Result is a packing.
type Result struct {
	Offsets []int64 // by buffer; owned by the caller
	Height  int64   // the largest offset+size
	Bound   int64   // the result of the function Bound
	Least   int64   // no packing is lower: the bound, or more if the search proved it
}

// Pack places the buffers as low as it can in its steps and time. It returns the best packing found when ctx ends,
// which is not an error, when a packing is as low as Result.Least, or after the steps, plus or minus a round of an
// exact search. There is always a packing: first fit in order of time, in O(n log n). The greedy orders that follow
// stop after 2^29 examined gaps, a few seconds, however many buffers there are. With negative Steps and a ctx that
// never ends, Pack may never return.
//
// With a limited number of steps the result depends on the arguments only. Without a limit it may depend on time even
// if ctx does not end, because the two searches share what they find: the height is then as low as Result.Least, but
// the offsets may differ. Pack calls ctx.Err from two goroutines.
//
// It returns an error if a buffer's lifetime or size is empty or negative, or if the sizes add up to more than int64
// holds. It only reads buffers, and may be called concurrently.
//
// A step examines O(log n) sets of units for each buffer, and in them each gap below the buffer's offset: a few
// microseconds a buffer for traces of tens of thousands, and several times that if lifetimes are random.
func Pack(ctx context.Context, buffers []Buffer, o Options) (Result, error) {
	var sum int64
	for i, b := range buffers {
		if err := b.check(); err != nil {
			return Result{}, fmt.Errorf("pack: buffer %q (%d): %w", b.ID, i, err)
		}
		if sum > math.MaxInt64-b.Size {
			return Result{}, errors.New("pack: the sizes add up to more than 2^63-1")
		}
		sum += b.Size
	}
	if len(buffers) == 0 {
		return Result{Offsets: []int64{}}, nil
	}
	p := newPacker(ctx, buffers, o)
	p.online()
	p.greedy()
	p.search(o)
	return p.best, nil
}

func newPacker(ctx context.Context, buffers []Buffer, o Options) *packer {
	bound := Bound(buffers)
	p := &packer{
		ctx:      ctx,
		buffers:  buffers,
		items:    newItems(buffers),
		occupied: newOccupancy(buffers),
		order:    make([]int, len(buffers)),
		offsets:  make([]int64, len(buffers)),
		best:     Result{Offsets: make([]int64, len(buffers)), Bound: bound, Least: bound},
		rng:      rand.New(rand.NewPCG(o.Seed, 0)),
		steps:    o.Steps,
		visits:   greedyVisits,
	}
	for _, b := range buffers {
		p.unit = divisor(p.unit, b.Size)
	}
	return p
}

// A packer is one call of Pack.
type packer struct {
	ctx      context.Context
	buffers  []Buffer
	items    []item
	unit     int64 // a common divisor of all sizes, and so of all heights
	occupied *occupancy
	order    []int   // indices of buffers in the order of placement
	offsets  []int64 // of the placed buffers
	out      []int   // indices of the buffers without room
	best     Result
	shared   *exchange
	rng      *rand.Rand
	steps    int   // remaining steps; negative for no limit
	left     int   // remaining steps of this walk or climb
	visits   int64 // value of occupied.visits at which placing an order stops
}

// greedyLooks is the maximum number of examined extents of all greedy orders together. Traces of 60,000 buffers take
// fewer.
const greedyVisits = 1 << 29

// place places the buffers in order. The first kept buffers keep their offsets; fit chooses the offsets of the others.
// A buffer that would end above ceiling is left out. place stops when the sum of the sizes left out exceeds spare, when
// ctx ends, or when the visits are used up. It returns the position in the order where it stopped, or the order's
// length, and the sum of the sizes left out. It then holds the placed buffers.
func (p *packer) place(fit func(int) int64, kept int, ceiling, spare int64) (stopped int, missing int64) {
	p.occupied.clear()
	p.out = p.out[:0]
	for k, i := range p.order {
		if k >= kept {
			if p.occupied.visits > p.visits || k%256 == 0 && p.ctx.Err() != nil {
				return k, missing
			}
			p.offsets[i] = fit(i)
		}
		if p.offsets[i]+p.buffers[i].Size <= ceiling {
			p.occupied.put(i, p.offsets[i])
			continue
		}
		p.out = append(p.out, i)
		missing += p.buffers[i].Size
		if missing > spare {
			return k, missing
		}
	}
	return len(p.order), missing
}

// online places the buffers as an allocator does, without knowledge of the future: each when it begins, at the lowest
// offset that is free then.
func (p *packer) online() {
	p.sort(func(x, y *item) int { return cmp.Compare(x.Upper, y.Upper) })
	ends := slices.Clone(p.order)
	p.sort(byBeginning)
	free := fit.NewFirstFit[struct{}](1, nil)
	free.Give(0, 1<<62, struct{}{})
	for _, i := range p.order {
		for ; p.buffers[ends[0]].Upper <= p.buffers[i].Lower; ends = ends[1:] {
			free.Give(p.offsets[ends[0]], p.buffers[ends[0]].Size, struct{}{})
		}
		at, _, ok := free.Take(p.buffers[i].Size)
		if !ok { // more than 2^62 units
			p.stack()
			break
		}
		p.offsets[i] = at
	}
	p.keep()
}

// stack stacks the buffers.
func (p *packer) stack() {
	var at int64
	for i, b := range p.buffers {
		p.offsets[i] = at
		at += b.Size
	}
}

// greedy places the buffers in each of the orders, by first fit and by best fit, until the visits are used up.
func (p *packer) greedy() {
	defer func() { p.visits = math.MaxInt64 }()
	for _, before := range orders {
		p.sort(before)
		for _, fit := range []func(int) int64{p.occupied.firstFit, p.occupied.bestFit} {
			if stopped, _ := p.place(fit, 0, p.ceiling(), 0); stopped == len(p.order) {
				p.keep()
			}
			if p.done() || p.occupied.visits > p.visits {
				return
			}
		}
	}
}

// done reports whether the best packing is optimal or ctx has ended.
func (p *packer) done() bool { return p.best.Height <= p.best.Least || p.ctx.Err() != nil }

// over reports whether the search is over.
func (p *packer) over() bool { return p.steps == 0 || p.done() }

// ceiling returns the maximum height of the next packing: one less than the best.
func (p *packer) ceiling() int64 { return p.best.Height - 1 }

// keep makes the offsets the best packing.
func (p *packer) keep() {
	copy(p.best.Offsets, p.offsets)
	p.best.Height = 0
	for i, b := range p.buffers {
		p.best.Height = max(p.best.Height, p.offsets[i]+b.Size)
	}
}

// turns searches in turns. Each turn is half as long again as the one before.
func (p *packer) turns() {
	if p.over() {
		return
	}
	cores := p.makeCores()
	share := int64(256) // in steps
	for turn := 0; !p.over(); turn++ {
		p.shared.swap(&p.best)
		for _, c := range cores[:min(len(cores), turn+2)] {
			nodes := max(nodesPerStep*share, 2*int64(len(c.indices)))
			p.atLeast(c, turn, nodes)
			p.between(c, turn, nodes/4)
		}
		p.improve(turn, int(max(8, share*256/int64(max(256, len(p.order))))))
		if share < 1<<40 {
			share += share / 2
		}
	}
}

// divisor returns the greatest common divisor.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// recall sets the order to that of the best packing's offsets. First fit in this order is at most as high.
func (p *packer) recall() {
	slices.SortStableFunc(p.order, func(x, y int) int { return cmp.Compare(p.best.Offsets[x], p.best.Offsets[y]) })
}
