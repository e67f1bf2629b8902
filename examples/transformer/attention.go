package main

import (
	"math"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/tensor"
)

// weightsOf returns softmax(q kᵀ / √d + mask), [batch heads tokens tokens].
func (m *model) weightsOf(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
	q, k, mask := in[0], in[1], in[2]
	scores := try.Of(compute.MatMul(p, q, try.Of(k.MT())))
	into(p, scores, backend.Mul, scores, m.scale())
	into(p, scores, backend.Add, scores, mask)
	return []*tensor.Tensor{try.Of(compute.Softmax(p, scores, -1))}
}

// scale returns 1/√d.
func (m *model) scale() float64 { return 1 / math.Sqrt(float64(m.width/m.heads)) }

// attend returns the weighted sums of values, [rows width].
func (m *model) attend(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
	weights, v := in[0], in[1]
	return []*tensor.Tensor{m.merge(p, try.Of(compute.MatMul(p, weights, m.split(v))))}
}

// attentionBack returns the gradients with respect to the vectors that became queries, keys and values, each [rows
// width], from that with respect to the result of attend.
func (m *model) attentionBack(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
	q, k, v, weights, dy, cos, sin := in[0], in[1], m.split(in[2]), in[3], m.split(in[4]), in[5], in[6]
	dv := try.Of(compute.MatMul(p, try.Of(weights.MT()), dy))
	ds := try.Of(compute.MatMul(p, dy, try.Of(v.MT())))
	into(p, ds, backend.Mul, ds, weights) // the gradient of softmax is w·dw - w·sum(w·dw)
	sums := try.Of(compute.Reduce(p, backend.Sum, ds, compute.Over{Axes: []int{-1}, Keep: true}))
	part := try.Of(compute.Mul(p, weights, sums))
	into(p, ds, backend.Sub, ds, part)
	part.Release()
	into(p, ds, backend.Mul, ds, m.scale())
	dq, dk := try.Of(compute.MatMul(p, ds, k)), try.Of(compute.MatMul(p, try.Of(ds.MT()), q))
	ds.Release()
	back := func(d *tensor.Tensor) *tensor.Tensor {
		return m.merge(p, rotate(p, d, cos, sin, backend.Add, backend.Sub))
	}
	return []*tensor.Tensor{back(dq), back(dk), m.merge(p, dv)}
}

// swiglu returns silu(gate)·up.
func swiglu(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
	y := try.Of(compute.Silu(p, in[0]))
	into(p, y, backend.Mul, y, in[1])
	return []*tensor.Tensor{y}
}

// swigluBack returns the gradients of swiglu with respect to gate and up. With s = sigmoid(gate) they are
// dy·up·s·(1 + gate·(1-s)) and dy·silu(gate).
func swigluBack(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
	gate, up, dy := in[0], in[1], in[2]
	dUp := try.Of(compute.Silu(p, gate))
	into(p, dUp, backend.Mul, dUp, dy)
	s := try.Of(compute.Sigmoid(p, gate))
	d := try.Of(compute.Sub(p, 1, s))
	into(p, d, backend.Mul, d, gate)
	into(p, d, backend.Add, d, 1)
	into(p, d, backend.Mul, d, s)
	into(p, d, backend.Mul, d, up)
	into(p, d, backend.Mul, d, dy)
	return []*tensor.Tensor{d, dUp}
}
