package holders

// lossBlocks is the number of allocations before the first gradient of a backward pass that may be of the same pass:
// those of the loss, and of cuDNN when it tries algorithms.
const lossBlocks = 32

// lastGradients finds the gradients that no zero_grad freed, those of the last step: blocks that lived on after the
// optimizer's step, of each size as many as there were gradients in the steps before.
func (x *inference) lastGradients() {
	last := x.countsBefore(int32(x.events)).steps - 1
	blocks := map[int64][]int{} // of the last step, by size
	for i, c := range x.categories {
		if c != Unknown && c != Gradients {
			continue
		}
		b := x.block(i)
		if !b.Recorded || x.gradients[b.Size] == 0 {
			continue
		}
		if l := x.life(&b); l.steps == 1 && x.countsBefore(b.Start).steps == last {
			blocks[b.Size] = append(blocks[b.Size], i)
		}
	}
	for size, n := range x.gradients {
		if len(blocks[size]) != n {
			return
		}
	}
	for size := range x.gradients {
		for _, i := range blocks[size] {
			x.categories[i] = Gradients
		}
	}
}

// aroundGradients finds activations and temporaries in a recording without stacks. The first gradient between two steps
// of the optimizer shows that the backward pass has begun. A block that was allocated before and freed afterwards,
// still before the step, was kept for the backward pass. One that was freed before was not. Later blocks stay unknown:
// a checkpoint may have made them.
func (x *inference) aroundGradients() {
	first := map[int32]int{} // the first gradient by the number of steps before it, as the index of a block
	for i, c := range x.categories {
		if c != Gradients {
			continue
		}
		if b := x.block(i); b.Recorded {
			steps := x.countsBefore(b.Start).steps
			if _, ok := first[steps]; !ok {
				first[steps] = i
			}
		}
	}
	for i, c := range x.categories {
		if c != Unknown {
			continue
		}
		b := x.block(i)
		if !b.Recorded || int(b.Freed) == x.events {
			continue
		}
		steps := x.countsBefore(b.Start).steps
		gradient, ok := first[steps]
		if !ok || i >= gradient-lossBlocks || x.countsBefore(b.Freed+1).steps != steps {
			continue
		}
		switch {
		case int(b.Freed) > x.h.Lifetimes.Start(gradient):
			x.categories[i] = Activations
		case int(b.Freed) < x.h.Lifetimes.Start(gradient-lossBlocks):
			x.categories[i] = Temporaries
		}
	}
}
