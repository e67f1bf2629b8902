package holders

// lossBlocks is the number of allocations before the first gradient of a backward pass that may be of the same pass:
// those of the loss, and of cuDNN when it tries algorithms.
const lossBlocks = 32

// lastGradients finds the gradients that no zero_grad freed, those of the last step: blocks that lived on after the
// optimizer's step, of each size as many as there were gradients in the steps before.
func (x *inference) lastGradients() {
	type group struct {
		steps int32 // before their allocation
		size  int64
	}
	groups := map[group][]*Block{}
	for i := range x.h.Blocks {
		b := &x.h.Blocks[i]
		if !b.Recorded || x.gradients[b.Size] == 0 || b.Category != Unknown && b.Category != Gradients {
			continue
		}
		if l := x.life(b); l.steps == 1 {
			g := group{x.counts[b.Start].steps, b.Size}
			groups[g] = append(groups[g], b)
		}
	}
	last := x.counts[len(x.phases)].steps - 1
	for size, n := range x.gradients {
		if len(groups[group{last, size}]) != n {
			return
		}
	}
	for size := range x.gradients {
		for _, b := range groups[group{last, size}] {
			b.Category = Gradients
		}
	}
}

// aroundGradients finds activations and temporaries in a recording without stacks. The first gradient between two steps
// of the optimizer shows that the backward pass has begun. A block that was allocated before and freed afterwards,
// still before the step, was kept for the backward pass. One that was freed before was not. Later blocks stay unknown:
// a checkpoint may have made them.
func (x *inference) aroundGradients() {
	blocks := x.h.Blocks
	first := map[int32]int{} // the first gradient by the number of steps before it, as an index into blocks
	for i := range blocks {
		if b := &blocks[i]; b.Category == Gradients && b.Recorded {
			steps := x.counts[b.Start].steps
			if _, ok := first[steps]; !ok {
				first[steps] = i
			}
		}
	}
	for i := range blocks {
		b := &blocks[i]
		if b.Category != Unknown || !b.Recorded || int(b.Freed) == len(x.phases) {
			continue
		}
		steps := x.counts[b.Start].steps
		gradient, ok := first[steps]
		if !ok || i >= gradient-lossBlocks || x.counts[b.Freed+1].steps != steps {
			continue
		}
		switch {
		case b.Freed > blocks[gradient].Start:
			b.Category = Activations
		case b.Freed < blocks[gradient-lossBlocks].Start:
			b.Category = Temporaries
		}
	}
}
