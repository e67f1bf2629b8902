package estimate

import (
	"cmp"
	"slices"
)

// Bytes of an element.
const (
	mask   = 1
	half   = 2 // float16 and bfloat16
	single = 4
	token  = 8 // a token's number
)

// A weight is a tensor of the checkpoint in a run.
type weight struct {
	elements int64
	bytes    int64 // of an element
	fixed    int64 // bytes of a tensor that is not trained
	rows     int64 // of a matrix; 0 otherwise
	memory   *tensor
	grad     *tensor
	state    []*tensor // the optimizer's
	twice    bool      // the embedding and the output layer use it, without a copy by autocast
}

func (w *weight) size() int64 { return cmp.Or(w.fixed, w.elements*w.bytes) }

// A transformer runs a model's layers on a graph.
type transformer struct {
	*graph
	*Model
	o        *Options
	residual int64              // bytes of an element between layers
	compute  int64              // bytes of an element in matrix products
	amp      bool               // autocast
	weights  []*weight          // by index of Model.Tensors
	keptDims []keptDim          // of the layers, after the first forward pass
	layers   []map[string][]int // by layer: the tensors of each role
	lookedUp []*weight          // outside the layers: embeddings, and those without a known role
	lastNorm []*weight
	output   []*weight
	cache    *cache // nil in training
}

func newTransformer(g *graph, m *Model, o *Options) *transformer {
	t := &transformer{graph: g, Model: m, o: o, residual: o.DType.bytes(), compute: o.DType.bytes()}
	if o.DType == AMP {
		t.amp, t.residual, t.compute = true, single, half
	}
	for i := range m.Tensors {
		source := &m.Tensors[i]
		w := &weight{elements: source.elements(), bytes: o.DType.bytes()}
		if len(source.Shape) == 2 {
			w.rows = int64(source.Shape[0])
		}
		if !source.trained() {
			w.fixed = source.Size
		}
		t.weights = append(t.weights, w)
	}
	for _, indices := range m.stack {
		byRole := map[string][]int{}
		for _, i := range indices {
			role := roleOf(layerName.FindStringSubmatch(m.Tensors[i].Name)[4])
			byRole[role] = append(byRole[role], i)
		}
		t.layers = append(t.layers, byRole)
	}
	t.findEnds()
	return t
}

// findEnds divides the weights outside the layers among the embedding, the last norm and the output layer.
func (t *transformer) findEnds() {
	head := t.head
	if t.Tied {
		head = t.embedding
	}
	inLayer := make([]bool, len(t.weights))
	for _, i := range slices.Concat(t.stack...) {
		inLayer[i] = true
	}
	for i, w := range t.weights {
		switch {
		case t.Vocabulary > 0 && (i == head || i == t.head):
			t.output = append(t.output, w)
			w.twice = i == t.embedding && !t.amp
		case inLayer[i]:
		case t.Vocabulary > 0 && !t.torchMHA && len(t.Tensors[i].Shape) == 1:
			t.lastNorm = append(t.lastNorm, w)
		case i != t.embedding:
			t.lookedUp = append(t.lookedUp, w)
		}
	}
	if t.embedding >= 0 {
		t.lookedUp = append(t.lookedUp, t.weights[t.embedding]) // its gradient is the last one
	}
}

// of returns the weights with a role in a layer.
func (t *transformer) of(layer int, role string) []*weight {
	var found []*weight
	for _, i := range t.layers[layer][role] {
		found = append(found, t.weights[i])
	}
	return found
}

// nth returns every n-th weight of a list from index i on: weight and bias of the i-th of n norms.
func nth(list []*weight, i, n int) []*weight {
	size := (len(list) + n - 1) / n
	return list[min(i*size, len(list)):min((i+1)*size, len(list))]
}

func (t *transformer) hidden() dim { return dim{"hidden", t.Hidden, t.residual} }

func perToken(n int64) dim { return dim{"statistics", n, single} }

// embed looks up tokens.
func (t *transformer) embed() *value {
	x := t.run(operation{out: t.hidden(), weights: t.lookedUp})
	if t.learned {
		x = t.then(operation{inputs: []*value{x}, out: t.hidden(), pass: true})
		x = t.dropout(x)
	}
	return x
}

// layer runs one layer. It releases x.
func (t *transformer) layer(i int, x *value) *value {
	norms := t.of(i, "norm")
	rest := slices.Concat(t.of(i, "headnorm"), t.of(i, ""))
	if t.torchMHA { // norms after the sums
		x = t.add(x, t.dropout(t.attend(i, x)))
		x = t.thenNormalize(x, nth(norms, 0, 2))
		x = t.add(x, t.dropout(t.think(i, x)))
		return t.thenNormalize(x, slices.Concat(nth(norms, 1, 2), rest))
	}
	n := t.normalize(x, slices.Concat(nth(norms, 0, 2), rest))
	branch := t.attend(i, n)
	t.release(n)
	x = t.add(x, t.dropout(branch))
	n = t.normalize(x, nth(norms, 1, 2))
	branch = t.think(i, n)
	t.release(n)
	return t.add(x, t.dropout(branch))
}

func (t *transformer) add(x, branch *value) *value {
	return t.then(operation{inputs: []*value{x, branch}, out: x.dim, pass: true})
}

