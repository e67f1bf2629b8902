package holders

import (
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/trace"
)

// The inference of categories works from the lifetimes of blocks and from the phases of the training loop in which they
// were allocated and freed. The stacks tell the phases. PyTorch runs the backward pass in a thread of its own, which
// has no Python frames, so an empty stack tells it too. Without stacks, the annotations of optimizers tell their steps.
//
// It never guesses: a block stays Unknown unless its whole life fits one category only. A block that was still live
// when the recording ended has the category of earlier blocks from the same stack, if all of them have the same one.

// maxPasses is the number of forward passes that may begin during the life of an activation: the variable of a result
// keeps it until the next result, and two models may take turns.
const maxPasses = 2

// shortLife is the number of allocations in the life of a block that surely lives within one pass. A cache of keys and
// values lives longer: for a pass of a whole model.
const shortLife = 64

// An inference computes the categories of the blocks of a history.
type inference struct {
	h          *History
	reader     *trace.LifetimesReader
	categories []Category // of each block
	eventCounts
	again  repeats
	last   []int32      // the last birth of a block of each stack, or -1
	lines  map[line]int // blocks of each line and each size in cublasSizes
	trains bool         // the recording has a backward pass
	brief  []bool       // of each stack: see findBrief

	weights   map[int64]int   // number of blocks by size
	gradients map[int64]int   // largest number that was live at once, by size
	zeroed    map[int64]int32 // the last free of a gradient, by size
}

// A line is a stack and a size.
type line struct {
	stack trace.StackID
	size  int64
}

// categorize sets the category of all blocks.
func (h *History) categorize() {
	x := &inference{
		h: h, reader: h.Lifetimes.Reader(trace.FieldSize, trace.FieldStack, trace.FieldStream),
		categories: make([]Category, h.NumBlocks()), eventCounts: eventCounts{stacks: h.phases},
		weights: map[int64]int{}, gradients: map[int64]int{}, zeroed: map[int64]int32{},
	}
	x.scan()
	x.group()
	if !x.trains {
		x.findBrief()
	}
	for i := range x.categories {
		b := x.block(i)
		c := x.byLife(i, &b)
		if x.categories[i] = c; c == Weights && !x.converted(&b) {
			x.weights[b.Size]++
		}
	}
	x.countGradients()
	x.matchWeights()
	if !x.stacks.python {
		x.lastGradients()
		x.aroundGradients()
	}
	for i := range x.categories {
		if x.categories[i] != Unknown {
			continue
		}
		b := x.block(i)
		c := x.bySize(&b)
		if c == Unknown && b.Size == cublasLtSize && i > 0 && x.categories[i-1] == Workspace &&
			x.block(i-1).Stack == b.Stack && int(b.Freed) == x.events {
			c = Workspace
		}
		x.categories[i] = c
	}
	x.likeEarlier()
	h.categories.Store(&x.categories)
}

// block returns a block, without its category, address, tag and pool.
func (x *inference) block(i int) trace.Lifetime { return x.reader.At(i) }

// group finds which blocks have others of the same stack, from the last block to the first.
func (x *inference) group() {
	x.again, x.lines = make(repeats, (len(x.categories)+3)/4), map[line]int{}
	x.last = make([]int32, len(x.stacks.phases))
	next := make([][2]int32, len(x.last)) // the two next births of each stack
	for id := range next {
		x.last[id], next[id] = -1, [2]int32{math.MaxInt32, math.MaxInt32}
	}
	for i := len(x.categories) - 1; i >= 0; i-- {
		b := x.block(i)
		id := x.stackOf(&b)
		later := &next[id]
		switch {
		case later[1] < b.Freed:
			x.again.set(i, 2)
		case later[0] < b.Freed:
			x.again.set(i, 1)
		}
		if !b.Recorded {
			continue
		}
		*later = [2]int32{b.Start, later[0]}
		x.last[id] = max(x.last[id], b.Start)
		if slices.Contains(cublasSizes, b.Size) {
			x.lines[line{id, b.Size}]++
		}
	}
}

// repeats has a number from 0 to 2 for each block: how many blocks with its stack were allocated in its life, where 2
// stands for more, too.
type repeats []uint8

