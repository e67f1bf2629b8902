package cuda

import (
	"math/bits"

	"github.com/ashlar-go/ashlar/compute/backend"
)

// A divisor is Divisor of kernels/index.cuh: n/d for n below 2^31 is (high half of n*magic, plus n) >> shift.
type divisor struct{ magic, shift uint32 }

// divide returns the divisor for d, from 1 to below 2^31.
func divide(d int) divisor {
	shift := bits.Len32(uint32(d) - 1)
	return divisor{uint32((1<<32*(1<<shift-uint64(d)))/uint64(d) + 1), uint32(shift)}
}

// Limits of 32-bit index arithmetic: elements that one launch visits, and elements from one index to the next.
const (
	maxElements = 1<<31 - 1
	maxStride   = 1<<31 - 1
)

// maxOperands is how many arrays a layout holds: those of Where.
const maxOperands = 4

// A layout is where the elements of a few operands of one shape lie, fastest axis first, with as few axes as can be. It
// has at least one axis, none of length 0, and none of length 1 but where it is the only one.
type layout struct {
	rank     int
	operands int
	shape    [backend.MaxRank]int
	strides  [maxOperands][backend.MaxRank]int // in elements, by operand
}

// elements is how many there are.
func (l *layout) elements() int {
	n := 1
	for _, length := range l.shape[:l.rank] {
		n *= length
	}
	return n
}

// newLayout orders the axes by the strides of the first operand, dst, and makes one of two that follow each other in
// all operands. All have dst's shape, which holds no 0.
func newLayout(arrays ...*backend.Array) layout {
	l := layout{operands: len(arrays)}
	dst := arrays[0]
	for axis := len(dst.Shape) - 1; axis >= 0; axis-- {
		if dst.Shape[axis] == 1 {
			continue
		}
		to := l.rank
		l.rank++
		for to > 0 && magnitude(dst.Strides[axis]) < magnitude(l.strides[0][to-1]) {
			l.move(to, to-1)
			to--
		}
		l.shape[to] = dst.Shape[axis]
		for k, a := range arrays {
			l.strides[k][to] = a.Strides[axis]
		}
	}
	l.merge()
	return l
}

func magnitude(stride int) int { return max(stride, -stride) }

// forward turns the axes along which dst goes backward, and returns how far that moves the first element of each
// operand, in elements. It is for work that does not mind the order of elements.
func (l *layout) forward() (offsets [maxOperands]int) {
	turned := false
	for axis := range l.rank {
		if l.strides[0][axis] >= 0 {
			continue
		}
		turned = true
		for k := range l.operands {
			offsets[k] += (l.shape[axis] - 1) * l.strides[k][axis]
			l.strides[k][axis] *= -1
		}
	}
	if turned {
		l.merge()
	}
	return offsets
}

// move copies an axis.
func (l *layout) move(to, from int) {
	l.shape[to] = l.shape[from]
	for k := range l.operands {
		l.strides[k][to] = l.strides[k][from]
	}
}

// merge makes one axis of two that follow each other.
func (l *layout) merge() {
	if l.rank == 0 {
		l.rank, l.shape[0] = 1, 1
		for k := range l.operands {
			l.strides[k][0] = 0
		}
		return
	}
	last := 0
	for axis := 1; axis < l.rank; axis++ {
		if l.follows(last, axis) {
			l.shape[last] *= l.shape[axis]
			continue
		}
		last++
		l.move(last, axis)
	}
	l.rank = last + 1
}

// follows reports whether one step along axis is a whole turn of the axis inner, in every operand.
func (l *layout) follows(inner, axis int) bool {
	for k := range l.operands {
		if l.strides[k][axis] != l.strides[k][inner]*l.shape[inner] {
			return false
		}
	}
	return true
}

// inOrder is a's axes with the last one first, and those that follow each other as one: elements are numbered as they
// are in a. No length is 0.
func inOrder(a *backend.Array) layout {
	l := layout{operands: 1}
	for axis := len(a.Shape) - 1; axis >= 0; axis-- {
		if a.Shape[axis] > 1 {
			l.shape[l.rank], l.strides[0][l.rank] = a.Shape[axis], a.Strides[axis]
			l.rank++
		}
	}
	l.merge()
	return l
}

// A walk is Walk of kernels/index.cuh with strides of 32 bits. S is an array of as many operands as the kernel has,
// each [backend.MaxRank]int32.
type walk[S any] struct {
	n, rank uint32
	shape   [backend.MaxRank]uint32
	by      [backend.MaxRank]divisor
	strides S
}

// set fills in all of w but the strides.
func (w *walk[S]) set(l *layout) {
	w.n, w.rank = uint32(l.elements()), uint32(l.rank)
	for axis, length := range l.shape[:l.rank] {
		w.shape[axis] = uint32(length)
		w.by[axis] = divide(length)
	}
}

// walk2 to walk4 are those of so many operands.
type (
	walk2 = walk[[2][backend.MaxRank]int32]
	walk3 = walk[[3][backend.MaxRank]int32]
	walk4 = walk[[4][backend.MaxRank]int32]
)

// narrow fills in strides of 32 bits: one for each operand of the walk.
func (l *layout) narrow(strides [][backend.MaxRank]int32) {
	for k := range strides {
		for axis := range l.rank {
			strides[k][axis] = int32(l.strides[k][axis])
		}
	}
}

// fits reports whether 32 bits do for all indices and strides.
func (l *layout) fits() bool {
	if l.elements() > maxElements {
		return false
	}
	for k := range l.operands {
		for _, s := range l.strides[k][:l.rank] {
			if magnitude(s) > maxStride {
				return false
			}
		}
	}
	return true
}

// pieces calls visit with parts of l that fit, and the offset of each part's first element in each operand, in
// elements. Mostly that is l itself. Parts of long axes begin at multiples of 2^20, so that they are aligned as the
// whole is.
func (l *layout) pieces(visit func(part *layout, offsets [maxOperands]int) error) error {
	return l.split([maxOperands]int{}, visit)
}

func (l *layout) split(offsets [maxOperands]int, visit func(*layout, [maxOperands]int) error) error {
	if l.fits() {
		return visit(l, offsets)
	}
	axis, step := l.rank-1, 1
	for a := range l.rank { // a stride too long: that axis index by index
		for k := range l.operands {
			if magnitude(l.strides[k][a]) > maxStride && l.shape[a] > 1 {
				axis = a
			}
		}
	}
	tooLong := false
	for k := range l.operands {
		tooLong = tooLong || magnitude(l.strides[k][axis]) > maxStride
	}
	if rest := l.elements() / l.shape[axis]; !tooLong && rest < maxElements {
		step = max(1, maxElements/rest)
		if step > 1<<20 {
			step &^= 1<<20 - 1
		}
	}
	for from := 0; from < l.shape[axis]; from += step {
		part, moved := *l, offsets
		part.shape[axis] = min(step, l.shape[axis]-from)
		for k := range l.operands {
			moved[k] += from * l.strides[k][axis]
		}
		if part.shape[axis] == 1 {
			part.drop(axis)
			part.merge()
		}
		if err := part.split(moved, visit); err != nil {
			return err
		}
	}
	return nil
}

// drop takes out an axis. To have one axis at least, merge then.
func (l *layout) drop(axis int) {
	for a := axis; a+1 < l.rank; a++ {
		l.move(a, a+1)
	}
	l.rank--
}
