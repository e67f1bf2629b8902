package estimate

import (
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A tensor is memory that PyTorch would request. It is freed when its last owner drops it.
type tensor struct {
	block    uint32
	size     int64
	dim      dim // zero if the size is not by tokens
	owners   int
	category Category
}

// A dim is the length of a tensor for each token: 3 × hidden, of 2 bytes each.
type dim struct {
	name  string
	width int64 // elements for each token
	bytes int64 // of an element
}

func (d dim) of(bytes int64) dim { return dim{d.name, d.width, bytes} }

// times is n tensors side by side.
func (d dim) times(n int64) dim { return dim{d.name, n * d.width, d.bytes} }

// A value is the result of an operation for all tokens of a batch.
type value struct {
	dim
	memory *tensor
	from   *node // nil if no gradient is computed
}

// A node is an operation of the backward pass, as a node of PyTorch's autograd graph.
type node struct {
	op       operation
	category Category // of the output
	saved    []*tensor
	grad     *tensor // of the output, once it arrived
	size     int64   // of the output
}

// An operation computes an output of inputs.
type operation struct {
	inputs  []*value
	out     dim
	view    bool    // the output is the memory of the first input, and gradients pass likewise
	pass    bool    // the gradient of the inputs is that of the output (add)
	saves   []bool  // by input: it is kept for the backward pass
	keeps   bool    // the output is kept for the backward pass
	extra   []dim   // further outputs, which are kept for the backward pass
	scratch []int64 // bytes used during the operation
	back    []int64 // bytes used during its backward operation
	weights []*weight
	product bool  // it is a matrix product; one without a bias has the gradient of its weight first
	casts   bool  // weights are cast to half precision, as autocast does
	rerun   rerun // replaces the backward operation
}

// A rerun runs an operation again during the backward pass, and returns the gradient of its input.
type rerun func(grad *tensor) *tensor

// A graph records the requests of a program that runs operations and their backward pass.
type graph struct {
	tokens    int64
	program   *trace.Program
	usage     usage
	category  Category // of new tensors
	inLayer   bool     // saved tensors belong to a layer
	records   bool     // tensors are kept for a backward pass
	nodes     []*node
	workspace int64               // bytes that the next product of a backward pass requests for its thread
	casts     map[*weight]*tensor // autocast's cache of weights
	kept      map[*tensor]bool    // tensors that the layers keep for the backward pass
}

func newGraph(tokens int64) *graph {
	return &graph{
		tokens: tokens, program: &trace.Program{Streams: 1, Pools: []mem.PoolID{{}}}, casts: map[*weight]*tensor{},
		kept: map[*tensor]bool{},
	}
}

// allocate requests memory. A tensor without elements is nil.
func (g *graph) allocate(size int64, c Category) *tensor {
	if size == 0 {
		return nil
	}
	t := &tensor{block: uint32(g.program.Blocks), size: size, owners: 1, category: c}
	g.program.Blocks++
	g.program.Ops = append(g.program.Ops, trace.Op{Kind: trace.OpAlloc, Block: t.block, Size: size})
	g.usage.add(c, size)
	return t
}

func (g *graph) drop(tensors ...*tensor) {
	for _, t := range tensors {
		if t == nil {
			continue
		}
		if t.owners--; t.owners == 0 {
			g.program.Ops = append(g.program.Ops, trace.Op{Kind: trace.OpFree, Block: t.block})
			g.usage.add(t.category, -t.size)
		}
	}
}

func share(t *tensor) *tensor {
	if t != nil {
		t.owners++
	}
	return t
}

// use allocates temporary memory, and frees it.
func (g *graph) use(c Category, sizes ...int64) {
	var all []*tensor
	for _, size := range sizes {
		all = append(all, g.allocate(size, c))
	}
	for i := range all {
		g.drop(all[len(all)-1-i])
	}
}

// bytes is the size of a tensor for all tokens.
func (g *graph) bytes(d dim) int64 { return g.tokens * d.width * d.bytes }

// release ends the program's own use of values.
func (g *graph) release(values ...*value) {
	for _, v := range values {
		if v != nil {
			g.drop(v.memory)
			v.memory = nil
		}
	}
}

// run executes an operation. It does not release the inputs.
func (g *graph) run(op operation) *value {
	var casts []*tensor
	if op.casts {
		for _, w := range op.weights {
			casts = append(casts, g.cast(w))
		}
	}
	out := &value{dim: op.out}
	if op.view {
		out.memory = share(op.inputs[0].memory)
	} else {
		out.memory = g.tensor(op.out)
	}
	n := &node{op: op, category: g.category, size: g.bytes(op.out)}
	for _, d := range op.extra {
		g.keep(n, g.tensor(d))
	}
	g.use(Temporaries, op.scratch...)
	if !g.records {
		g.drop(n.saved...)
		g.drop(casts...)
		return out
	}
	n.saved = append(n.saved, casts...)
	for i, in := range op.inputs {
		if i < len(op.saves) && op.saves[i] {
			g.keep(n, share(in.memory))
		}
	}
	if op.keeps {
		g.keep(n, share(out.memory))
	}
	out.from = n
	g.nodes = append(g.nodes, n)
	return out
}

// then is run for an operation that ends the program's use of its inputs.
func (g *graph) then(op operation) *value {
	out := g.run(op)
	g.release(op.inputs...)
	return out
}

// keep makes a node an owner of a tensor until its backward operation.
func (g *graph) keep(n *node, t *tensor) {
	n.saved = append(n.saved, t)
	if g.records && g.inLayer && t != nil && t.category == Activations {
		g.kept[t] = true
	}
}

// tensor makes a tensor for all tokens.
func (g *graph) tensor(d dim) *tensor {
	t := g.allocate(g.bytes(d), g.category)
	if t != nil {
		t.dim = d
	}
	return t
}

// cast returns autocast's copy of a weight in half precision, which the caller owns too.
func (g *graph) cast(w *weight) *tensor {
	if w.fixed > 0 {
		return nil
	}
	t := g.casts[w]
	if t == nil {
		t = g.allocate(w.elements*half, WeightCasts)
		g.casts[w] = t
	}
	return share(t)
}

// endAutocast empties autocast's cache.
func (g *graph) endAutocast(weights []*weight) {
	if len(g.casts) == 0 {
		return
	}
	for _, w := range weights {
		g.drop(g.casts[w])
		delete(g.casts, w)
	}
}

// backward runs the backward pass from the last output down to the node with index first. grad is the gradient of that
// output.
func (g *graph) backward(first int, last *value, grad *tensor) {
	last.from.grad = grad
	for i := len(g.nodes) - 1; i >= first; i-- {
		n := g.nodes[i]
		g.nodes = g.nodes[:i]
		if n.grad != nil {
			g.differentiate(n)
		}
		g.drop(n.saved...)
	}
}

// differentiate runs the backward operation of a node.
func (g *graph) differentiate(n *node) {
	op := &n.op
	switch {
	case op.rerun != nil:
		g.arrive(op.inputs[0].from, op.rerun(n.grad))
		return
	case op.view || op.pass:
		for _, in := range op.inputs {
			if in.from != nil {
				g.arrive(in.from, share(n.grad))
			}
		}
		g.drop(n.grad)
		return
	}
	if op.product {
		g.allocate(g.workspace, Workspace)
		g.workspace = 0
	}
	weightFirst := op.product && len(op.weights) == 1
	if weightFirst {
		g.gradient(op.weights[0], op.casts)
	}
	var scratch []*tensor
	for _, size := range op.back {
		scratch = append(scratch, g.allocate(size, Temporaries))
	}
	grads := make([]*tensor, len(op.inputs))
	for i, in := range op.inputs {
		if in.from != nil {
			grads[i] = g.allocate(g.bytes(in.dim), gradientCategory(n.category))
		}
	}
	if !weightFirst {
		for _, w := range op.weights {
			g.gradient(w, op.casts)
		}
	}
	g.drop(scratch...)
	g.drop(n.grad)
	for i, in := range op.inputs {
		if in.from != nil {
			g.arrive(in.from, grads[i])
		}
	}
}

func gradientCategory(of Category) Category {
	if of == Logits {
		return Logits
	}
	return ActivationGradients
}

// arrive adds a gradient to those of a node's output, as PyTorch's InputBuffer does: in place if it has no other owner.
func (g *graph) arrive(n *node, grad *tensor) {
	switch {
	case n.grad == nil:
		n.grad = grad
		return
	case n.grad.owners > 1:
		sum := g.allocate(n.size, ActivationGradients)
		g.drop(n.grad)
		n.grad = sum
	}
	g.drop(grad)
}

// gradient makes the gradient of a weight: first in half precision if the operation was. The first gradient of a step
// is kept, and further ones are added to it; those of a weight that two operations use, into new memory.
func (g *graph) gradient(w *weight, wasHalf bool) {
	if w.fixed > 0 {
		return
	}
	var low *tensor
	if wasHalf {
		low = g.allocate(w.elements*half, Temporaries)
	}
	t := g.allocate(w.size(), Gradients)
	g.drop(low)
	switch {
	case w.grad == nil:
		w.grad = t
	case w.twice:
		sum := g.allocate(w.size(), Gradients)
		g.drop(w.grad, t)
		w.grad = sum
	default:
		g.drop(t)
	}
}
