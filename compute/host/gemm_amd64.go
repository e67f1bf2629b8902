package host

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:noescape
func tile6x16(k int, a, b, c *float32, ldc int, add bool)

//go:noescape
func tile6x8(k int, a, b, c *float64, ldc int, add bool)

//go:noescape
func tile12x32(k int, a, b, c *float32, ldc int, add bool)

//go:noescape
func tile12x16(k int, a, b, c *float64, ldc int, add bool)

//go:noescape
func dotF32(x, y *float32, size int) float32

//go:noescape
func dotF64(x, y *float64, size int) float64

//go:noescape
func axpy4F32(y, r0, r1, r2, r3, x *float32, size int)

//go:noescape
func axpy4F64(y, r0, r1, r2, r3, x *float64, size int)

// hasAVX2 says that the processor and the system know AVX2, FMA and F16C.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C

// The kernels of floats. AVX-512 gains little where its vectors are computed in halves (AMD's Zen 4: nothing for large
// matrices, a sixth for those of 256 x 256), and is there for processors that compute them whole.
var (
	avx2F32 = kernels[float32]{1 << 18, microkernel[float32]{6, 16, 256, tile6x16}, dotOf(dotF32), axpyOf(axpy4F32)}
	avx2F64 = kernels[float64]{1 << 18, microkernel[float64]{6, 8, 256, tile6x8}, dotOf(dotF64), axpyOf(axpy4F64)}

	avx512F32 = kernels[float32]{1 << 18, microkernel[float32]{12, 32, 256, tile12x32}, avx2F32.dot, avx2F32.axpy}
	avx512F64 = kernels[float64]{1 << 18, microkernel[float64]{12, 16, 256, tile12x16}, avx2F64.dot, avx2F64.axpy}
)

// kernelSets returns the kernels that this processor can run, the best first.
func kernelSets[T number]() []kernels[T] {
	var sets []kernels[T]
	add := func(has bool, f32 kernels[float32], f64 kernels[float64]) {
		for _, set := range []any{f32, f64} {
			if set, ok := set.(kernels[T]); ok && has {
				sets = append(sets, set)
			}
		}
	}
	add(hasAVX2 && cpu.X86.HasAVX512F, avx512F32, avx512F64)
	add(hasAVX2, avx2F32, avx2F64)
	return append(sets, plain[T]())
}

// dotOf makes a kernel of what computes multiples of 32 bytes.
func dotOf[T float](dot func(x, y *T, size int) T) func(x, y []T) T {
	size := int(unsafe.Sizeof(*new(T)))
	return func(x, y []T) T {
		n := len(x) &^ (32/size - 1)
		sum := plainDot(x[n:], y[n:])
		if n > 0 {
			sum += dot(&x[0], &y[:n][0], n*size)
		}
		return sum
	}
}

// axpyOf likewise.
func axpyOf[T float](axpy func(y, r0, r1, r2, r3, x *T, size int)) func(y []T, rows *[4][]T, x *[4]T) {
	return func(y []T, rows *[4][]T, x *[4]T) {
		size := int(unsafe.Sizeof(*new(T)))
		n := len(y) &^ (32/size - 1)
		if n > 0 {
			axpy(&y[0], &rows[0][:n][0], &rows[1][:n][0], &rows[2][:n][0], &rows[3][:n][0], &x[0], n*size)
		}
		plainAxpy(y[n:], &[4][]T{rows[0][n:], rows[1][n:], rows[2][n:], rows[3][n:]}, x)
	}
}
