package main

import (
	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/remat"
	"github.com/ashlar-go/ashlar/tensor"
)

// A tape runs the operations of a training step, and has the gradients of its parameters. Its methods panic with
// errors: see package try.
type tape struct {
	*model
	r         *remat.Runtime
	gradients []gradient
}

// A gradient is the gradient of the loss with respect to a parameter.
type gradient struct {
	of    parameter
	value *remat.Tensor
}

// A mathematics is a function of tensors that panics with errors. All that it makes is made at p.
type mathematics func(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor

// calls runs f on the inputs.
func (t *tape) calls(name string, f mathematics, in ...*remat.Tensor) []*remat.Tensor {
	return try.Of(t.r.Call(name, catching(f), in...))
}

// call runs f, which has one result.
func (t *tape) call(name string, f mathematics, in ...*remat.Tensor) *remat.Tensor {
	return t.calls(name, f, in...)[0]
}

func catching(f mathematics) remat.Func {
	return func(p *tensor.Place, in []*tensor.Tensor) (out []*tensor.Tensor, err error) {
		defer try.Catch(&err)
		return f(p, in), nil
	}
}

// drop releases tensors.
func drop(tensors ...*remat.Tensor) {
	for _, x := range tensors {
		x.Release()
	}
}

func (t *tape) add(x, y *remat.Tensor) *remat.Tensor {
	return try.Of(remat.Apply2(t.r, compute.Add, x, y))
}

// sum returns x+y and releases both.
func (t *tape) sum(x, y *remat.Tensor) *remat.Tensor {
	defer drop(x, y)
	return t.add(x, y)
}

// product returns x·w.
func (t *tape) product(x, w *remat.Tensor) *remat.Tensor {
	return try.Of(remat.Apply2(t.r, compute.MatMul, x, w))
}

// linear returns x·wᵀ for x, [rows n], and w, [m n].
func (t *tape) linear(x, w *remat.Tensor) *remat.Tensor {
	return t.call("linear", productOf(false, true), x, w)
}

// linearBack returns the gradient with respect to x of linear(x, w) from that with respect to its result, and notes
// that with respect to w.
func (t *tape) linearBack(w parameter, x, dy *remat.Tensor) *remat.Tensor {
	t.gradients = append(t.gradients, gradient{w, t.call("linear weights", productOf(true, false), dy, x)})
	return t.product(dy, w.weight)
}

// productOf returns the function of the product of two matrices, either of which may be transposed.
func productOf(first, second bool) mathematics {
	return func(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
		x, y := in[0], in[1]
		if first {
			x = x.T()
		}
		if second {
			y = y.T()
		}
		return []*tensor.Tensor{try.Of(compute.MatMul(p, x, y))}
	}
}

func (t *tape) norm(x, w *remat.Tensor) *remat.Tensor {
	return t.call("norm", func(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{try.Of(compute.RMSNorm(p, in[0], in[1], epsilon))}
	}, x, w)
}

// normBack returns the gradient with respect to x of norm(x, w), and notes that with respect to w. With r = 1/√(mean of
// x² + ε) they are r·dy·w - x·r³·mean(dy·w·x), and dy·x·r summed over the rows.
func (t *tape) normBack(w parameter, x, dy *remat.Tensor) *remat.Tensor {
	d := t.calls("norm back", func(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
		x, w, dy := in[0], in[1], in[2]
		r := try.Of(compute.Mul(p, x, x))
		r = rowMean(p, r)
		into(p, r, backend.Add, r, epsilon)
		r = try.Of(compute.Rsqrt(p, r))
		dx := try.Of(compute.Mul(p, dy, x))
		dw := try.Of(compute.Mul(p, dx, r))
		dw = try.Of(compute.Sum(p, dw, 0))
		into(p, dx, backend.Mul, dx, w)
		mean := rowMean(p, dx)
		for range 3 {
			into(p, mean, backend.Mul, mean, r)
		}
		into(p, dx, backend.Mul, x, mean)
		first := try.Of(compute.Mul(p, dy, w))
		into(p, first, backend.Mul, first, r)
		into(p, dx, backend.Sub, first, dx)
		return []*tensor.Tensor{dx, dw}
	}, x, w.weight, dy)
	t.gradients = append(t.gradients, gradient{w, d[1]})
	return d[0]
}

// rowMean returns the mean of each row, as a column.
func rowMean(p *tensor.Place, x *tensor.Tensor) *tensor.Tensor {
	return try.Of(compute.Reduce(p, backend.Mean, x, compute.Over{Axes: []int{-1}, Keep: true}))
}

func into(p *tensor.Place, dst *tensor.Tensor, op backend.BinaryOp, x, y compute.Operand) {
	try.Check(compute.BinaryInto(p, dst, op, x, y))
}

// oneHot returns [rows n], with a one in each row at the index of its token.
func (t *tape) oneHot(tokens *remat.Tensor, n int) *remat.Tensor {
	d := t.dtype
	return t.call("one hot", func(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{oneHot(p, in[0], n, d)}
	}, tokens)
}

func oneHot(p *tensor.Place, tokens *tensor.Tensor, n int, d dtype.DType) *tensor.Tensor {
	all := try.Of(compute.Arange(p, dtype.Int64, 0, n, 1))
	equal := try.Of(compute.Equal(p, try.Of(tokens.Unsqueeze(1)), all))
	return try.Of(equal.Cast(p, d))
}

// loss returns the mean cross-entropy of softmax(logits) for the tokens next, and its gradient with respect to the
// logits.
func (t *tape) loss(logits, next *remat.Tensor) (loss, dLogits *remat.Tensor) {
	out := t.calls("loss", func(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
		logits, rows, d := in[0], in[0].Dim(0), in[0].DType()
		right := oneHot(p, in[1], logits.Dim(1), d)
		entropy := try.Of(compute.LogSoftmax(p, logits, 1))
		into(p, entropy, backend.Mul, entropy, right)
		entropy = try.Of(entropy.Cast(p, dtype.Float32))
		loss := try.Of(compute.Div(p, try.Of(compute.Sum(p, entropy)), -rows))
		dLogits := try.Of(compute.Softmax(p, logits, 1))
		into(p, dLogits, backend.Sub, dLogits, right)
		into(p, dLogits, backend.Div, dLogits, rows)
		return []*tensor.Tensor{loss, dLogits}
	}, logits, next)
	return out[0], out[1]
}

// rotated returns x, [rows width], as [batch heads tokens width/heads], with the vectors rotated by the angles of their
// positions. It releases x.
func (t *tape) rotated(x *remat.Tensor) *remat.Tensor {
	defer drop(x)
	m := t.model
	return t.call("rotate", func(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{rotate(p, m.split(in[0]), in[1], in[2], backend.Sub, backend.Add)}
	}, x, m.cos, m.sin)
}

// rotate rotates vectors, forwards with Sub and Add and back with Add and Sub. The two coordinates of a rotated point
// are half a vector apart.
func rotate(p *tensor.Place, x, cos, sin *tensor.Tensor, first, second backend.BinaryOp) *tensor.Tensor {
	y := try.Of(tensor.Empty(p, x.DType(), x.Shape()...))
	from, to := try.Of(x.Chunk(-1, 2)), try.Of(y.Chunk(-1, 2))
	for i, op := range []backend.BinaryOp{first, second} {
		into(p, to[i], backend.Mul, from[i], cos)
		other := try.Of(compute.Mul(p, from[1-i], sin))
		into(p, to[i], op, to[i], other)
		other.Release()
	}
	return y
}

// split returns x, [rows width], as a view [batch heads tokens width/heads].
func (m *model) split(x *tensor.Tensor) *tensor.Tensor {
	return try.Of(try.Of(x.Reshape(m.batch, m.tokens, m.heads, -1)).Transpose(1, 2))
}

// merge returns x, [batch heads tokens width/heads], as [rows width].
func (m *model) merge(p *tensor.Place, x *tensor.Tensor) *tensor.Tensor {
	side := try.Of(try.Of(x.Transpose(1, 2)).Contiguous(p))
	return try.Of(side.Reshape(m.rows(), m.width))
}

// update makes a step of gradient descent with momentum, and releases the gradients. A weight is changed as soon as
// nothing needs it any more in this step: so gradients are short-lived.
func (t *tape) update() {
	f := catching(func(p *tensor.Place, in []*tensor.Tensor) []*tensor.Tensor {
		w, v, g := in[0], in[1], in[2]
		into(p, v, backend.Mul, v, momentum)
		into(p, v, backend.Add, v, g)
		into(p, w, backend.Sub, w, try.Of(compute.Mul(p, v, rate)))
		return nil
	})
	for _, g := range t.gradients {
		op := remat.Op{Name: "update", Func: f, Writes: []int{0, 1}}
		try.Of(t.r.Do(op, g.of.weight, g.of.velocity, g.value))
		drop(g.value)
	}
	t.gradients = t.gradients[:0]
}
