package host

import (
	"math/bits"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// Arange sets dst to start + i*step.
func (b *Backend) Arange(q backend.Queue, dst backend.Array, start, step dtype.Scalar) error {
	switch d := dst.DType; {
	case d.IsInteger():
		first, by := wrapped(start), wrapped(step)
		return generate(b, q, "arange", dst, dtype.Int64, moderate, func(lo int, to []int64) {
			for i := range to {
				to[i] = first + int64(lo+i)*by
			}
		})
	case d == dtype.Float64:
		first, by := start.Float64(), step.Float64()
		return generate(b, q, "arange", dst, dtype.Float64, moderate, func(lo int, to []float64) {
			for i := range to {
				to[i] = first + float64(float64(lo+i)*by)
			}
		})
	case d == dtype.Float32 || computed(d) != d:
		first, by := start.Float64(), step.Float64()
		return generate(b, q, "arange", dst, dtype.Float32, moderate, func(lo int, to []float32) {
			for i := range to {
				to[i] = float32(first + float64(float64(lo+i)*by))
			}
		})
	}
	return unsupportedCall("arange", dst.DType)
}

// wrapped returns an integer modulo 2^64, and a float truncated.
func wrapped(s dtype.Scalar) int64 {
	if s.Kind() == dtype.KindUnsigned {
		return int64(s.Uint64())
	}
	return s.Int64()
}

// Random sets dst to the numbers that r determines.
func (b *Backend) Random(q backend.Queue, dst backend.Array, r backend.Random) error {
	d := dst.DType
	real := d == dtype.Float32 || d == dtype.Float64 || computed(d) != d
	switch {
	case r.Distribution == backend.Integers && (d.IsInteger() || d == dtype.Bool):
		span := uint64(r.HighInt) - uint64(r.LowInt)
		return generate(b, q, "random integers", dst, dtype.Int64, slow, func(lo int, to []int64) {
			for i := range to {
				upper, _ := bits.Mul64(randomBits(&r, lo+i), span)
				to[i] = r.LowInt + int64(upper)
			}
		})
	case r.Distribution == backend.Uniform && real:
		limit, width := nextBelow(r.High, d), r.High-r.Low
		return generate(b, q, "random uniform", dst, dtype.Float64, slow, func(lo int, to []float64) {
			for i := range to {
				u := float64(randomBits(&r, lo+i)>>11) * 0x1p-53
				v := r.Low + float64(u*width)
				if v > limit && r.Low < r.High { // it would be rounded to limit, or beyond
					v = limit
				}
				to[i] = v
			}
		})
	case r.Distribution == backend.Normal && real:
		return generate(b, q, "random normal", dst, dtype.Float64, 2*slow, func(lo int, to []float64) {
			for i := range to {
				p := (float64(randomBits(&r, lo+i)>>12) + 0.5) * 0x1p-52
				to[i] = r.Low + float64(r.High*backend.NormInv(p))
			}
		})
	}
	return unsupportedCall("random", d)
}

// randomBits returns the 64 random bits of element i.
func randomBits(r *backend.Random, i int) uint64 {
	w := backend.Philox(r.Offset+uint64(i), r.Seed)
	return uint64(w[0]) | uint64(w[1])<<32
}

// nextBelow returns the largest number of type d that is less than x.
func nextBelow(x float64, d dtype.DType) float64 {
	bytes := bytesOf(make([]uint64, 1))[:d.Size()]
	dtype.ScalarOf(x).Put(bytes, d)
	value := func() float64 { return d.Load(bytes).Float64() }
	if value() < x {
		return value()
	}
	switch d.Size() {
	case 2:
		stepDown(&viewOf[uint16](bytes)[0])
	case 4:
		stepDown(&viewOf[uint32](bytes)[0])
	case 8:
		stepDown(&viewOf[uint64](bytes)[0])
	}
	return value()
}

// stepDown changes the bits of a float to those of the next number below it.
func stepDown[T uint16 | uint32 | uint64](bits *T) {
	sign := ^(^T(0) >> 1)
	switch {
	case *bits&^sign == 0:
		*bits = sign | 1
	case *bits&sign != 0:
		*bits++
	default:
		*bits--
	}
}

// generate queues a kernel that makes elements from their row-major numbers: fill sets to[i] to that with number lo+i,
// of type from, which is converted to dst's.
func generate[T any](
	b *Backend, q backend.Queue, name string, dst backend.Array, from dtype.DType, cost int, fill func(lo int, to []T),
) error {
	to := out(dst)
	p := planOf(dst.Shape, nil, to)
	if p.n == 0 {
		return nil
	}
	return b.launch(q, name, func(mem *[maxOperands][]byte) {
		b.parallelRanges(p.n, grainBytes/(to.size+cost), func(lo, hi int) {
			work := workspaces.Get().(*workspace)
			defer workspaces.Put(work)
			w := writerOf(&p, 0, mem[0], to.dtype, from, work)
			for lo < hi {
				n := p.length(lo, hi, w.staged())
				fill(lo, viewOf[T](w.block(lo, n)))
				w.commit()
				lo += n
			}
		})
	}, to)
}
