package estimate

import "slices"

// An Optimizer is one of torch.optim. Its memory is that of PyTorch 2.11: states and temporaries of the defaults
// (foreach on GPUs).
type Optimizer struct {
	Name   string
	States int64 // tensors of a parameter's size and type, for each parameter

	eager       bool  // the states are allocated before the first step
	temporaries int64 // for each parameter, all at once: tensors of its size
	each        int64 // for one parameter after another: tensors of its size
	counters    bool  // a counter of steps on the GPU for each parameter
	factored    bool  // a state for each row and column of matrices instead
}

var optimizers = []Optimizer{
	{Name: "adamw", States: 2, temporaries: 1},
	{Name: "adam", States: 2, temporaries: 1},
	{Name: "adamw-fused", States: 2, counters: true},
	{Name: "adamw-loop", States: 2, each: 2},
	{Name: "sgd"},
	{Name: "sgd-momentum", States: 1},
	{Name: "rmsprop", States: 1, temporaries: 1},
	{Name: "adagrad", States: 1, eager: true, temporaries: 2},
	{Name: "adafactor", factored: true, each: 2},
}

// Optimizers returns the names of the optimizers: "adamw", "sgd" and so on.
func Optimizers() []string {
	var names []string
	for _, o := range optimizers {
		names = append(names, o.Name)
	}
	return names
}

// optimizerOf returns the optimizer with a name.
func optimizerOf(name string) (Optimizer, bool) {
	i := slices.IndexFunc(optimizers, func(o Optimizer) bool { return o.Name == name })
	if i < 0 {
		return Optimizer{}, false
	}
	return optimizers[i], true
}

// stateSizes are the sizes of a weight's states in bytes.
func (o *Optimizer) stateSizes(w *weight) []int64 {
	var sizes []int64
	for range o.States {
		sizes = append(sizes, w.size())
	}
	if o.counters {
		sizes = append(sizes, single)
	}
	switch {
	case o.factored && w.rows > 0:
		sizes = append(sizes, w.rows*w.bytes, w.elements/w.rows*w.bytes)
	case o.factored:
		sizes = append(sizes, w.size())
	}
	return sizes
}

// prepare allocates the states of weights that have none.
func (o *Optimizer) prepare(g *graph, weights []*weight) {
	for _, w := range weights {
		if w.state != nil || w.fixed > 0 {
			continue
		}
		for _, size := range o.stateSizes(w) {
			w.state = append(w.state, g.allocate(size, OptimizerState))
		}
	}
}

// step runs a step of the optimizer.
func (o *Optimizer) step(g *graph, weights []*weight) {
	o.prepare(g, weights)
	var all []int64
	for _, w := range weights {
		if w.fixed > 0 {
			continue
		}
		all = append(all, slices.Repeat([]int64{w.size()}, int(o.temporaries))...)
		g.use(Temporaries, slices.Repeat([]int64{w.size()}, int(o.each))...)
	}
	g.use(Temporaries, all...)
}