func (t *transformer) dropout(x *value) *value {
	if t.o.Dropout == 0 || !t.records {
		return x
	}
	return t.then(operation{inputs: []*value{x}, out: x.dim, extra: []dim{x.of(mask)}})
}

func (t *transformer) thenNormalize(x *value, w []*weight) *value {
	out := t.normalize(x, w)
	t.release(x)
	return out
}

// normalize is LayerNorm, or RMSNorm in one kernel or in steps. It does not release x.
func (t *transformer) normalize(x *value, w []*weight) *value {
	in := []*value{x}
	first := []bool{true}
	out := t.hidden()
	switch {
	case t.layerNorm:
		return t.run(operation{inputs: in, saves: first, out: out, extra: []dim{perToken(2)}, weights: w})
	case t.o.Kernels == Fused:
		return t.run(operation{inputs: in, saves: first, out: out, extra: []dim{perToken(1)}, weights: w})
	}
	wide := x.of(single)
	steps := operation{
		out: wide, saves: first, extra: []dim{perToken(1)}, scratch: []int64{t.bytes(wide)},
		back: []int64{t.bytes(wide), t.bytes(wide)},
	}
	if t.residual == single {
		steps.inputs = in
		x = t.run(steps)
	} else {
		steps.inputs = []*value{t.run(operation{inputs: in, out: wide})}
		x = t.then(steps)
		x = t.then(operation{inputs: []*value{x}, out: out})
	}
	return t.then(operation{inputs: []*value{x}, saves: first, out: out, weights: w})
}

// product is a linear layer. Autocast makes a copy of its input for each product. It does not release x.
func (t *transformer) product(x *value, out dim, w []*weight) *value {
	op := operation{inputs: []*value{x}, saves: []bool{true}, out: out, weights: w, product: true, casts: t.amp}
	if x.bytes == t.compute {
		return t.run(op)
	}
	op.inputs[0] = t.run(operation{inputs: []*value{x}, out: x.of(t.compute)})
	return t.then(op)
}

func (t *transformer) thenProduct(x *value, out dim, w []*weight) *value {
	y := t.product(x, out, w)
	t.release(x)
	return y
}

// think is the MLP of a layer. It does not release x.
func (t *transformer) think(i int, x *value) *value {
	d := dim{"mlp", t.MLP, t.compute}
	out := dim{"hidden", t.Hidden, t.compute}
	release := func() {}
	if t.Experts > 0 { // tokens are gathered by expert
		n := max(1, t.TopK)
		x = t.run(operation{inputs: []*value{x}, out: x.dim.times(n)})
		gathered := x
		release = func() { t.release(gathered) }
		d, out = d.times(n), out.times(n)
	}
	var y *value
	switch {
	case t.fusedGate:
		both := t.product(x, d.times(2), t.of(i, "gateup"))
		y = t.run(operation{inputs: []*value{both}, saves: []bool{true}, out: d})
		y = t.then(operation{inputs: []*value{y, both}, saves: []bool{true, true}, out: d})
	case t.gated:
		gate := t.then(operation{inputs: []*value{t.product(x, d, t.of(i, "gate"))}, saves: []bool{true}, out: d})
		y = t.then(operation{
			inputs: []*value{gate, t.product(x, d, t.of(i, "up"))}, saves: []bool{true, true}, out: d,
		})
	default:
		y = t.activate(t.product(x, d, t.of(i, "up")))
	}
	release()
	y = t.thenProduct(y, out, t.of(i, "down"))
	if t.Experts > 0 { // weighted by the router, and summed
		y = t.then(operation{inputs: []*value{y}, saves: []bool{true}, out: out})
		y = t.then(operation{inputs: []*value{y}, out: t.hidden()})
	}
	return y
}

// activate is the activation between the products of an MLP: ReLU, or GELU in one kernel or in steps.
func (t *transformer) activate(x *value) *value {
	in := []*value{x}
	switch {
	case t.torchMHA:
		return t.dropout(t.then(operation{inputs: in, keeps: true, out: x.dim}))
	case t.o.Kernels == Fused || !t.o.NewGELU:
		return t.then(operation{inputs: in, saves: []bool{true}, out: x.dim})
	}
	wide := x.dim // 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))
	if t.amp {
		wide = x.of(single) // powers are computed in single precision
	}
	halved := t.run(operation{inputs: in, out: x.dim})
	cubed := x
	if t.amp {
		cubed = t.run(operation{inputs: in, out: wide})
	} else {
		share(x.memory)
		cubed = &value{dim: x.dim, memory: x.memory, from: x.from}
	}
	tanh := t.then(operation{
		inputs: []*value{cubed}, saves: []bool{true}, keeps: true, out: wide, scratch: []int64{t.bytes(wide)},
	})
	t.release(x)
	sum := t.then(operation{inputs: []*value{tanh}, out: wide})
	return t.then(operation{inputs: []*value{halved, sum}, saves: []bool{true, true}, out: wide})
}

// logits is the output layer. It releases x.
func (t *transformer) logits(x *value) *value {
	if !t.torchMHA {
		x = t.thenNormalize(x, t.lastNorm)
	}
	t.category = Logits
	return t.thenProduct(x, dim{"vocabulary", t.Vocabulary, t.compute}, t.output)
}
