package host

import (
	"math"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// A reducer is a reduction of elements of one type. It keeps what it has combined as values of acc bytes.
type reducer struct {
	in, out dtype.DType // what elements are converted to, and what result makes
	acc     int

	clear func(acc []byte) // makes values of nothing
	// combines all elements of x, the first of which has index at, into the first value
	line   func(acc, x []byte, at int)
	lines  func(acc, x []byte, at int) // likewise rows of elements into values: as many as there are in x
	merge  func(acc, other []byte)     // combines values with those of elements that follow
	result func(dst, acc []byte)
}

// A fold is a reducer of elements T to values A, for results R.
type fold[T, A, R any] struct {
	none  A
	line  func(a A, x []T, at int) A
	rows  func(acc []A, x []T, at int) // one row
	merge func(a, b A) A
	value func(a A) R
}

func (f fold[T, A, R]) reducer(in, out dtype.DType) reducer {
	var a [2]A
	return reducer{
		in: in, out: out, acc: len(bytesOf(a[:])) / 2,
		clear: func(acc []byte) {
			v := viewOf[A](acc)
			for i := range v {
				v[i] = f.none
			}
		},
		line: func(acc, x []byte, at int) {
			a := &viewOf[A](acc)[0]
			*a = f.line(*a, viewOf[T](x), at)
		},
		lines: func(acc, x []byte, at int) {
			v, e := viewOf[A](acc), viewOf[T](x)
			for ; len(e) > 0; at++ {
				f.rows(v, e[:len(v)], at)
				e = e[len(v):]
			}
		},
		merge: func(acc, other []byte) {
			v, w := viewOf[A](acc), viewOf[A](other)
			for i := range v {
				v[i] = f.merge(v[i], w[i])
			}
		},
		result: func(dst, acc []byte) {
			r := viewOf[R](dst)
			for i, a := range viewOf[A](acc) {
				r[i] = f.value(a)
			}
		},
	}
}

func identity[T any](v T) T { return v }

// reducerOf returns the reducer of an operation for n elements of type d to each result.
func reducerOf(op backend.ReduceOp, d dtype.DType, n int) (r reducer, ok bool) {
	switch d {
	case dtype.Bool, dtype.Uint8:
		return reduceInteger[uint8](op, d)
	case dtype.Int8:
		return reduceInteger[int8](op, d)
	case dtype.Int16:
		return reduceInteger[int16](op, d)
	case dtype.Int32:
		return reduceInteger[int32](op, d)
	case dtype.Int64:
		return reduceInteger[int64](op, d)
	case dtype.Uint16:
		return reduceInteger[uint16](op, d)
	case dtype.Uint32:
		return reduceInteger[uint32](op, d)
	case dtype.Uint64:
		return reduceInteger[uint64](op, d)
	case dtype.Float16, dtype.BFloat16, dtype.Float32:
		return reduceFloat[float32](op, dtype.Float32, n)
	case dtype.Float64:
		return reduceFloat[float64](op, dtype.Float64, n)
	}
	return reducer{}, false
}

func reduceInteger[T integer](op backend.ReduceOp, d dtype.DType) (r reducer, ok bool) {
	switch op {
	case backend.Sum:
		return sums[T, int64](0, identity).reducer(d, dtype.Int64), true
	case backend.Prod:
		return products64[T, int64]().reducer(d, dtype.Int64), true
	}
	return reduceAny[T](op, d)
}

func reduceFloat[T float](op backend.ReduceOp, d dtype.DType, n int) (r reducer, ok bool) {
	switch op {
	case backend.Sum:
		return sums[T](0, identity[float64]).reducer(d, dtype.Float64), true
	case backend.Mean:
		return sums[T](0, func(s float64) float64 { return s / float64(n) }).reducer(d, dtype.Float64), true
	case backend.Norm2:
		f := sums[T](0, math.Sqrt)
		f.line, f.rows = squaresOf[T], addSquaresOf[T]
		return f.reducer(d, dtype.Float64), true
	case backend.Prod:
		return products64[T, float64]().reducer(d, dtype.Float64), true
	}
	return reduceAny[T](op, d)
}

// reduceAny returns what is the same for all types.
func reduceAny[T number](op backend.ReduceOp, d dtype.DType) (r reducer, ok bool) {
	switch op {
	case backend.Max:
		return fold[T, T, T]{least[T](), lineMax[T], func(acc, x []T, _ int) {
			maxOf(acc, acc, x)
		}, maxOne[T], identity[T]}.
			reducer(d, d), true
	case backend.Min:
		return fold[T, T, T]{greatest[T](), lineMin[T], func(acc, x []T, _ int) {
			minOf(acc, acc, x)
		}, minOne[T], identity[T]}.
			reducer(d, d), true
	case backend.Any:
		return logical[T](0).reducer(d, dtype.Bool), true
	case backend.AllTrue:
		return logical[T](1).reducer(d, dtype.Bool), true
	}
	return reducer{}, false
}

// sums adds.
func sums[T number, A int64 | float64](none A, value func(A) A) fold[T, A, A] {
	return fold[T, A, A]{none, sumOf[T, A], addRowOf[T, A], func(a, b A) A { return a + b }, value}
}

// sumOf adds x, in eight sums that are independent of each other, to a.
func sumOf[T number, A int64 | float64](a A, x []T, _ int) A {
	var s0, s1, s2, s3, s4, s5, s6, s7 A
	for ; len(x) >= 8; x = x[8:] {
		s0 += A(x[0])
		s1 += A(x[1])
		s2 += A(x[2])
		s3 += A(x[3])
		s4 += A(x[4])
		s5 += A(x[5])
		s6 += A(x[6])
		s7 += A(x[7])
	}
	s0 += (s1 + s2) + (s3 + s4) + ((s5 + s6) + s7)
	for _, v := range x {
		s0 += A(v)
	}
	return a + s0
}

func addRowOf[T number, A int64 | float64](acc []A, x []T, _ int) {
	x = x[:len(acc)]
	for i := range acc {
		acc[i] += A(x[i])
	}
}

func squaresOf[T float](a float64, x []T, _ int) float64 {
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4; x = x[4:] {
		v0, v1, v2, v3 := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		s0 += float64(v0 * v0)
		s1 += float64(v1 * v1)
		s2 += float64(v2 * v2)
		s3 += float64(v3 * v3)
	}
	s0 += s1 + (s2 + s3)
	for _, v := range x {
		s0 += float64(float64(v) * float64(v))
	}
	return a + s0
}

func addSquaresOf[T float](acc []float64, x []T, _ int) {
	x = x[:len(acc)]
	for i := range acc {
		v := float64(x[i])
		acc[i] += float64(v * v)
	}
}

// products64 multiplies.
func products64[T number, A int64 | float64]() fold[T, A, A] {
	return fold[T, A, A]{
		none: 1,
		line: func(a A, x []T, _ int) A {
			for _, v := range x {
				a *= A(v)
			}
			return a
		},
		rows: func(acc []A, x []T, _ int) {
			for i := range acc {
				acc[i] *= A(x[i])
			}
		},
		merge: func(a, b A) A { return a * b },
		value: identity[A],
	}
}

// logical is Any for none = 0 and AllTrue for none = 1: a value other than none stays.
func logical[T number](none uint8) fold[T, uint8, uint8] {
	one := func(a uint8, v T) uint8 {
		if (v != 0) != (none != 0) {
			return 1 - none
		}
		return a
	}
	return fold[T, uint8, uint8]{
		none: none,
		line: func(a uint8, x []T, _ int) uint8 {
			for _, v := range x {
				if (v != 0) != (none != 0) {
					return 1 - none
				}
			}
			return a
		},
		rows: func(acc []uint8, x []T, _ int) {
			for i := range acc {
				acc[i] = one(acc[i], x[i])
			}
		},
		merge: func(a, b uint8) uint8 {
			if b != none {
				return b
			}
			return a
		},
		value: identity[uint8],
	}
}

// least and greatest are the bounds of a type: infinities, of floats.
func least[T number]() T {
	var zero T
	switch v := any(&zero).(type) {
	case *float32:
		*v = float32(math.Inf(-1))
	case *float64:
		*v = math.Inf(-1)
	case *int8:
		*v = math.MinInt8
	case *int16:
		*v = math.MinInt16
	case *int32:
		*v = math.MinInt32
	case *int64:
		*v = math.MinInt64
	}
	return zero
}

func greatest[T number]() T {
	var zero T
	switch v := any(&zero).(type) {
	case *float32:
		*v = float32(math.Inf(1))
	case *float64:
		*v = math.Inf(1)
	default:
		var one T = 1
		return zero - one - least[T]() // the complement
	}
	return zero
}

func maxOne[T number](a, b T) T { return max(a, b) }

func minOne[T number](a, b T) T { return min(a, b) }

func lineMax[T number](a T, x []T, _ int) T {
	b, c, d := a, a, a
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d = max(a, x[0]), max(b, x[1]), max(c, x[2]), max(d, x[3])
	}
	for _, v := range x {
		a = max(a, v)
	}
	return max(a, b, c, d)
}

func lineMin[T number](a T, x []T, _ int) T {
	b, c, d := a, a, a
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d = min(a, x[0]), min(b, x[1]), min(c, x[2]), min(d, x[3])
	}
	for _, v := range x {
		a = min(a, v)
	}
	return min(a, b, c, d)
}
