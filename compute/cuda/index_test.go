package cuda

import (
	"flag"
	"math/bits"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

var planSeed = flag.Uint64("planseed", testkit.FreshSeed(), "the seed of random layouts")

func newRand(t *testing.T) *mathrand.Rand {
	t.Logf("-planseed %d", *planSeed)
	return mathrand.New(mathrand.NewPCG(*planSeed, 0))
}

// quotient is divide of kernels/index.cuh.
func quotient(n uint32, d divisor) uint32 {
	high, _ := bits.Mul32(n, d.magic)
	return (high + n) >> d.shift
}

func TestDivisor(t *testing.T) {
	rng := newRand(t)
	check := func(n, d int) {
		if got := quotient(uint32(n), divide(d)); int(got) != n/d {
			t.Fatalf("%d/%d is %d", n, d, got)
		}
	}
	for d := 1; d < 2000; d++ {
		for _, n := range []int{0, 1, d - 1, d, d + 1, 17*d - 1, 17 * d, maxElements, maxElements / d * d, maxElements/d*d - 1} {
			check(n, d)
		}
	}
	for range 200_000 {
		check(rng.IntN(maxElements+1), 1+rng.IntN(maxElements)>>rng.IntN(31))
		d := 1 + rng.IntN(maxElements)>>rng.IntN(31)
		n := d * (1 + rng.IntN(maxElements/d))
		check(n, d)
		check(n-1, d)
	}
}

// randomLayout makes operands of one shape: the first has a place for each element, the others may stay where they are.
func randomLayout(rng *mathrand.Rand, operands int) []*backend.Array {
	rank := rng.IntN(6)
	shape := make([]int, rank)
	for i := range shape {
		shape[i] = 1 + rng.IntN(5)*rng.IntN(3)
	}
	arrays := make([]*backend.Array, operands)
	for k := range arrays {
		a := &backend.Array{DType: dtype.Float32, Shape: shape, Strides: make([]int, rank)}
		order := rng.Perm(rank)
		if rng.IntN(2) == 0 {
			slices.Sort(order)
			slices.Reverse(order)
		}
		step := 1
		for _, axis := range order {
			a.Strides[axis] = step
			step *= shape[axis]
			switch rng.IntN(8) {
			case 0:
				a.Strides[axis] *= -1
			case 1:
				step += 3
			case 2:
				if k > 0 {
					a.Strides[axis] = 0
				}
			}
		}
		arrays[k] = a
	}
	return arrays
}

// places returns the offsets of all elements in all operands, by the definition.
func places(arrays []*backend.Array) map[[maxOperands]int]int {
	all := map[[maxOperands]int]int{}
	shape := arrays[0].Shape
	index := make([]int, len(shape))
	for {
		var at [maxOperands]int
		for k, a := range arrays {
			for axis, i := range index {
				at[k] += i * a.Strides[axis]
			}
		}
		all[at]++
		axis := 0
		for axis < len(shape) && index[axis] == shape[axis]-1 {
			index[axis] = 0
			axis++
		}
		if axis == len(shape) {
			return all
		}
		index[axis]++
	}
}

// visit takes a layout's elements off a set of places.
func (l *layout) visit(left map[[maxOperands]int]int, offsets [maxOperands]int) {
	for i := range l.elements() {
		at, rest := offsets, i
		for axis := range l.rank {
			for k := range l.operands {
				at[k] += rest % l.shape[axis] * l.strides[k][axis]
			}
			rest /= l.shape[axis]
		}
		if left[at]--; left[at] == 0 {
			delete(left, at)
		}
	}
}

// A layout visits exactly the elements that the arrays have, and has no two axes that could be one.
func TestLayout(t *testing.T) {
	rng := newRand(t)
	for range 3000 {
		arrays := randomLayout(rng, 1+rng.IntN(maxOperands))
		left := places(arrays)
		l := newLayout(arrays...)
		offsets := l.forward()
		l.visit(left, offsets)
		if len(left) != 0 {
			t.Fatalf("%d places are not visited, or twice: %+v of %+v", len(left), l, arrays[0])
		}
		for axis := 1; axis < l.rank; axis++ {
			if l.strides[0][axis] < l.strides[0][axis-1] {
				t.Fatalf("dst's strides are %v", l.strides[0][:l.rank])
			}
			if l.follows(axis-1, axis) {
				t.Fatalf("axes %d and %d of %+v could be one", axis-1, axis, l)
			}
		}
	}
}

// A layout too large for 32-bit indices is divided into pieces that are not, and together they visit each element once.
func TestPieces(t *testing.T) {
	for name, a := range map[string]backend.Array{
		"long":              {Shape: []int{5 << 30}, Strides: []int{1}},
		"long and wide":     {Shape: []int{3, 3 << 30}, Strides: []int{3 << 30, 1}},
		"far apart":         {Shape: []int{7, 1000}, Strides: []int{1 << 32, 1}},
		"far apart, longer": {Shape: []int{3, 1 << 30, 4}, Strides: []int{1 << 40, 4 << 3, 7}},
	} {
		l := newLayout(&a)
		total, next := 0, map[int]bool{}
		err := l.pieces(func(part *layout, offsets [maxOperands]int) error {
			if !part.fits() {
				t.Errorf("%s: %+v does not fit", name, part)
			}
			if next[offsets[0]] {
				t.Errorf("%s: two parts begin at %d", name, offsets[0])
			}
			next[offsets[0]] = true
			total += part.elements()
			if part.rank == 1 && part.strides[0][0] == 1 && offsets[0]%16 != 0 && name != "far apart" {
				t.Errorf("%s: a part begins at %d, which is no whole vector", name, offsets[0])
			}
			return nil
		})
		if err != nil || total != l.elements() {
			t.Errorf("%s: %d elements of %d, %v", name, total, l.elements(), err)
		}
	}
}

// The limit cannot be lowered for small shapes, so the test checks the offsets of the pieces of an axis.
func TestPiecesOfAnAxis(t *testing.T) {
	a := backend.Array{Shape: []int{3, 2}, Strides: []int{1 << 33, 5}}
	b := backend.Array{Shape: []int{3, 2}, Strides: []int{0, 1 << 35}}
	left := places([]*backend.Array{&a, &b})
	l := newLayout(&a, &b)
	if err := l.pieces(func(part *layout, offsets [maxOperands]int) error {
		part.visit(left, offsets)
		return nil
	}); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

func TestInOrderNumbersElements(t *testing.T) {
	rng := newRand(t)
	for range 500 {
		a := randomLayout(rng, 1)[0]
		l := inOrder(a)
		n := 0
		var walk func(axis, at int)
		walk = func(axis, at int) {
			if axis < len(a.Shape) {
				for i := range a.Shape[axis] {
					walk(axis+1, at+i*a.Strides[axis])
				}
				return
			}
			got, rest := 0, n
			for k := range l.rank {
				got += rest % l.shape[k] * l.strides[0][k]
				rest /= l.shape[k]
			}
			if got != at {
				t.Fatalf("element %d of %+v lies at %d, want %d", n, a, got, at)
			}
			n++
		}
		walk(0, 0)
	}
}

func TestBelow(t *testing.T) {
	rng := newRand(t)
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64} {
		most := d.Limits().Max.Float64()
		for _, x := range append([]float64{1, -1, 0, 2, 0.1, -0.1, 1e-8, most, 1 << 10, -most / 2}, rng.NormFloat64(), rng.NormFloat64()*1e4) {
			v := below(x, d)
			if !(v < x) || dtype.ScalarOf(v).Convert(d).Float64() != v {
				t.Errorf("%v: below %v is %v, which is not less or not of the type", d, x, v)
			}
			// Between the two there is none.
			if middle := dtype.ScalarOf(v + (x-v)/2).Convert(d).Float64(); middle > v && middle < x {
				t.Errorf("%v: below %v is %v, but %v is between them", d, x, v, middle)
			}
		}
	}
}
