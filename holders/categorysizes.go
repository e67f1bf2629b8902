package holders

import (
	"container/heap"
	"slices"

	"github.com/ashlar-go/ashlar/trace"
)

// cublasSizes are the sizes of workspaces that PyTorch 2.11 allocates for cuBLAS: 32 MiB for Hopper and data center
// Blackwell, 12 MiB for other Blackwell, 8.125 MiB for older GPUs; and 1 MiB for cuBLASLt, after that of cuBLAS.
var cublasSizes = []int64{32 << 20, 12 << 20, 8320 << 10, cublasLtSize}

const cublasLtSize = 1 << 20

// countGradients sets the largest number of gradients of each size that were live at once, and when the last was freed.
func (x *inference) countGradients() {
	live := map[int64]*eventHeap{} // by size, the frees of those that are live at the birth of a block
	for i, c := range x.categories {
		if c != Gradients {
			continue
		}
		b := x.block(i)
		frees := live[b.Size]
		if frees == nil {
			frees = &eventHeap{}
			live[b.Size] = frees
		}
		for frees.Len() > 0 && (*frees)[0] <= b.Start {
			heap.Pop(frees)
		}
		heap.Push(frees, b.Freed)
		x.gradients[b.Size] = max(x.gradients[b.Size], frees.Len())
		x.zeroed[b.Size] = max(x.zeroed[b.Size], b.Freed)
	}
}

// An eventHeap is a heap of events, the first one at the root: see container/heap.
type eventHeap []int32

func (h eventHeap) Len() int           { return len(h) }
func (h eventHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h eventHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(event any)    { *h = append(*h, event.(int32)) }
func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// matchWeights finds weights among blocks of the user's code that live for the whole recording. The blocks of one size
// are weights if there are no more of them than gradients of that size without a weight.
func (x *inference) matchWeights() {
	first := x.events
	for i, c := range x.categories {
		if c == Gradients {
			first = min(first, x.h.Lifetimes.Start(i))
		}
	}
	candidates := map[int64][]int{}
	for i, c := range x.categories {
		if c != Unknown || x.h.Lifetimes.Start(i) >= first || x.gradients[x.h.Lifetimes.Size(i)] == 0 {
			continue
		}
		b := x.block(i)
		if l := x.life(&b); l.born == phaseOther && (!l.freed || l.passes > maxPasses || l.steps >= maxPasses) {
			candidates[b.Size] = append(candidates[b.Size], i)
		}
	}
	for size, blocks := range candidates {
		if len(blocks) > x.gradients[size]-x.weights[size] {
			continue
		}
		for _, i := range blocks {
			x.categories[i] = Weights
		}
		x.weights[size] += len(blocks)
	}
}

// bySize returns the category of a block that byLife does not tell, from its size.
func (x *inference) bySize(b *trace.Lifetime) Category {
	l := x.life(b)
	switch {
	case x.isWorkspace(b, l):
		return Workspace
	case !b.Recorded || l.born != phaseBackward || l.outside == 0 && !l.freed || x.weights[b.Size] == 0:
		return Unknown
	case slices.Contains(cublasSizes, b.Size) && !l.freed:
		return Unknown // it could be either
	}
	return Gradients
}

// isWorkspace reports whether a block is a workspace of cuBLAS, which stays until the program clears it. Without native
// frames, its size must be that of a workspace. In a forward pass, its line must have run again without another such
// allocation. In a backward pass, no weight may have this size, or a zero_grad must have left the block while it freed
// gradients.
func (x *inference) isWorkspace(b *trace.Lifetime, l life) bool {
	switch {
	case l.freed && l.passes < maxPasses:
		return false
	case x.stacks.cublas[x.stackOf(b)]:
		return true
	case !slices.Contains(cublasSizes, b.Size):
		return false
	}
	switch l.born {
	case phaseBackward:
		return l.outside > 0 && (x.weights[b.Size] == 0 || x.zeroed[b.Size] > b.Start)
	case phaseForward, phaseRecompute, phaseOther:
		if b.Stack == 0 || x.trains && l.passes == 0 {
			return false
		}
		alike := x.lines[line{x.stackOf(b), b.Size}]
		if b.Recorded {
			alike--
		}
		return alike == 0 && x.last[x.stackOf(b)] > b.Start
	}
	return false
}

// likeEarlier gives blocks that were live when the recording ended the category of freed ones from the same stack, and
// blocks of a backward pass that of freed ones of the same size.
func (x *inference) likeEarlier() {
	kinds := map[line]*kind{}
	var open []int
	for i, c := range x.categories {
		b := x.block(i)
		l := x.life(&b)
		if !b.Recorded || b.Stack == 0 && l.born != phaseBackward {
			continue
		}
		k := kinds[likeness(&b)]
		if k == nil {
			k = &kind{}
			kinds[likeness(&b)] = k
		}
		switch {
		case l.freed:
			k.categories |= 1 << c
			if c == Temporaries {
				k.temporary = max(k.temporary, l.allocs)
			}
		case c == Unknown && !l.persistent:
			k.open = max(k.open, l.allocs)
			open = append(open, i)
		}
	}
	for _, i := range open {
		b := x.block(i)
		if slices.Contains(cublasSizes, b.Size) && x.lines[line{x.stackOf(&b), b.Size}] == 1 {
			continue // it may be a workspace
		}
		x.categories[i] = kinds[likeness(&b)].of(x.life(&b).allocs)
	}
}

// A kind has the blocks of a stack, or those of a size that the backward pass made.
type kind struct {
	categories uint8 // of the freed blocks, as bits
	temporary  int32 // most allocations in the life of a freed temporary
	open       int32 // most allocations in the life of a block that was not freed
}

// of returns the category of a block that was not freed, with the allocations in its life: that of all freed ones, or
// of all but the temporaries if it lived more than twice as long as these.
func (k *kind) of(allocs int32) Category {
	const temporaries = 1 << Temporaries
	if k.categories == temporaries && k.open <= k.temporary {
		return Temporaries
	}
	for c := Unknown + 1; c < numCategories; c++ {
		if c != Temporaries && k.categories&^temporaries == 1<<c && (allocs > 2*k.temporary || k.categories == 1<<c) {
			return c
		}
	}
	return Unknown
}

// likeness returns the kind of a block for likeEarlier.
func likeness(b *trace.Lifetime) line {
	if b.Stack == 0 {
		return line{size: b.Size}
	}
	return line{stack: b.Stack}
}
