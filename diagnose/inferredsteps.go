package diagnose

import (
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/trace"
)

// Steps that were inferred from repetition may be steps of the program, or layers of a forward pass, a backward pass or
// a model that is loaded. The memory that loading leaves is not a leak.

const (
	leastInferred = 6  // leastSteps for inferred steps
	manyRequests  = 12 // requests of a step that is more than a layer
)

// isLoop reports whether inferred steps are those of a program. The layers of one forward pass, or of one backward
// pass, repeat as well, and the activations and gradients of each remain. But then all requests come from one line
// within a module, or from the backward pass. Without stacks that cannot be told.
func (x *explainer) isLoop(steps []holders.Step) bool {
	stacks := x.h.Trace.Stacks
	var common []uint32 // frames, the innermost first
	known := false
	for i := range x.h.NumBlocks() {
		b := x.h.Block(i)
		frames := stacks.At(b.Stack)
		if len(frames) == 0 || !within(steps, &b) {
			continue
		}
		if !known {
			common, known = frames, true
		}
		common = commonEnd(common, frames)
	}
	calls := 0
	for _, n := range common {
		f := &stacks.Frames[n]
		if isFile(f, "torch/utils/checkpoint.py") || strings.Contains(slashed(f.Filename), "torch/autograd/") {
			return false
		}
		if isFile(f, moduleFile) && f.Name == moduleCall {
			calls++
		}
	}
	// Requests from within one call of a module, but from several lines of it, are those of a loop that calls the
	// module.
	return known && (calls == 0 || calls == 1 && isFile(&stacks.Frames[common[0]], moduleFile))
}

// The function of PyTorch that calls the forward method of a module.
const (
	moduleFile = "torch/nn/modules/module.py"
	moduleCall = "_call_impl"
)

// commonEnd returns the longest common end of two lists.
func commonEnd(a, b []uint32) []uint32 {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}

func slashed(file string) string { return strings.ReplaceAll(file, `\`, "/") }

// isFile reports whether a frame is of a file of PyTorch.
func isFile(f *trace.Frame, name string) bool { return strings.HasSuffix(slashed(f.Filename), name) }

// callsModules reports whether most steps call modules.
func (x *explainer) callsModules(steps []holders.Step) bool {
	stacks := x.h.Trace.Stacks
	calls := map[trace.StackID]bool{}
	in := make([]bool, len(steps))
	for i := range x.h.NumBlocks() {
		b := x.h.Block(i)
		if !within(steps, &b) {
			continue
		}
		call, known := calls[b.Stack]
		if !known {
			call = slices.ContainsFunc(stacks.At(b.Stack), func(n uint32) bool {
				f := &stacks.Frames[n]
				return isFile(f, moduleFile) && f.Name == moduleCall
			})
			calls[b.Stack] = call
		}
		in[stepOf(steps, int(b.Start))] = in[stepOf(steps, int(b.Start))] || call
	}
	return often(in)
}

// transient returns the bytes that were allocated in steps and freed by their end.
func (x *explainer) transient(steps []holders.Step) (bytes int64) {
	for i := range x.h.NumBlocks() {
		b := x.h.Block(i)
		if b.Recorded && within(steps, &b) && int(b.Freed) <= steps[stepOf(steps, int(b.Start))].Last {
			bytes += b.Size
		}
	}
	return bytes
}

// plausible reports whether inferred steps, which leave a number of bytes behind, look like steps of a program. Such
// steps free much of what they allocate, or call models that make many requests. More is required of a program that
// failed, because it may have been loading a model, layer by layer.
func (x *explainer) plausible(steps []holders.Step, remain int64) bool {
	transient := x.transient(steps)
	requests := 0
	for i := range x.h.NumBlocks() {
		if b := x.h.Block(i); within(steps, &b) {
			requests++
		}
	}
	model := requests >= manyRequests*len(steps) && x.callsModules(steps)
	if x.r.Failure != nil {
		return transient >= 3*remain || model && transient >= remain/8
	}
	return transient >= remain/2 || model
}
