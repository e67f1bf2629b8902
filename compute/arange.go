package compute

import (
	"math"
	"math/big"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// Arange returns a tensor with one axis of the numbers start + i*step, from start up to but not including stop, rounded
// to d. The numbers may have any Go type; for an integer d, start and step must be integers.
func Arange(p *tensor.Place, d dtype.DType, start, stop, step any) (*tensor.Tensor, error) {
	const op = "arange"
	if _, err := placeFor(op, p); err != nil {
		return nil, err
	}
	if err := computable(op, d); err != nil {
		return nil, err
	}
	whole := true
	var s [3]dtype.Scalar
	for i, v := range []any{start, stop, step} {
		var err error
		if s[i], err = scalarOf(op, v); err != nil {
			return nil, err
		}
		whole = whole && s[i].Kind() != dtype.KindFloat
		if s[i].Kind() == dtype.KindComplex || d == dtype.Bool ||
			(d.IsInteger() && i != 1 && s[i].Kind() == dtype.KindFloat) {
			return nil, newOpError(ErrType, op, "from %v up to %v by %v as %v", start, stop, step, d)
		}
	}
	count := realSteps
	if whole {
		count = wholeSteps
	}
	n, ok := count(s[0], s[1], s[2])
	if !ok {
		return nil, newOpError(ErrShape, op, "from %v up to %v by %v: the range is endless, empty in that direction, "+
			"or too large", start, stop, step)
	}
	dst, err := tensor.Empty(p, d, n)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op, p, dst, nil, func(q backend.Queue) error {
		return p.Backend().Arange(q, dst.Array(), s[0], s[2])
	}))
}

// wholeSteps returns the number of steps from start up to but not including stop, exactly, for integers.
func wholeSteps(start, stop, step dtype.Scalar) (n int, ok bool) {
	number := func(s dtype.Scalar) *big.Int {
		if s.Kind() == dtype.KindUnsigned {
			return new(big.Int).SetUint64(s.Uint64())
		}
		return big.NewInt(s.Int64())
	}
	by := number(step)
	distance := new(big.Int).Sub(number(stop), number(start))
	if by.Sign() == 0 || distance.Sign()*by.Sign() < 0 {
		return 0, false
	}
	steps, rest := new(big.Int).QuoRem(distance, by, new(big.Int))
	if rest.Sign() != 0 {
		steps.Add(steps, big.NewInt(1))
	}
	return int(steps.Int64()), steps.IsInt64()
}

// realSteps is wholeSteps in float64.
func realSteps(start, stop, step dtype.Scalar) (n int, ok bool) {
	from, to, by := start.Float64(), stop.Float64(), step.Float64()
	if by == 0 || math.IsNaN(by+from+to) || math.IsInf(from, 0) || math.IsInf(to, 0) || math.IsInf(by, 0) ||
		(to < from) != (by < 0) && to != from {
		return 0, false
	}
	steps := math.Ceil((to - from) / by)
	if math.IsInf(to-from, 0) {
		steps = math.Ceil(to/by - from/by)
	}
	return int(steps), steps < 1<<62
}
