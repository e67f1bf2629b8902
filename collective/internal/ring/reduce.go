package ring

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/dtype"
)

// A reduceFunc computes dst = in op own, element by element. The slices have the same length. Dst may be own.
type reduceFunc func(dst, in, own []byte)

// A reducer has the functions that combine the shares of the ranks: the first two, each later one, and the last one.
// With two ranks only last is used.
type reducer struct{ first, mid, last reduceFunc }

// sameReducer returns a reducer that uses f throughout.
func sameReducer(f reduceFunc) reducer { return reducer{f, f, f} }

// reducerFor returns the reducer of an operation on a type, if there is one.
func reducerFor(op comm.Op, t dtype.DType, ranks int) (reducer, bool) {
	switch t {
	case dtype.Bool:
		return booleans(op)
	case dtype.Int8:
		return integers[int8](op, ranks)
	case dtype.Int16:
		return integers[int16](op, ranks)
	case dtype.Int32:
		return integers[int32](op, ranks)
	case dtype.Int64:
		return integers[int64](op, ranks)
	case dtype.Uint8:
		return integers[uint8](op, ranks)
	case dtype.Uint16:
		return integers[uint16](op, ranks)
	case dtype.Uint32:
		return integers[uint32](op, ranks)
	case dtype.Uint64:
		return integers[uint64](op, ranks)
	case dtype.Float32:
		return floats[float32](op, ranks)
	case dtype.Float64:
		return floats[float64](op, ranks)
	case dtype.Complex64:
		return complexes[complex64, float32](op, ranks)
	case dtype.Complex128:
		return complexes[complex128, float64](op, ranks)
	case dtype.Float16, dtype.BFloat16, dtype.Float8E5M2, dtype.Float8E4M3FN:
		return narrow(op, t, ranks)
	}
	return reducer{}, false
}

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

// integers divides in 64 bits, because the number of ranks may not fit into T.
func integers[T integer](op comm.Op, ranks int) (reducer, bool) {
	f := sameReducer(real[T](op))
	if op == comm.Avg && ^T(0) < 0 {
		f.last = thenApply(sum[T], func(x T) T { return T(int64(x) / int64(ranks)) })
	} else if op == comm.Avg {
		f.last = thenApply(sum[T], func(x T) T { return T(uint64(x) / uint64(ranks)) })
	}
	return f, true
}

func floats[T float](op comm.Op, ranks int) (reducer, bool) {
	f := sameReducer(real[T](op))
	if n := T(ranks); op == comm.Avg {
		f.last = thenApply(sum[T], func(x T) T { return x / n })
	}
	return f, true
}

// real returns an operation on numbers that have an order.
func real[T integer | float](op comm.Op) reduceFunc {
	switch op {
	case comm.Prod:
		return bytesOf(prod[T])
	case comm.Max:
		return bytesOf(maximum[T])
	case comm.Min:
		return bytesOf(minimum[T])
	case comm.Sum, comm.Avg:
	}
	return bytesOf(sum[T])
}

// complexes adds parts, and divides them.
func complexes[C complex64 | complex128, T float](op comm.Op, ranks int) (reducer, bool) {
	switch op {
	case comm.Sum, comm.Avg:
		return floats[T](op, ranks)
	case comm.Prod:
		return sameReducer(bytesOf(prod[C])), true
	case comm.Max, comm.Min:
	}
	return reducer{}, false
}

// booleans treats any byte other than 0 as true and produces 0 and 1.
func booleans(op comm.Op) (reducer, bool) {
	f := func(both func(a, b bool) bool) (reducer, bool) {
		return sameReducer(func(dst, in, own []byte) {
			for i := range dst {
				var truth byte // dst may be own
				if both(in[i] != 0, own[i] != 0) {
					truth = 1
				}
				dst[i] = truth
			}
		}), true
	}
	switch op {
	case comm.Max:
		return f(func(a, b bool) bool { return a || b })
	case comm.Min:
		return f(func(a, b bool) bool { return a && b })
	case comm.Sum, comm.Prod, comm.Avg:
	}
	return reducer{}, false
}

// widened is the number of elements of a narrow type that are widened at a time: they stay in the first-level cache.
const widened = 2048

// narrow computes in float32 and rounds once in each step.
func narrow(op comm.Op, t dtype.DType, ranks int) (reducer, bool) {
	up, down, size := dtype.Converter(dtype.Float32, t), dtype.Converter(t, dtype.Float32), t.Size()
	wrap := func(f reduceFunc) reduceFunc {
		return func(dst, in, own []byte) {
			wide := make([]byte, 2*4*widened)
			for len(dst) > 0 {
				n := min(widened, len(dst)/size)
				a, b := wide[:4*n], wide[4*widened:][:4*n]
				up(a, in[:n*size])
				up(b, own[:n*size])
				f(a, a, b)
				down(dst[:n*size], a)
				dst, in, own = dst[n*size:], in[n*size:], own[n*size:]
			}
		}
	}
	if op != comm.Avg {
		return sameReducer(wrap(real[float32](op))), true
	}
	// Sums are kept divided by a power of two that is at least the number of ranks. So no sum overflows the type, and
	// rounding gives the same bits as without the division.
	part, first := float32(1), float32(1)
	for n := 1; n < ranks; n *= 2 {
		part /= 2
	}
	if ranks == 2 {
		first = part
	}
	return reducer{
		first: wrap(weighted(part, part, 1)), mid: wrap(weighted(1, part, 1)),
		last: wrap(weighted(first, part, part*float32(ranks))),
	}, true
}

// weighted returns a weighted sum, divided.
func weighted(in, own, by float32) reduceFunc {
	a, b := in, own
	return bytesOf(func(dst, in, own []float32) {
		in, own = in[:len(dst)], own[:len(dst)]
		for i := range dst {
			dst[i] = (in[i]*a + own[i]*b) / by
		}
	})
}

func sum[T integer | float](dst, in, own []T) {
	in, own = in[:len(dst)], own[:len(dst)]
	for i := range dst {
		dst[i] = in[i] + own[i]
	}
}

func prod[T integer | float | complex64 | complex128](dst, in, own []T) {
	in, own = in[:len(dst)], own[:len(dst)]
	for i := range dst {
		dst[i] = in[i] * own[i]
	}
}

func maximum[T integer | float](dst, in, own []T) {
	in, own = in[:len(dst)], own[:len(dst)]
	for i := range dst {
		dst[i] = max(in[i], own[i])
	}
}

func minimum[T integer | float](dst, in, own []T) {
	in, own = in[:len(dst)], own[:len(dst)]
	for i := range dst {
		dst[i] = min(in[i], own[i])
	}
}

// thenApply computes f and then applies g to each element.
func thenApply[T any](f func(dst, in, own []T), g func(T) T) reduceFunc {
	return bytesOf(func(dst, in, own []T) {
		f(dst, in, own)
		for i, x := range dst {
			dst[i] = g(x)
		}
	})
}

// bytesOf makes f work on bytes in memory. Elements are aligned as far as the machine requires: operands are in device
// memory, and received data is in blocks of the heap or is an operand of another rank.
func bytesOf[T any](f func(dst, in, own []T)) reduceFunc {
	return func(dst, in, own []byte) { f(elements[T](dst), elements[T](in), elements[T](own)) }
}

func elements[T any](b []byte) []T {
	var x T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(x)))
}
