package main

import (
	"math"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/remat"
	"github.com/ashlar-go/ashlar/tensor"
)

const (
	epsilon  = 1e-5
	rate     = 0.05
	momentum = 0.9
)

// A shape is the shape of a model and of its batches.
type shape struct {
	layers, width, heads, hidden int
	vocabulary, tokens, batch    int
	dtype                        dtype.DType
}

func (s shape) rows() int { return s.batch * s.tokens }

// A parameter is a matrix or vector of weights with its velocity. Both stay in memory.
type parameter struct{ weight, velocity *remat.Tensor }

// A model is a stack of layers between an embedding and a projection to the vocabulary. Its methods run through a
// remat.Runtime, and panic with errors: see package try.
type model struct {
	shape
	r            *remat.Runtime
	constants    []*tensor.Tensor // of the handles below
	cos, sin     *remat.Tensor    // [tokens width/heads/2]
	mask         *remat.Tensor    // [tokens tokens]: 0 for what a token sees, -inf elsewhere
	embedding    parameter        // [vocabulary width]
	layers       []*layer
	norm, output parameter // [width], [vocabulary width]
}

// A layer has the weights of a Llama block, as a block does.
type layer struct {
	*model
	attentionNorm, mlpNorm parameter // [width]
	q, k, v, out           parameter // [width width]
	gate, up               parameter // [hidden width]
	down                   parameter // [width hidden]
}

// newModel returns a model with random weights. Its parameters are made at r's place.
func newModel(r *remat.Runtime, s shape, seed uint64) *model {
	m := &model{shape: s, r: r}
	g := compute.NewGenerator(seed)
	width, hidden := s.width, s.hidden
	m.rotary()
	m.embedding = m.random(g, s.vocabulary, width)
	for range s.layers {
		m.layers = append(m.layers, &layer{
			model: m, attentionNorm: m.ones(), mlpNorm: m.ones(),
			q: m.random(g, width, width), k: m.random(g, width, width), v: m.random(g, width, width),
			out: m.random(g, width, width), gate: m.random(g, hidden, width), up: m.random(g, hidden, width),
			down: m.random(g, width, hidden),
		})
	}
	m.norm, m.output = m.ones(), m.random(g, s.vocabulary, width)
	return m
}

// rotary makes the angles of positions, and the mask.
func (m *model) rotary() {
	half := m.width / m.heads / 2
	cos, sin := make([]float32, m.tokens*half), make([]float32, m.tokens*half)
	for i := range cos {
		position, pair := float64(i/half), float64(i%half)
		s, c := math.Sincos(position * math.Pow(10000, -pair/float64(half)))
		cos[i], sin[i] = float32(c), float32(s)
	}
	mask := make([]float32, m.tokens*m.tokens)
	for i := range mask {
		if i%m.tokens > i/m.tokens {
			mask[i] = float32(math.Inf(-1))
		}
	}
	m.cos, m.sin = m.fromSlice(cos, m.tokens, half), m.fromSlice(sin, m.tokens, half)
	m.mask = m.fromSlice(mask, m.tokens, m.tokens)
}

func (m *model) fromSlice(numbers []float32, shape ...int) *remat.Tensor {
	s := m.r.Place().Scope()
	defer s.Close()
	x := try.Of(tensor.FromSlice(s.Place, numbers, shape...))
	return m.constant(s.Keep(try.Of(x.Cast(s.Place, m.dtype))))
}

// random returns weights of rows and columns whose products with numbers of size 1 have size 1.
func (m *model) random(g *compute.Generator, rows, columns int) parameter {
	s := m.r.Place().Scope()
	defer s.Close()
	w := try.Of(g.Normal(s.Place, m.dtype, rows, columns))
	try.Check(compute.BinaryInto(s.Place, w, backend.Div, w, math.Sqrt(float64(columns))))
	return parameter{m.constant(s.Keep(w)), m.zeros(rows, columns)}
}

func (m *model) ones() parameter {
	return parameter{m.constant(try.Of(tensor.Full(m.r.Place(), m.dtype, 1, m.width))), m.zeros(m.width)}
}

func (m *model) zeros(shape ...int) *remat.Tensor {
	return m.constant(try.Of(tensor.Zeros(m.r.Place(), m.dtype, shape...)))
}

func (m *model) constant(x *tensor.Tensor) *remat.Tensor {
	m.constants = append(m.constants, x)
	return try.Of(m.r.Constant(x))
}