func (r repeats) set(i, n int) { r[i/4] |= uint8(n) << (i % 4 * 2) }

func (r repeats) of(i int) int { return int(r[i/4] >> (i % 4 * 2) & 3) }

// stackOf returns the stack of a block, or 0 if the recording does not have it.
func (x *inference) stackOf(b *trace.Lifetime) trace.StackID {
	if int(b.Stack) >= len(x.last) {
		return 0
	}
	return b.Stack
}

// A life is the part of a block's life that tells its category.
type life struct {
	counts     // events between birth and death
	born, died phase
	freed      bool
	crossed    bool // it lived in a backward pass
	persistent bool // it lived longer than any activation
}

func (x *inference) life(b *trace.Lifetime) life {
	l := life{freed: int(b.Freed) < x.events}
	if b.Recorded {
		l.born = x.phaseOf(b.Start)
	} else {
		l.born, _ = x.stacks.of(b.Stack, false)
	}
	if l.freed && b.Freed >= 0 {
		l.died = x.phaseOf(b.Freed)
	}
	l.counts = x.countsBefore(max(b.Freed, b.Start+1)).minus(x.countsBefore(b.Start + 1))
	l.crossed = l.backward > 0 || l.died == phaseBackward || l.died == phaseRecompute
	l.persistent = l.passes > maxPasses || !l.freed && l.passes == maxPasses
	return l
}

// byLife returns the category that the phases of the birth and death of block i and those between them tell.
func (x *inference) byLife(i int, b *trace.Lifetime) Category {
	l := x.life(b)
	stays := !l.freed || l.forward+l.backward > 0
	switch l.born {
	case phaseSetup:
		if stays || x.converted(b) {
			return Weights
		}
		return Temporaries
	case phaseState:
		if stays {
			return OptimizerState
		}
		return Temporaries
	}
	if l.died == phaseZero && l.born != phaseForward && l.born != phaseRecompute {
		return Gradients
	}
	switch l.born {
	case phaseStep:
		switch {
		case l.forward+l.backward > 0 || l.steps > 0:
			return OptimizerState
		case l.freed && l.notStep == 0:
			return Temporaries
		}
		return Unknown
	case phaseBackward:
		if l.freed && l.outside == 0 && (l.died == phaseBackward || l.died == phaseRecompute) {
			return Temporaries
		}
		return Unknown
	case phaseRecompute:
		switch {
		case l.passes > maxPasses, !l.freed:
			return Unknown
		case l.autograd > 0 || l.died == phaseBackward:
			return Activations
		}
		return Temporaries
	}
	return x.ofPass(i, b, l)
}

// converted reports whether a module replaced a parameter, as it does when it moves to another type.
func (x *inference) converted(b *trace.Lifetime) bool {
	if b.Freed < 0 || int(b.Freed) >= x.events {
		return false
	}
	id := x.h.Trace.At(int(b.Freed)).Stack
	return int(id) < len(x.stacks.convert) && x.stacks.convert[id]
}

// ofPass is byLife for blocks of forward passes and of the user's code.
func (x *inference) ofPass(i int, b *trace.Lifetime, l life) Category {
	switch {
	case l.persistent || !l.freed || b.Stack == 0:
		return Unknown
	case l.crossed && (l.born == phaseForward || l.died == phaseBackward || l.died == phaseRecompute):
		return Activations
	case l.crossed:
		return Unknown
	}
	if x.trains && (l.allocs <= shortLife || x.again.of(i) <= 1) || !x.trains && x.brief[x.stackOf(b)] {
		return Temporaries
	}
	return Unknown
}

// findBrief finds the stacks of modules whose blocks are all freed before the same stack allocates again. Without a
// backward pass, only these are known to make temporaries: other lines may keep results from one pass to the next, as a
// cache of keys and values does.
func (x *inference) findBrief() {
	x.brief = make([]bool, len(x.last))
	for id := range x.brief {
		x.brief[id] = true
	}
	for i := range x.categories {
		b := x.block(i)
		if l := x.life(&b); !l.freed || x.again.of(i) > 0 || l.born != phaseForward {
			x.brief[x.stackOf(&b)] = false
		}
	}
}
