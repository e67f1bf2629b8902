package host

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
)

//go:noescape
func addF32(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func subF32(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func mulF32(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func divF32(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func maxF32(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func minF32(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func addF64(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func subF64(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func mulF64(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func divF64(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func maxF64(dst, x, y unsafe.Pointer, size int, streaming bool)

//go:noescape
func minF64(dst, x, y unsafe.Pointer, size int, streaming bool)

// A vectorKernel sets dst[i] = op(x[i], y[i]) for size bytes, a multiple of 32.
type vectorKernel func(dst, x, y unsafe.Pointer, size int, streaming bool)

// vectorKernels has the kernels of each operation for float32 and float64.
var vectorKernels = [...][2]vectorKernel{
	backend.Add:     {addF32, addF64},
	backend.Sub:     {subF32, subF64},
	backend.Mul:     {mulF32, mulF64},
	backend.Div:     {divF32, divF64},
	backend.Maximum: {maxF32, maxF64},
	backend.Minimum: {minF32, minF64},
}

// vectorized computes size bytes, a multiple of 32.
func vectorized[T float](op backend.BinaryOp, dst, x, y unsafe.Pointer, size int, streaming bool) {
	vectorKernels[op][unsafe.Sizeof(*new(T))/8](dst, x, y, size, streaming)
}
