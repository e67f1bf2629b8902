package host

import "math"

// The loops of operations that take less time than their operands take from memory, one function each: Go's compiler
// makes none of a function that is called for each element. The rest go by way of each1 and each2.

func addOf[T number](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func subOf[T number](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] - y[i]
	}
}

func mulOf[T number](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func maxOf[T number](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = max(x[i], y[i])
	}
}

func minOf[T number](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = min(x[i], y[i])
	}
}

func andOf[T integer](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] & y[i]
	}
}

func orOf[T integer](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] | y[i]
	}
}

func xorOf[T integer](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] ^ y[i]
	}
}

func equalOf[T number](dst []bool, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] == y[i]
	}
}

func notEqualOf[T number](dst []bool, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] != y[i]
	}
}

func lessOf[T number](dst []bool, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] < y[i]
	}
}

func lessEqualOf[T number](dst []bool, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] <= y[i]
	}
}

func negOf[T number](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = -x[i]
	}
}

func absOf[T float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Abs(float64(x[i])))
	}
}

func sqrtOf[T float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Sqrt(float64(x[i])))
	}
}

func reciprocalOf[T float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = 1 / x[i]
	}
}

func squareOf[T number](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * x[i]
	}
}

func isZeroOf[T number](dst []bool, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = x[i] == 0
	}
}

// reluOf leaves NaN, which is not less than 0.
func reluOf[T number](dst, x []T) {
	x = x[:len(dst)]
	for i, v := range x {
		if v <= 0 {
			v = 0
		}
		dst[i] = v
	}
}

func invertOf[T integer](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = ^x[i]
	}
}

// each1 and each2 call a function for each element.
func each1[R, T any](f func(T) R) func(dst []R, x []T) {
	return func(dst []R, x []T) {
		x = x[:len(dst)]
		for i := range dst {
			dst[i] = f(x[i])
		}
	}
}

func each2[R, T any](f func(x, y T) R) func(dst []R, x, y []T) {
	return func(dst []R, x, y []T) {
		x, y = x[:len(dst)], y[:len(dst)]
		for i := range dst {
			dst[i] = f(x[i], y[i])
		}
	}
}

// wide1 and wide2 compute in float64, and round to T once.
func wide1[T float](f func(float64) float64) func(dst, x []T) {
	return func(dst, x []T) {
		x = x[:len(dst)]
		for i := range dst {
			dst[i] = T(f(float64(x[i])))
		}
	}
}

func wide2[T float](f func(x, y float64) float64) func(x, y T) T {
	return func(x, y T) T { return T(f(float64(x), float64(y))) }
}
