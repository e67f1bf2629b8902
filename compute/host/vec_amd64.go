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

// vectorized computes size bytes, a multiple of 32.
func vectorized[T float](op backend.BinaryOp, dst, x, y unsafe.Pointer, size int, streaming bool) {
	double := unsafe.Sizeof(*new(T)) == 8
	switch {
	case op == backend.Add && double:
		addF64(dst, x, y, size, streaming)
	case op == backend.Add:
		addF32(dst, x, y, size, streaming)
	case op == backend.Sub && double:
		subF64(dst, x, y, size, streaming)
	case op == backend.Sub:
		subF32(dst, x, y, size, streaming)
	case op == backend.Mul && double:
		mulF64(dst, x, y, size, streaming)
	case op == backend.Mul:
		mulF32(dst, x, y, size, streaming)
	case op == backend.Div && double:
		divF64(dst, x, y, size, streaming)
	case op == backend.Div:
		divF32(dst, x, y, size, streaming)
	case op == backend.Maximum && double:
		maxF64(dst, x, y, size, streaming)
	case op == backend.Maximum:
		maxF32(dst, x, y, size, streaming)
	case op == backend.Minimum && double:
		minF64(dst, x, y, size, streaming)
	case op == backend.Minimum:
		minF32(dst, x, y, size, streaming)
	}
}
