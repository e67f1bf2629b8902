package host

import "unsafe"

// Kernels are what products are computed with.
type kernels[T number] struct {
	grain int // multiplications that are worth a goroutine; OpenBLAS begins to use its threads at 1 << 18
	tile  microkernel[T]
	dot   func(x, y []T) T                   // the sum of x[i]*y[i]; y is as long as x
	axpy  func(y []T, rows *[4][]T, x *[4]T) // y[i] += the sum of rows[r][i]*x[r]; rows are as long as y
}

// plain returns the kernels in Go, for integers and for processors that have no others. The tile of 4 x 4 elements fits
// the 32 registers of arm64 with what it is computed from.
func plain[T number]() kernels[T] {
	return kernels[T]{1 << 16, microkernel[T]{mr: 4, nr: 4, kc: 256, run: tile4x4[T]}, plainDot[T], plainAxpy[T]}
}

var bestF32, bestF64 = kernelSets[float32]()[0], kernelSets[float64]()[0]

// best returns the best kernels that this processor can run.
func best[T number]() kernels[T] {
	if k, ok := any(&bestF32).(*kernels[T]); ok {
		return *k
	}
	if k, ok := any(&bestF64).(*kernels[T]); ok {
		return *k
	}
	return plain[T]()
}

func tile4x4[T number](k int, a, b, c *T, ldc int, add bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13, c20, c21, c22, c23, c30, c31, c32, c33 T
	as, bs := unsafe.Slice(a, 4*k), unsafe.Slice(b, 4*k)
	for len(as) >= 4 && len(bs) >= 4 {
		b0, b1, b2, b3 := bs[0], bs[1], bs[2], bs[3]
		x := as[0]
		c00 += x * b0
		c01 += x * b1
		c02 += x * b2
		c03 += x * b3
		x = as[1]
		c10 += x * b0
		c11 += x * b1
		c12 += x * b2
		c13 += x * b3
		x = as[2]
		c20 += x * b0
		c21 += x * b1
		c22 += x * b2
		c23 += x * b3
		x = as[3]
		c30 += x * b0
		c31 += x * b1
		c32 += x * b2
		c33 += x * b3
		as, bs = as[4:], bs[4:]
	}
	tile := [4][4]T{{c00, c01, c02, c03}, {c10, c11, c12, c13}, {c20, c21, c22, c23}, {c30, c31, c32, c33}}
	cs := unsafe.Slice(c, 3*ldc+4)
	for i := range tile {
		row := cs[i*ldc:][:4]
		for j, v := range tile[i] {
			if add {
				v += row[j]
			}
			row[j] = v
		}
	}
}

func plainDot[T number](x, y []T) T {
	var s0, s1, s2, s3 T
	y = y[:len(x)]
	for len(x) >= 4 && len(y) >= 4 {
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
		x, y = x[4:], y[4:]
	}
	for i, v := range x {
		s0 += v * y[i]
	}
	return s0 + s1 + (s2 + s3)
}

func plainAxpy[T number](y []T, rows *[4][]T, x *[4]T) {
	x0, x1, x2, x3 := x[0], x[1], x[2], x[3]
	r0, r1, r2, r3 := rows[0][:len(y)], rows[1][:len(y)], rows[2][:len(y)], rows[3][:len(y)]
	for i, v := range y {
		y[i] = v + (r0[i]*x0 + r1[i]*x1) + (r2[i]*x2 + r3[i]*x3)
	}
}
