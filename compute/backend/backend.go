// Package backend is what a device can compute, as one interface: arrays in, work queued. Package compute is for users and
// decides shapes, types and where results lie; package tensor copies and casts through it; compute/host and compute/cuda
// implement it. Everything below has been decided and checked when a method is called: a backend computes.
//
// # Contract
//
// A method queues its work on q.Stream and returns; it does not wait for it. The memory of its operands stays until the
// work is done, by the stream's order. Scratch memory comes from q.Scratch, for q.Stream, and is freed as soon as the work
// that uses it is queued: the stream's order keeps it safe.
//
// Shapes are those of the result unless a method says otherwise: broadcasting is strides of 0, made by the caller. dst
// never has a stride of 0 along an axis longer than 1, and shares no memory with an input unless it is exactly that input
// (same Ptr, Offset, Shape, Strides: work in place), which every elementwise method allows. Shapes may be empty (one
// element) and may hold zeros (no element: nothing is done). Strides may be negative. There are at most MaxRank axes.
//
// Which types a method must know is said at each. An error that matches driver.ErrUnsupported says that this backend does
// not know the types given; it has queued nothing. Arithmetic is done in the type itself for integers (which wrap) and for
// Float64, and in float32, rounded once at the end, for Float32, Float16 and BFloat16 (the float types below; the 8-bit
// ones are for storage: Fill, Copy, and nothing else, as are the complex ones). Sums of these are kept in at least
// float32, in an order that keeps the error small (pairwise or in blocks).
//
// What queued work finds wrong (an index out of range) does not stop the stream: such elements are skipped (gathers leave
// zeros), and the first is kept until Failed asks for it.
//
// Safe for concurrent use. The same call with the same inputs gives the same result each time, but for ScatterAdd of
// floats.
package backend

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
)

// MaxRank is the greatest number of axes: PyTorch's own kernels stop at 25 after collapsing, numpy at 64.
const MaxRank = 16

// An Array is an operand: elements in a device's memory. The element with indices i lies Offset + sum of i[k]*Strides[k]
// elements from the start of the memory. Backends do not change or keep the slices.
type Array struct {
	Ptr     driver.Pointer // the start of the memory; 0 if it is Go's own (then Bytes is not nil)
	Bytes   []byte         // the memory itself, where Go code can reach it; nil elsewhere
	DType   dtype.DType
	Offset  int
	Shape   []int
	Strides []int // in elements
}

// A Queue is where work goes: a stream of the backend's device, and an allocator of its memory for scratch.
type Queue struct {
	Stream  driver.Stream
	Scratch mem.Allocator
}

// A Backend computes on one device.
type Backend interface {
	// Name is "host" or "cuda", for messages.
	Name() string

	// Fill sets every element to value, converted as dtype.Scalar.Put does. All types.
	Fill(q Queue, dst Array, value dtype.Scalar) error

	// Copy converts src to dst element by element, as dtype.Convert does, bit for bit. All pairs of types. dst and src do
	// not overlap.
	Copy(q Queue, dst, src Array) error

	// Arange sets dst, of one axis, to start + i*step. Integer types compute in 64-bit integers, floats in float64
	// (Float64) or as float32 of the float64 value; then rounded to the type. Bool and complex are not asked.
	Arange(q Queue, dst Array, start, step dtype.Scalar) error

	// Random sets dst to numbers that r determines, the same bits on every backend. See Random.
	Random(q Queue, dst Array, r Random) error

	// Unary computes op(x). Types: see UnaryOp. dst has x's type, but Bool for predicates.
	Unary(q Queue, op UnaryOp, dst, x Array) error

	// Binary computes op(x, y). x and y have the same type; dst has it too, but Bool for comparisons. See BinaryOp.
	Binary(q Queue, op BinaryOp, dst, x, y Array) error

	// Where takes x where cond (Bool) is true, and y elsewhere. dst, x and y have the same type, any but complex.
	Where(q Queue, dst, cond, x, y Array) error

	// Reduce combines the elements of x along the axes in which dst has length 1 and x has not (or has 1 too: then there
	// is nothing to combine, and Sum of one element is it). dst has as many axes as x. See ReduceOp for types.
	Reduce(q Queue, op ReduceOp, dst, x Array) error

	// ArgReduce puts into dst (Int64) the index along axis of the greatest (or, if least, the least) element of x: the
	// first NaN if there is one, else the first of equals. dst has length 1 along axis, which has at least one element in
	// x. Bool, integer and float types.
	ArgReduce(q Queue, least bool, dst, x Array, axis int) error

	// Softmax computes exp(x-max)/sum(exp(x-max)) along axis, or its logarithm. dst has x's type. Float types.
	Softmax(q Queue, log bool, dst, x Array, axis int) error

	// Norm normalizes over the last axes, as many as n says: layer norm subtracts the mean and divides by
	// sqrt(variance+eps), RMS norm divides by sqrt(mean of squares+eps); then each multiplies by weight and adds bias,
	// which have n axes, or are nil. All have the same type: float types.
	Norm(q Queue, rms bool, dst, x Array, n int, weight, bias *Array, eps float64) error

	// Gather sets dst[..., i, ...] = x[..., index[..., i, ...], ...] along axis. index (Int64 or Int32) has dst's shape;
	// along the other axes x is at least as long. Negative indices are out of range. Any type: elements are moved.
	Gather(q Queue, dst, x, index Array, axis int) error

	// IndexSelect sets dst[..., i, ...] = x[..., index[i], ...] along axis; index (Int64 or Int32) has one axis. Any type.
	IndexSelect(q Queue, dst, x, index Array, axis int) error

	// ScatterAdd adds src[..., i, ...] to dst[..., index[..., i, ...], ...] along axis, in an order that is anyone's. index
	// (Int64 or Int32) has src's shape. Integer and float types.
	ScatterAdd(q Queue, dst, index, src Array, axis int) error

	// Sort sorts along axis, stably; NaN is the greatest. values has x's type, indices (Int64) says where each came from;
	// either may be nil. Bool, integer and float types.
	Sort(q Queue, descending bool, values, indices *Array, x Array, axis int) error

	// TopK finds the k greatest (or, if least, least) elements along axis, in order, and which they are; among equals the
	// first come first. k is values' (and indices') length along axis, at most x's. NaN is the greatest. Types as Sort.
	TopK(q Queue, least bool, values, indices *Array, x Array, axis int) error

	// MatMul computes dst = a @ b for each of the batches: shapes [batch..., m, k] @ [batch..., k, n] = [batch..., m, n],
	// with the same batch axes (strides 0 where broadcast; none for a single product). All have the same type: float and
	// integer types. k may be 0: zeros. Any strides; those of plain and transposed matrices run at full speed.
	MatMul(q Queue, dst, a, b Array) error

	// Failed waits for nothing: it returns what work that is done found wrong since it was last asked, an *IndexError, or
	// nil. Asked after a stream's Sync it covers that stream's work.
	Failed() error

	// Close gives back what the backend holds of the device, before that is closed.
	Close() error
}
