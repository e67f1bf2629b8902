package main

import (
	"math"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/tensor"
)

const (
	pixels  = 64
	hidden  = 128
	classes = 10
)

// operations is the number of operations of the products with the weights for each row, forward; backward takes twice
// as many.
const operations = 2 * (pixels*hidden + hidden*classes)

// A network computes relu(x@w1 + b1)@w2 + b2, ten scores for each row of pixels. Its methods panic with errors: see
// package try.
type network struct {
	w1, b1, w2, b2 *tensor.Tensor
	velocity       []*tensor.Tensor // of the parameters; nil before the first update
}

// newNetwork returns a network at p with small random weights and zero biases.
func newNetwork(p *tensor.Place, seed uint64) *network {
	g := compute.NewGenerator(seed)
	random := func(from, to int) *tensor.Tensor {
		w := try.Of(g.Normal(p, dtype.Float32, from, to))
		try.Check(compute.BinaryInto(p, w, backend.Mul, w, math.Sqrt(2/float64(from))))
		return w
	}
	return &network{
		w1: random(pixels, hidden), b1: try.Of(tensor.Zeros(p, dtype.Float32, hidden)),
		w2: random(hidden, classes), b2: try.Of(tensor.Zeros(p, dtype.Float32, classes)),
	}
}

func (n *network) parameters() []*tensor.Tensor { return []*tensor.Tensor{n.w1, n.b1, n.w2, n.b2} }

// forward returns the hidden layer and the output for x, float32[m pixels].
func (n *network) forward(p *tensor.Place, x *tensor.Tensor) (h, y *tensor.Tensor) {
	z := try.Of(compute.Add(p, try.Of(compute.MatMul(p, x, n.w1)), n.b1))
	h = try.Of(compute.Relu(p, z))
	y = try.Of(compute.Add(p, try.Of(compute.MatMul(p, h, n.w2)), n.b2))
	return h, y
}

// backward returns the mean cross-entropy of softmax(y) for labels, uint8[m], and its gradients with respect to the
// parameters.
func (n *network) backward(
	p *tensor.Place, x, h, y, labels *tensor.Tensor,
) (loss *tensor.Tensor, gradients []*tensor.Tensor) {
	m := x.Dim(0)
	digits := try.Of(compute.Arange(p, dtype.Uint8, 0, classes, 1))
	right := try.Of(compute.Equal(p, try.Of(labels.Unsqueeze(1)), digits)) // one-hot, bool[m classes]

	entropy := try.Of(compute.Mul(p, try.Of(compute.LogSoftmax(p, y, 1)), right))
	loss = try.Of(compute.Div(p, try.Of(compute.Sum(p, entropy)), -m))

	dy := try.Of(compute.Sub(p, try.Of(compute.Softmax(p, y, 1)), right))
	try.Check(compute.BinaryInto(p, dy, backend.Div, dy, m))
	dw2 := try.Of(compute.MatMul(p, h.T(), dy))
	db2 := try.Of(compute.Sum(p, dy, 0))
	dh := try.Of(compute.MatMul(p, dy, n.w2.T()))
	dz := try.Of(compute.Mul(p, dh, try.Of(compute.Greater(p, h, 0))))
	dw1 := try.Of(compute.MatMul(p, x.T(), dz))
	db1 := try.Of(compute.Sum(p, dz, 0))
	return loss, []*tensor.Tensor{dw1, db1, dw2, db2}
}

// update makes a step of gradient descent with momentum. The first gradients become the velocity and keep their memory,
// which is among that released at the end of the step.
func (n *network) update(step *tensor.Scope, gradients []*tensor.Tensor, rate, momentum float64) {
	p := step.Place
	if n.velocity == nil {
		for _, g := range gradients {
			n.velocity = append(n.velocity, step.Keep(g))
		}
	} else {
		for i, v := range n.velocity {
			try.Check(compute.BinaryInto(p, v, backend.Mul, v, momentum))
			try.Check(compute.BinaryInto(p, v, backend.Add, v, gradients[i]))
		}
	}
	for i, w := range n.parameters() {
		try.Check(compute.BinaryInto(p, w, backend.Sub, w, try.Of(compute.Mul(p, n.velocity[i], rate))))
	}
}
