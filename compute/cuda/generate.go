package cuda

import (
	"math"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// generation is struct Generate of kernels/generate.cu.
type generation struct {
	dst         driver.Pointer
	base, seed  uint64
	first, step int64
	low, by     float64
	limit       float64
	walk        walk[[1][backend.MaxRank]int64]
}

// What is made from the numbers of elements.
const (
	makeArange = iota
	makeIntegers
	makeUniform
	makeNormal
	makeCount
)

var generations = newFamily(makeCount*typeCount, unsafe.Sizeof(generation{}), func(i int) (module, kernel string) {
	d := dtype.DType(i % typeCount)
	name := [...]string{"arange", "integers", "uniform", "normal"}[i/typeCount]
	switch which := i / typeCount; {
	case which <= makeIntegers && d.Kind() == dtype.KindUnsigned, which != makeIntegers && isFloat(d):
		return "generate", name + "_" + elements[d]
	}
	return "", ""
})

// Arange sets dst to start + i*step.
func (b *Backend) Arange(q backend.Queue, dst backend.Array, start, step dtype.Scalar) error {
	if !isNumber(dst.DType) {
		return unsupported("Arange", "of %v", dst.DType)
	}
	return b.generate(q, makeArange, &dst, generation{
		first: start.Int64(), step: step.Int64(), low: start.Float64(), by: step.Float64(),
	})
}

// Random sets dst to the numbers that r determines.
func (b *Backend) Random(q backend.Queue, dst backend.Array, r backend.Random) error {
	d := dst.DType
	p := generation{base: r.Offset, seed: r.Seed}
	switch {
	case r.Distribution == backend.Uniform && isFloat(d):
		p.low, p.by, p.limit = r.Low, r.High-r.Low, math.Inf(1)
		if r.Low < r.High {
			p.limit = below(r.High, d)
		}
		return b.generate(q, makeUniform, &dst, p)
	case r.Distribution == backend.Normal && isFloat(d):
		p.low, p.by = r.Low, r.High
		return b.generate(q, makeNormal, &dst, p)
	case r.Distribution == backend.Integers && (d.IsInteger() || d == dtype.Bool):
		p.first, p.step = r.LowInt, r.HighInt-r.LowInt
		return b.generate(q, makeIntegers, &dst, p)
	}
	return unsupported("Random", "of %v", d)
}

// below is the greatest number of a float type that is less than x, which is no NaN: the neighbours of x rounded to the
// type are tried, the greater first.
func below(x float64, d dtype.DType) float64 {
	near := dtype.ScalarOf(x).Convert(d).Float64()
	if near < x {
		return near
	}
	if math.IsInf(near, 1) {
		return min(d.Limits().Max.Float64(), math.Nextafter(x, 0))
	}
	// The numbers of the type next to near are as far from it as its precision says, downward from a power of two half.
	l := d.Limits()
	step := l.SmallestSubnormal
	if _, exponent := math.Frexp(near); near != 0 {
		step = max(step, math.Ldexp(l.Epsilon, exponent-2))
	}
	for ; ; step *= 2 {
		if down := dtype.ScalarOf(near - step).Convert(d).Float64(); down < near {
			return down
		}
	}
}

// generate queues the making of dst, in parts of fewer than 2^31 elements.
func (b *Backend) generate(q backend.Queue, which int, dst *backend.Array, p generation) error {
	if empty(dst.Shape) {
		return nil
	}
	d := dst.DType
	if !isFloat(d) {
		d = sized(d.Size())
	}
	p.dst = at(*dst)
	return b.generatePart(q, which*typeCount+int(d), p, inOrder(dst), dst.DType.Size())
}

func (b *Backend) generatePart(q backend.Queue, kernel int, p generation, l layout, size int) error {
	n, last := l.elements(), l.rank-1
	if n > maxElements {
		rest := n / l.shape[last]
		for from, step := 0, max(1, maxElements/rest); from < l.shape[last]; from += step {
			part, at := l, p
			part.shape[last] = min(step, l.shape[last]-from)
			if part.shape[last] == 1 {
				part.drop(last)
			}
			at.base += uint64(from * rest)
			at.dst += driver.Pointer(from * l.strides[0][last] * size)
			if err := b.generatePart(q, kernel, at, part, size); err != nil {
				return err
			}
		}
		return nil
	}
	p.walk.set(&l)
	for axis := range l.rank {
		p.walk.strides[0][axis] = int64(l.strides[0][axis])
	}
	return launch(b, q, generations, kernel, line(ceilDiv(n, threads*generateElements), threads), p)
}

const generateElements = 4 // of a thread
