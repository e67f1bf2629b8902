package estimate

import (
	"cmp"
	"slices"
)

// A Category is a use of memory.
type Category uint8

// The categories, in the order of output.
const (
	Weights Category = iota
	OptimizerState
	Gradients
	Activations // kept for the backward pass
	Logits      // of the output layer, with the loss and their gradients
	WeightCasts // autocast's copies of weights in half precision
	KVCache
	ActivationGradients
	Temporaries
	Inputs    // token numbers
	Workspace // of cuBLAS
	NumCategories
)

var categoryNames = [NumCategories]string{
	"weights", "optimizer state", "gradients", "activations", "logits and loss", "weight casts", "KV cache",
	"activation gradients", "temporaries", "inputs", "workspace",
}

// String returns the name of a category: "optimizer state".
func (c Category) String() string { return categoryNames[c] }

// A Holding is the memory of each category, in bytes.
type Holding [NumCategories]int64

// Total is the sum over the categories, in bytes.
func (h *Holding) Total() int64 {
	sum := int64(0)
	for _, n := range h {
		sum += n
	}
	return sum
}

// A usage follows the memory in use, its peak, and the peak of each phase.
type usage struct {
	now    Holding
	sum    int64
	phase  string
	phases []Phase
	most   Holding // of each category alone
}

// A Phase is a part of a run, such as the backward pass.
type Phase struct {
	Name   string
	Peak   int64 // requested bytes
	AtPeak Holding
}

// begin begins a phase. A phase that comes again keeps the higher peak.
func (u *usage) begin(name string) {
	u.phase = name
	u.record()
}

func (u *usage) record() {
	i := slices.IndexFunc(u.phases, func(p Phase) bool { return p.Name == u.phase })
	if i < 0 {
		i = len(u.phases)
		u.phases = append(u.phases, Phase{Name: u.phase})
	}
	if p := &u.phases[i]; u.sum > p.Peak {
		p.Peak, p.AtPeak = u.sum, u.now
	}
}

func (u *usage) add(c Category, size int64) {
	u.now[c] += size
	u.sum += size
	u.most[c] = max(u.most[c], u.now[c])
	if size > 0 {
		u.record()
	}
}

// peak returns the phase with the highest peak; of several, the first.
func (u *usage) peak() Phase {
	return slices.MaxFunc(u.phases, func(a, b Phase) int { return cmp.Compare(a.Peak, b.Peak) })
}