// release releases the memory of the constants, after the runtime was closed.
func (m *model) release() {
	for _, x := range m.constants {
		x.Release()
	}
}

// step makes a training step and returns its loss, a scalar tensor. x and y, int64[rows], are tokens and those that
// follow them. Everything else that the step made is released.
func (m *model) step(x, y *tensor.Tensor) *remat.Tensor {
	s := m.r.Scope()
	defer s.Close()
	t := &tape{r: s.Runtime, model: m}
	tokens, next := try.Of(s.Constant(x)), try.Of(s.Constant(y))
	words := t.oneHot(tokens, m.vocabulary)
	h := t.product(words, m.embedding.weight)
	var kept []*activations
	for _, l := range m.layers {
		a := l.forward(t, h)
		kept, h = append(kept, a), a.out
	}
	normed := t.norm(h, m.norm.weight)
	logits := t.linear(normed, m.output.weight)
	loss, dLogits := t.loss(logits, next)
	drop(logits)
	dNormed := t.linearBack(m.output, normed, dLogits)
	drop(normed, dLogits)
	dh := t.normBack(m.norm, h, dNormed)
	drop(dNormed, h)
	for i := len(kept) - 1; i >= 0; i-- {
		dh = m.layers[i].backward(t, kept[i], dh)
	}
	t.gradients = append(t.gradients, gradient{m.embedding, t.call("embedding", productOf(true, false), words, dh)})
	drop(words, dh)
	t.update()
	return s.Keep(loss)
}

// activations are the tensors that the backward pass of a layer reads.
type activations struct {
	in, normed, q, k, v, weights, attended *remat.Tensor
	mid, normed2, gate, up, active, out    *remat.Tensor
}

// forward returns the output of a layer for x, [rows width], and what its backward pass reads.
func (l *layer) forward(t *tape, x *remat.Tensor) *activations {
	a := &activations{in: x}
	a.normed = t.norm(x, l.attentionNorm.weight)
	a.q, a.k = t.rotated(t.linear(a.normed, l.q.weight)), t.rotated(t.linear(a.normed, l.k.weight))
	a.v = t.linear(a.normed, l.v.weight)
	a.weights = t.call("weights", l.weightsOf, a.q, a.k, l.mask)
	a.attended = t.call("attend", l.attend, a.weights, a.v)
	o := t.linear(a.attended, l.out.weight)
	a.mid = t.add(x, o)
	drop(o)
	a.normed2 = t.norm(a.mid, l.mlpNorm.weight)
	a.gate, a.up = t.linear(a.normed2, l.gate.weight), t.linear(a.normed2, l.up.weight)
	a.active = t.call("swiglu", swiglu, a.gate, a.up)
	d := t.linear(a.active, l.down.weight)
	a.out = t.add(a.mid, d)
	drop(d)
	return a
}

// backward returns the gradient with respect to the input of a layer from that with respect to its output, and changes
// the weights by their gradients. It releases dy, and the activations except the output.
func (l *layer) backward(t *tape, a *activations, dy *remat.Tensor) *remat.Tensor {
	dActive := t.linearBack(l.down, a.active, dy)
	drop(a.active)
	d := t.calls("swiglu back", swigluBack, a.gate, a.up, dActive)
	drop(a.gate, a.up, dActive)
	dNormed := t.sum(t.linearBack(l.gate, a.normed2, d[0]), t.linearBack(l.up, a.normed2, d[1]))
	drop(a.normed2, d[0], d[1])
	dMid := t.sum(dy, t.normBack(l.mlpNorm, a.mid, dNormed))
	drop(dNormed, a.mid)
	dAttended := t.linearBack(l.out, a.attended, dMid)
	drop(a.attended)
	d = t.calls("attention back", l.attentionBack, a.q, a.k, a.v, a.weights, dAttended, l.cos, l.sin)
	drop(a.q, a.k, a.v, a.weights, dAttended)
	dNormed = t.sum(t.linearBack(l.q, a.normed, d[0]), t.linearBack(l.k, a.normed, d[1]))
	dNormed = t.sum(dNormed, t.linearBack(l.v, a.normed, d[2]))
	drop(a.normed, d[0], d[1], d[2])
	dx := t.sum(dMid, t.normBack(l.attentionNorm, a.in, dNormed))
	drop(dNormed, a.in)
	t.update()
	return dx
}
