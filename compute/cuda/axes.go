package cuda

import "github.com/ashlar-go/ashlar/compute/backend"

// An axis is one that some operands share: its length, and the stride of each operand along it, in elements.
type axis struct {
	n      int
	stride [3]int
}

// axesOf returns the axes that pick picks, of up to three operands, nearest elements of the first operand first, and as
// few as can be: those of length 1 are left out, and two that follow each other in all operands are one. A nil operand
// has strides of 0.
func axesOf(pick func(k int) bool, arrays ...*backend.Array) []axis {
	var list []axis
	for k := len(arrays[0].Shape) - 1; k >= 0; k-- {
		if arrays[0].Shape[k] == 1 || !pick(k) {
			continue
		}
		a := axis{n: arrays[0].Shape[k]}
		for i, array := range arrays {
			if array != nil {
				a.stride[i] = array.Strides[k]
			}
		}
		list = append(list, a)
	}
	return merged(list)
}

// merged orders axes by the first operand's strides, the least first, and joins those that follow each other.
func merged(list []axis) []axis {
	for i := range list {
		for j := i; j > 0 && magnitude(list[j].stride[0]) < magnitude(list[j-1].stride[0]); j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
	last := 0
	for _, a := range list[min(1, len(list)):] {
		inner := &list[last]
		if a.stride[0] == inner.stride[0]*inner.n && a.stride[1] == inner.stride[1]*inner.n &&
			a.stride[2] == inner.stride[2]*inner.n {
			inner.n *= a.n
			continue
		}
		last++
		list[last] = a
	}
	return list[:min(last+1, len(list))]
}

// countAlong is the number of elements that axes count.
func countAlong(list []axis) int {
	n := 1
	for _, a := range list {
		n *= a.n
	}
	return n
}

// An axes is Axes of kernels/axes.cuh. S is an array of as many operands as the kernel has, each
// [backend.MaxRank]int64.
type axes[S any] struct {
	rank   int64
	n      [backend.MaxRank]int64
	stride S
}

type strides = [backend.MaxRank]int64

func axes1(list []axis) (a axes[[1]strides]) {
	a.rank = setAxes(list, &a.n, a.stride[:])
	return a
}

func axes2(list []axis) (a axes[[2]strides]) {
	a.rank = setAxes(list, &a.n, a.stride[:])
	return a
}

func axes3(list []axis) (a axes[[3]strides]) {
	a.rank = setAxes(list, &a.n, a.stride[:])
	return a
}

func setAxes(list []axis, n *strides, stride []strides) int64 {
	for k, a := range list {
		n[k] = int64(a.n)
		for i := range stride {
			stride[i][k] = int64(a.stride[i])
		}
	}
	return int64(len(list))
}

// divisible reports whether v divides every stride of an operand along axes.
func divisible(list []axis, operand, v int) bool {
	for _, a := range list {
		if a.stride[operand]%v != 0 {
			return false
		}
	}
	return true
}

// countOf is the number of elements of an array.
func countOf(a *backend.Array) int {
	n := 1
	for _, length := range a.Shape {
		n *= length
	}
	return n
}

// powerAbove is the least power of 2 that is not less than n.
func powerAbove(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// packed is an array of these lengths without gaps, in row-major order.
func packed(shape ...int) backend.Array {
	a := backend.Array{Shape: shape, Strides: make([]int, len(shape))}
	step := 1
	for k := len(shape) - 1; k >= 0; k-- {
		a.Strides[k] = step
		step *= shape[k]
	}
	return a
}
