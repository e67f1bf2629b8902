package dtype

import (
	"sync"
	"unsafe"
)

// A step is a kernel. The memory that it gets is aligned for both types.
type step struct {
	run func(dst, src []byte)
	to  int // the size of what it makes
}

// direct has the step from one type to another, where there is one: direct[to][from].
type direct [count][count]step

// steps returns all steps.
var steps = sync.OnceValue(func() *direct {
	var t direct
	addInteger[int8](&t, Int8)
	addInteger[int16](&t, Int16)
	addInteger[int32](&t, Int32)
	addInteger[int64](&t, Int64)
	addInteger[uint8](&t, Uint8)
	addInteger[uint16](&t, Uint16)
	addInteger[uint32](&t, Uint32)
	addInteger[uint64](&t, Uint64)
	addFloat[float32](&t, Float32)
	addFloat[float64](&t, Float64)
	add(&t, Float32, Int64, nearSigned)
	add(&t, Float32, Uint64, nearUnsigned)
	add(&t, Float64, Float32, double)
	add(&t, Float32, Float64, single)

	add(&t, Uint8, Bool, nonzero[uint8])
	add(&t, Bool, Complex64, nonzero[complex64])
	add(&t, Bool, Complex128, nonzero[complex128])

	add(&t, Float16, Float32, toF16s)
	add(&t, Float32, Float16, fromF16s)
	add(&t, BFloat16, Float32, toBF16s)
	add(&t, Float32, BFloat16, fromBF16s)
	add(&t, Float8E5M2, Float32, toE5M2s)
	add(&t, Float32, Float8E5M2, fromE5M2s)
	add(&t, Float8E4M3FN, Float32, toE4M3s)
	add(&t, Float32, Float8E4M3FN, fromE4M3s)

	add(&t, Float32, Complex64, realParts[float32])
	add(&t, Complex64, Float32, realOnly[float32])
	add(&t, Float64, Complex128, realParts[float64])
	add(&t, Complex128, Float64, realOnly[float64])
	add(&t, Complex128, Complex64, double)
	add(&t, Complex64, Complex128, single)
	return &t
})

func addInteger[S integer](t *direct, from DType) {
	addTruncated(t, from, cast[int8, S], cast[int16, S], cast[int32, S], cast[int64, S],
		cast[uint8, S], cast[uint16, S], cast[uint32, S], cast[uint64, S])
	add(t, Float32, from, cast[float32, S])
	add(t, Float64, from, cast[float64, S])
	add(t, Bool, from, nonzero[S])
}

func addFloat[S float](t *direct, from DType) {
	addTruncated(t, from, truncate[int8, S], truncate[int16, S], truncate[int32, S], truncate[int64, S],
		truncate[uint8, S], truncate[uint16, S], truncate[uint32, S], truncate[uint64, S])
	add(t, Bool, from, nonzero[S])
}

// addTruncated adds the steps to all integer types.
func addTruncated[S any](t *direct, from DType, i8 func([]int8, []S), i16 func([]int16, []S), i32 func([]int32, []S),
	i64 func([]int64, []S), u8 func([]uint8, []S), u16 func([]uint16, []S), u32 func([]uint32, []S),
	u64 func([]uint64, []S),
) {
	add(t, Int8, from, i8)
	add(t, Int16, from, i16)
	add(t, Int32, from, i32)
	add(t, Int64, from, i64)
	add(t, Uint8, from, u8)
	add(t, Uint16, from, u16)
	add(t, Uint32, from, u32)
	add(t, Uint64, from, u64)
}

func add[D, S any](t *direct, to, from DType, kernel func([]D, []S)) {
	t[to][from] = newStep(to, kernel)
}

func newStep[D, S any](to DType, kernel func([]D, []S)) step {
	run := func(dst, src []byte) { kernel(view[D](dst), view[S](src)) }
	return step{run, to.Size()}
}

// view returns the same memory as elements. Package unsafe it is because Go has no other way to read a []byte as
// numbers without a call for each; the memory is aligned for T, is not kept, and T holds no pointers.
func view[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))/unsafe.Sizeof(zero))
}

// route returns the steps from one type to another. At most one of them rounds, but for the preparation to odd, which
// is rounded once more as if it had not been.
func (t *direct) route(to, from DType) []step {
	via := func(middle DType) []step { return append(t.route(middle, from), t.route(to, middle)...) }
	switch {
	case t[to][from].run != nil:
		return []step{t[to][from]}
	case from == Bool:
		return via(Uint8)
	case from == Complex64 || isNarrow(from):
		return via(Float32)
	case from == Complex128:
		return via(Float64)
	case to == Complex64:
		return via(Float32)
	case to == Complex128:
		return via(Float64)
	}
	return []step{t.prepare(from), t[to][Float32]} // a narrow format
}

// isNarrow reports whether d is a floating-point type narrower than Float32, which holds all its numbers.
func isNarrow(d DType) bool { return d.IsFloat() && d.Size() < 4 }

// prepare returns the step to Float32 that rounding to a narrow format may follow.
func (t *direct) prepare(from DType) step {
	switch from {
	case Float64:
		return newStep(Float32, oddFloats)
	case Int32:
		return newStep(Float32, oddSigned[int32])
	case Int64:
		return newStep(Float32, oddSigned[int64])
	case Uint32:
		return newStep(Float32, oddUnsigned[uint32])
	case Uint64:
		return newStep(Float32, oddUnsigned[uint64])
	}
	return t[Float32][from] // exact
}
