// Package backend defines the interface of computation on a device: arrays in, queued work. Users call package compute,
// which chooses shapes, types and the places of results. Package tensor copies and casts through a backend.
// compute/host and compute/cuda implement the interface. Callers have checked all arguments, and a backend only
// computes.
//
// # Contract
//
// A method queues its work on q.Stream and returns without waiting for it. By the order of the stream the memory of the
// operands stays valid until the work is done. Scratch memory comes from q.Scratch, for q.Stream, and is freed as soon
// as the work that uses it is queued; the order of the stream keeps it safe.
//
// Shapes are those of the result unless a method says otherwise: the caller broadcasts by strides of 0. dst never has a
// stride of 0 along an axis longer than 1. It shares no memory with an input unless it is that input (same Ptr, Offset,
// Shape and Strides: work in place), which every elementwise method allows. Shapes may be empty (one element) and may
// contain zeros (no elements: nothing is done). Strides may be negative. There are at most MaxRank axes.
//
// Each method lists the types that it must support. An error that matches driver.ErrUnsupported means that the backend
// does not support the given types and has queued nothing. Integers are computed in their own type and wrap; Float64 is
// computed in its own type; Float32, Float16 and BFloat16 ("float types" below include Float64) are computed in float32
// and rounded once at the end. The 8-bit floats and the complex types are only for storage: Fill and Copy. Sums of
// floats are kept in at least float32, in an order with a small error (pairwise or in blocks).
//
// An error in queued work (an index out of range) does not stop the stream: such elements are skipped (gathers write
// zeros), and the first error is kept until Failed returns it.
//
// A backend is safe for concurrent use. The same call with the same inputs gives the same result each time, except for
// ScatterAdd of floats.
package backend

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
)

// MaxRank is the maximum number of axes. PyTorch's kernels support 25 after collapsing, NumPy 64.
const MaxRank = 16

// An Array is an operand: elements in a device's memory. The element with indices i is Offset + sum of i[k]*Strides[k]
// elements from the start of the memory. Backends do not change or keep the slices.
type Array struct {
	Ptr     driver.Pointer // the start of the memory; 0 if it is Go's own, in which case Bytes is not nil
	Bytes   []byte         // the memory itself if Go code can access it, otherwise nil
	DType   dtype.DType
	Offset  int
	Shape   []int
	Strides []int // in elements
}

// A Queue is a destination of work: a stream of the backend's device, and an allocator of its memory for scratch.
type Queue struct {
	Stream  driver.Stream
	Scratch mem.Allocator
}

// A Backend computes on one device.
type Backend interface {
	// Name returns "host" or "cuda", for messages.
	Name() string

	// Fill sets every element to value, converted as by dtype.Scalar.Put. All types.
	Fill(q Queue, dst Array, value dtype.Scalar) error

	// Copy converts src to dst element by element, bit for bit as dtype.Convert. All pairs of types. dst and src do not
	// overlap.
	Copy(q Queue, dst, src Array) error

	// Arange sets dst, of one axis, to start + i*step. Integer types compute in 64-bit integers, floats in float64
	// (Float64) or as the float64 value rounded to float32; the result is then rounded to the type. All integer and
	// float types.
	Arange(q Queue, dst Array, start, step dtype.Scalar) error

	// Random sets dst to the numbers that r determines, with the same bits on every backend. See Random.
	Random(q Queue, dst Array, r Random) error

	// Unary computes op(x). UnaryOp lists the types. dst has x's type, or Bool for predicates.
	Unary(q Queue, op UnaryOp, dst, x Array) error

	// Binary computes op(x, y). x and y have the same type; dst has it too, or Bool for comparisons. BinaryOp lists the
	// types.
	Binary(q Queue, op BinaryOp, dst, x, y Array) error

	// Where selects x where cond (Bool) is true, and y elsewhere. dst, x and y have the same type, any but complex.
	Where(q Queue, dst, cond, x, y Array) error

	// Reduce combines the elements of x along the axes in which dst has length 1 and x has not. (Where both have length
	// 1 there is one element to combine: Sum returns it.) dst has as many axes as x. ReduceOp lists the types.
	Reduce(q Queue, op ReduceOp, dst, x Array) error

	// ArgReduce sets dst (Int64) to the index along axis of the largest element of x or, if least, of the smallest: the
	// first NaN if there is one, otherwise the first of equal elements. dst has length 1 along axis, and x at least 1.
	// Bool, integer and float types.
	ArgReduce(q Queue, least bool, dst, x Array, axis int) error

	// Softmax computes exp(x-max)/sum(exp(x-max)) along axis, or its logarithm. dst has x's type. Float types.
	Softmax(q Queue, log bool, dst, x Array, axis int) error

	// Norm normalizes over the last n axes. Layer norm subtracts the mean and divides by sqrt(variance+eps); RMS norm
	// divides by sqrt(mean of squares+eps). Each then multiplies by weight and adds bias, which have n axes or are nil.
	// All have the same type. Float types.
	Norm(q Queue, rms bool, dst, x Array, n int, weight, bias *Array, eps float64) error

	// Gather sets dst[..., i, ...] = x[..., index[..., i, ...], ...] along axis. index (Int64 or Int32) has dst's
	// shape; along the other axes x is at least as long. Negative indices are out of range. All types.
	Gather(q Queue, dst, x, index Array, axis int) error

	// IndexSelect sets dst[..., i, ...] = x[..., index[i], ...] along axis. index (Int64 or Int32) has one axis. All
	// types.
	IndexSelect(q Queue, dst, x, index Array, axis int) error

	// ScatterAdd adds src[..., i, ...] to dst[..., index[..., i, ...], ...] along axis, in an unspecified order. index
	// (Int64 or Int32) has src's shape. Integer and float types.
	ScatterAdd(q Queue, dst, index, src Array, axis int) error

	// Sort sorts along axis; it is stable, and NaN is the largest. values has x's type, indices (Int64) has the
	// original index of each element; either may be nil. Bool, integer and float types.
	Sort(q Queue, descending bool, values, indices *Array, x Array, axis int) error

	// TopK finds the k largest elements along axis or, if least, the smallest, in order, and their indices. Of equal
	// elements the first come first; NaN is the largest. k is the length of values and indices along axis, at most x's.
	// The types are those of Sort.
	TopK(q Queue, least bool, values, indices *Array, x Array, axis int) error

	// MatMul computes dst = a @ b for each batch: shapes [batch..., m, k] @ [batch..., k, n] = [batch..., m, n]. The
	// batch axes are the same, with strides of 0 where broadcast, and absent for a single product. All have the same
	// type. Float and integer types. If k is 0 the result is zeros. Any strides are allowed; plain and transposed
	// matrices run at full speed.
	MatMul(q Queue, dst, a, b Array) error

	// Failed returns the first error of finished work since the last call, an *IndexError, or nil. It does not wait.
	// After a stream's Sync it covers the work of that stream.
	Failed() error

	// Close releases the backend's resources on the device. Close the backend before the device.
	Close() error
}
