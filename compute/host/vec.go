package host

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
)

// Functions of contiguous floats with AVX2 (vec_amd64.s). Their results have the same bits as those of Go code, except
// for the bits of NaNs.

// streamSize is the size of a result in bytes from which on it is written past the caches: about a core's share of the
// last-level cache. An ordinary store reads the cache line that it overwrites, which is a quarter of the memory traffic
// of a sum of two arrays.
const streamSize = 4 << 20

// vecBinary sets dst[i] = op(x[i], y[i]); op is Add, Sub, Mul, Div, Maximum or Minimum. x and y are at least as long as
// dst, which may be one of them and does not overlap them in any other way.
//
// total is the size in bytes of the result that dst is part of: from streamSize on, dst is written past the caches if
// it is neither x nor y.
func vecBinary[T float](op backend.BinaryOp, dst, x, y []T, total int) {
	const vector = 32
	size := int(unsafe.Sizeof(T(0)))
	if !hasAVX2 || len(dst)*size < vector {
		plainBinary(op, dst, x, y)
		return
	}
	streaming := total >= streamSize && &dst[0] != &x[0] && &dst[0] != &y[0]
	if streaming { // streaming stores need dst aligned to 32 bytes
		head := min(-int(uintptr(unsafe.Pointer(&dst[0])))&(vector-1)/size, len(dst))
		plainBinary(op, dst[:head], x, y)
		dst, x, y = dst[head:], x[head:], y[head:]
	}
	n := len(dst) &^ (vector/size - 1)
	if n > 0 {
		vectorized[T](op, unsafe.Pointer(&dst[0]), unsafe.Pointer(&x[:n][0]), unsafe.Pointer(&y[:n][0]), n*size,
			streaming)
	}
	plainBinary(op, dst[n:], x[n:], y[n:])
}

// plainBinary is vecBinary in Go.
func plainBinary[T float](op backend.BinaryOp, dst, x, y []T) {
	switch op {
	case backend.Add:
		addOf(dst, x, y)
	case backend.Sub:
		subOf(dst, x, y)
	case backend.Mul:
		mulOf(dst, x, y)
	case backend.Div:
		divOf(dst, x, y)
	case backend.Maximum:
		maxOf(dst, x, y)
	case backend.Minimum:
		minOf(dst, x, y)
	}
}

func divOf[T float](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] / y[i]
	}
}
