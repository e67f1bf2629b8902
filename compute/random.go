package compute

import (
	"math"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// A Generator makes random numbers from a seed and a counter. The same seed and order of calls give the same numbers on
// every device and with any number of streams; backend.Random defines them. It is safe for concurrent use; a program
// that needs reproducible numbers orders the calls.
type Generator struct {
	seed uint64
	next atomic.Uint64 // the number of elements made so far
}

// NewGenerator returns a generator with its counter at 0.
func NewGenerator(seed uint64) *Generator { return &Generator{seed: seed} }

// Seed returns the seed.
func (g *Generator) Seed() uint64 { return g.seed }

// Offset returns the number of elements made so far. With the seed it is the whole state of the generator.
func (g *Generator) Offset() uint64 { return g.next.Load() }

// SetOffset sets the number of elements made so far, as Offset returned it.
func (g *Generator) SetOffset(n uint64) { g.next.Store(n) }

// Uniform returns a tensor of random numbers in [0, 1), of a floating-point type.
func (g *Generator) Uniform(p *tensor.Place, d dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return g.make(p, "uniform", d, shape, backend.Random{Distribution: backend.Uniform, Low: 0, High: 1})
}

// Normal returns a tensor of normally distributed random numbers with mean 0 and standard deviation 1, of a
// floating-point type.
func (g *Generator) Normal(p *tensor.Place, d dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return g.make(p, "normal", d, shape, backend.Random{Distribution: backend.Normal, Low: 0, High: 1})
}

// Integers returns a tensor of random integers from low up to but not including high, of an integer type or bool. The
// type must have all these values.
func (g *Generator) Integers(p *tensor.Place, d dtype.DType, low, high int64, shape ...int) (*tensor.Tensor, error) {
	return g.make(p, "integers", d, shape, backend.Random{Distribution: backend.Integers, LowInt: low, HighInt: high})
}

// Fill sets the elements of dst to random numbers of r's distribution. The generator sets r's Seed and Offset.
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

func (g *Generator) make(
	p *tensor.Place, op string, d dtype.DType, shape []int, r backend.Random,
) (*tensor.Tensor, error) {
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

// randomType fails unless elements of type d can have the values of r.
func randomType(op string, d dtype.DType, r backend.Random) error {
	if err := computable(op, d); err != nil {
		return err
	}
	if whole := r.Distribution == backend.Integers; whole == d.IsFloat() {
		return newOpError(ErrType, op, "as %v", d)
	}
	if r.Distribution == backend.Integers {
		if r.LowInt >= r.HighInt || uint64(r.HighInt)-uint64(r.LowInt) > math.MaxInt64 {
			return newOpError(ErrShape, op, "from %d up to %d: want a range of 1 to 2^63-1 numbers", r.LowInt,
				r.HighInt)
		}
		for _, v := range []int64{r.LowInt, r.HighInt - 1} {
			if s := dtype.ScalarOf(v); s.Convert(d).Int64() != v || (v < 0 && d == dtype.Uint64) {
				return newOpError(ErrType, op, "from %d up to %d as %v, which has no %d", r.LowInt, r.HighInt, d, v)
			}
		}
	}
	return nil
}
