package compute

import (
	"math"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// A Generator makes random numbers by counting: the same seed gives the same numbers, in the same order of calls, on every
// device and with any number of streams. See backend.Random for how. Safe for concurrent use; who wants the same numbers
// each time orders the calls.
type Generator struct {
	seed uint64
	next atomic.Uint64 // of the elements made so far: the counter
}

// NewGenerator returns a generator that starts at the beginning.
func NewGenerator(seed uint64) *Generator { return &Generator{seed: seed} }

// Seed returns the seed, and Offset the count of elements made so far.
func (g *Generator) Seed() uint64 { return g.seed }

// Offset returns the count of elements made so far: with the seed, all of the generator's state.
func (g *Generator) Offset() uint64 { return g.next.Load() }

// SetOffset continues from a count that Offset returned.
func (g *Generator) SetOffset(n uint64) { g.next.Store(n) }

// Uniform returns a tensor of random numbers between 0 and 1, which is not among them, of a floating-point type.
func (g *Generator) Uniform(p *tensor.Place, d dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return g.make(p, "uniform", d, shape, backend.Random{Distribution: backend.Uniform, Low: 0, High: 1})
}

// Normal returns a tensor of normally distributed random numbers with mean 0 and standard deviation 1, of a floating-point
// type.
func (g *Generator) Normal(p *tensor.Place, d dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return g.make(p, "normal", d, shape, backend.Random{Distribution: backend.Normal, Low: 0, High: 1})
}

// Integers returns a tensor of random integers from low up to, and without, high, of an integer type or bool. They must be
// values of the type.
func (g *Generator) Integers(p *tensor.Place, d dtype.DType, low, high int64, shape ...int) (*tensor.Tensor, error) {
	return g.make(p, "integers", d, shape, backend.Random{Distribution: backend.Integers, LowInt: low, HighInt: high})
}

// Fill sets the elements of dst to random numbers as r says, whose Seed and Offset are the generator's.
func (g *Generator) Fill(p *tensor.Place, dst *tensor.Tensor, r backend.Random) error {
	const op = "random"
	p, err := placeFor(op, p, dst)
	if err != nil {
		return err
	}
	if err := randomType(op, dst.DType(), r); err != nil {
		return err
	}
	if err := dst.Writable(op, p); err != nil {
		return err
	}
	r.Seed, r.Offset = g.seed, g.next.Add(uint64(dst.Len()))-uint64(dst.Len())
	return queue(op, p, dst, nil, func(q backend.Queue) error { return p.Backend().Random(q, dst.Array(), r) })
}

func (g *Generator) make(p *tensor.Place, op string, d dtype.DType, shape []int, r backend.Random) (*tensor.Tensor, error) {
	if _, err := placeFor(op, p); err != nil {
		return nil, err
	}
	if err := randomType(op, d, r); err != nil {
		return nil, err
	}
	dst, err := tensor.Empty(p, d, shape...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, g.Fill(p, dst, r))
}

// randomType fails unless elements of type d can be such numbers.
func randomType(op string, d dtype.DType, r backend.Random) error {
	if err := computable(op, d); err != nil {
		return err
	}
	if whole := r.Distribution == backend.Integers; whole == d.IsFloat() {
		return newOpError(ErrType, op, "as %v", d)
	}
	if r.Distribution == backend.Integers {
		if r.LowInt >= r.HighInt || uint64(r.HighInt)-uint64(r.LowInt) > math.MaxInt64 {
			return newOpError(ErrShape, op, "from %d up to %d: want a range, of less than 2^63 numbers", r.LowInt, r.HighInt)
		}
		for _, v := range []int64{r.LowInt, r.HighInt - 1} {
			if s := dtype.ScalarOf(v); s.Convert(d).Int64() != v || (v < 0 && d == dtype.Uint64) {
				return newOpError(ErrType, op, "from %d up to %d as %v, which has no %d", r.LowInt, r.HighInt, d, v)
			}
		}
	}
	return nil
}
