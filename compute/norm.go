package compute

import (
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/tensor"
)

// Softmax returns exp(x) divided by its sum along axis. It subtracts the maximum first, so nothing overflows.
func Softmax(p *tensor.Place, x *tensor.Tensor, axis int) (*tensor.Tensor, error) {
	return softmax(p, "softmax", false, x, axis)
}

// LogSoftmax returns the logarithm of Softmax, with a smaller error than the logarithm of the result of Softmax.
func LogSoftmax(p *tensor.Place, x *tensor.Tensor, axis int) (*tensor.Tensor, error) {
	return softmax(p, "log_softmax", true, x, axis)
}

func softmax(p *tensor.Place, op string, log bool, x *tensor.Tensor, axis int) (*tensor.Tensor, error) {
	p, err := placeFor(op, p, x)
	if err != nil {
		return nil, err
	}
	if err := floats(op, x); err != nil {
		return nil, err
	}
	if axis, err = axisOf(op, x, axis); err != nil {
		return nil, err
	}
	dst, err := tensor.Empty(p, x.DType(), x.Shape()...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op, p, dst, []*tensor.Tensor{x}, func(q backend.Queue) error {
		return p.Backend().Softmax(q, log, dst.Array(), x.Array(), axis)
	}))
}

// floats fails unless x has a floating-point type that operations support.
func floats(op string, x *tensor.Tensor) error {
	if err := computable(op, x.DType()); err != nil {
		return err
	}
	if !x.DType().IsFloat() {
		return newOpError(ErrType, op, "of %s: want a floating-point type", x.Brief())
	}
	return nil
}

// LayerNorm normalizes x over its last axes, as many as weight has: (x-mean)/sqrt(variance+eps)*weight + bias, with the
// population variance. bias may be nil. All have the same type.
func LayerNorm(p *tensor.Place, x, weight, bias *tensor.Tensor, eps float64) (*tensor.Tensor, error) {
	return norm(p, "layer_norm", false, x, weight, bias, eps)
}

// RMSNorm normalizes x over its last axes, as many as weight has: x/sqrt(mean of squares+eps)*weight. Both have the
// same type.
func RMSNorm(p *tensor.Place, x, weight *tensor.Tensor, eps float64) (*tensor.Tensor, error) {
	return norm(p, "rms_norm", true, x, weight, nil, eps)
}

func norm(p *tensor.Place, op string, rms bool, x, weight, bias *tensor.Tensor, eps float64) (*tensor.Tensor, error) {
	operands := []*tensor.Tensor{x, weight}
	if bias.Defined() {
		operands = append(operands, bias)
	}
	p, err := placeFor(op, p, operands...)
	if err != nil {
		return nil, err
	}
	if err := floats(op, x); err != nil {
		return nil, err
	}
	shape, n := x.Shape(), weight.Rank()
	if n == 0 || n > len(shape) {
		return nil, newOpError(ErrShape, op, "%s by weights %s: want the shape of the last axes", x.Brief(),
			weight.Brief())
	}
	for i, o := range operands[1:] {
		what := []string{"weights", "bias"}[i]
		if o.DType() != x.DType() {
			return nil, newOpError(ErrType, op, "%s by %s %s: want one type", x.Brief(), what, o.Brief())
		}
		if !slices.Equal(o.Array().Shape, shape[len(shape)-n:]) {
			return nil, newOpError(ErrShape, op, "%s by %s %s: want %v", x.Brief(), what, o.Brief(),
				shape[len(shape)-n:])
		}
	}
	dst, err := tensor.Empty(p, x.DType(), shape...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op, p, dst, operands, func(q backend.Queue) error {
		w := weight.Array()
		var b *backend.Array
		if bias.Defined() {
			array := bias.Array()
			b = &array
		}
		return p.Backend().Norm(q, rms, dst.Array(), x.Array(), n, &w, b, eps)
	}))
}

// Norm returns the square roots of the sums of squares over axes.
func Norm(p *tensor.Place, x *tensor.Tensor, axes ...int) (*tensor.Tensor, error) {
	return Reduce(p, backend.Norm2, x, Over{Axes: axes})
}
