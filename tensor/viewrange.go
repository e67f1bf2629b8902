package tensor

import (
	"fmt"
	"slices"
	"strings"
)

// A Range selects part of an axis for Slice, as between the brackets of Python:
//
//	Python    Go
//	:         Whole
//	1:5       FromTo(1, 5)
//	2:        From(2)
//	:-1       UpTo(-1)
//	::2       Whole.By(2)
//	::-1      Whole.By(-1)
//	5:1:-2    FromTo(5, 1).By(-2)
//	3         Index(3)
//	...       Rest
//	None      NewAxis
//
// The rules are NumPy's. Negative numbers count from the end. Bounds outside the axis are clipped. With a negative step
// a range runs backwards; without a start it then begins at the last index, and without a stop it ends at the first.
// The zero Range is Whole.
type Range struct {
	kind              rangeKind
	start, stop, step int
	from, to, by      bool // whether each was given
}

type rangeKind uint8

const (
	indexRange rangeKind = iota
	singleIndex
	newAxis
	restOfAxes
)

// Ranges without numbers.
var (
	Whole   = Range{}                 // all of an axis
	Rest    = Range{kind: restOfAxes} // all axes that the other ranges leave, whole; at most once
	NewAxis = Range{kind: newAxis}    // a new axis of length 1, which takes none of t's
)

// FromTo is start:stop, the indices from start up to but not including stop.
func FromTo(start, stop int) Range { return Range{start: start, from: true, stop: stop, to: true} }

// From is start:, the indices from start to the end, or to the first with a negative step.
func From(start int) Range { return Range{start: start, from: true} }

// UpTo is :stop, the indices before stop. With a negative step it is the indices from the last down to, but not
// including, stop.
func UpTo(stop int) Range { return Range{stop: stop, to: true} }

// Index is a single index, which must exist. The view does not have the axis.
func Index(i int) Range { return Range{kind: singleIndex, start: i} }

// By returns the range with a step, which must not be 0. It has no effect on Index, Rest and NewAxis.
func (r Range) By(step int) Range {
	r.step, r.by = step, true
	return r
}

// String returns the range in Python's notation: "1:5", "::-1", "3", "...", "None".
func (r Range) String() string {
	switch r.kind {
	case singleIndex:
		return fmt.Sprint(r.start)
	case newAxis:
		return "None"
	case restOfAxes:
		return "..."
	}
	var b strings.Builder
	if r.from {
		fmt.Fprint(&b, r.start)
	}
	b.WriteByte(':')
	if r.to {
		fmt.Fprint(&b, r.stop)
	}
	if r.by {
		fmt.Fprintf(&b, ":%d", r.step)
	}
	return b.String()
}

// resolve returns the first index, the step and the number of indices for an axis of length n. The step is not 0.
func (r Range) resolve(n int) (first, step, count int) {
	step = 1
	if r.by {
		step = r.step
	}
	low, high := 0, n // the limits to which bounds are clipped
	if step < 0 {
		low, high = -1, n-1
	}
	end := func(given bool, at, absent int) int {
		switch {
		case !given:
			return absent
		case at < 0:
			at += n
		}
		return min(max(at, low), high)
	}
	if step > 0 {
		start, stop := end(r.from, r.start, low), end(r.to, r.stop, high)
		if start < stop {
			count = (stop-start-1)/step + 1
		}
		return start, step, count
	}
	start, stop := end(r.from, r.start, high), end(r.to, r.stop, low)
	if start > stop {
		count = 1
		if reach := start - stop - 1; step >= -reach { // first, since -step overflows for the lowest int
			count += reach / -step
		}
	}
	return start, step, count
}

// Slice returns a view of a part of t: Python's t[ranges...]. There is one Range for each axis from the first on;
// further axes are taken whole.
//
//	t.Slice(tensor.FromTo(1, 5), tensor.Whole, tensor.Whole.By(-1))  // t[1:5, :, ::-1]
//	t.Slice(tensor.Rest, tensor.Index(0))                       // t[..., 0]
func (t *Tensor) Slice(ranges ...Range) (*Tensor, error) {
	t.alive("Slice")
	asked := func() string { return sliceText(ranges) }
	taken, rests := 0, 0
	for i, r := range ranges {
		switch {
		case r.kind == restOfAxes:
			rests++
		case r.kind != newAxis:
			taken++
		}
		if r.kind == indexRange && r.by && r.step == 0 {
			return nil, t.viewError(asked, "range %d has a step of 0", i)
		}
	}
	left := len(t.shape) - taken
	switch {
	case left < 0:
		return nil, t.viewError(asked, "it takes %d axes, of %d", taken, len(t.shape))
	case rests > 1:
		return nil, t.viewError(asked, "there are %d Rests", rests)
	}
	each := ranges
	if rests == 0 {
		each = append(slices.Clip(ranges), Rest)
	}
	v := t.view(make([]int, 0, len(t.shape)), make([]int, 0, len(t.shape)), t.offset)
	var added []int
	axis := 0
	for _, r := range each {
		switch r.kind {
		case restOfAxes:
			v.shape, v.strides = append(v.shape, t.shape[axis:axis+left]...),
				append(v.strides, t.strides[axis:axis+left]...)
			axis += left
		case newAxis:
			added = append(added, len(v.shape)+len(added))
		case singleIndex:
			i, n := r.start, t.shape[axis]
			if i < -n || i >= n {
				return nil, t.viewError(asked, "index %d is out of range for axis %d of length %d", i, axis, n)
			}
			if i < 0 {
				i += n
			}
			v.offset += i * t.strides[axis]
			axis++
		default:
			length, stride, from := t.part(axis, r)
			v.shape, v.strides, v.offset = append(v.shape, length), append(v.strides, stride), v.offset+from
			axis++
		}
	}
	for _, at := range added {
		v.insert(at)
	}
	return t.checkView(asked, v)
}

func sliceText(ranges []Range) string {
	text := make([]string, len(ranges))
	for i, r := range ranges {
		text[i] = r.String()
	}
	return "Slice(" + strings.Join(text, ", ") + ")"
}

// part applies a range to an axis. It returns the new length and stride, and the distance of its first element from
// t's.
func (t *Tensor) part(axis int, r Range) (length, stride, from int) {
	first, step, count := r.resolve(t.shape[axis])
	stride = t.strides[axis]
	if count > 0 {
		from = first * stride
	}
	if count > 1 { // otherwise the product may overflow and is not needed
		stride *= step
	}
	return count, stride, from
}

// Select returns a view of the elements with the given index along an axis. The view does not have the axis.
func (t *Tensor) Select(axis, index int) (*Tensor, error) {
	t.alive("Select")
	asked := func() string { return fmt.Sprintf("Select(%d, %d)", axis, index) }
	a, err := t.axis(asked, axis)
	if err != nil {
		return nil, err
	}
	n := t.shape[a]
	if index < -n || index >= n {
		return nil, t.viewError(asked, "the index is out of range for axis %d of length %d", a, n)
	}
	if index < 0 {
		index += n
	}
	return t.selected(a, index), nil
}

// selected is Select for a valid axis and index.
func (t *Tensor) selected(axis, index int) *Tensor {
	v := t.copyView()
	v.offset += index * v.strides[axis]
	v.shape, v.strides = slices.Delete(v.shape, axis, axis+1), slices.Delete(v.strides, axis, axis+1)
	return t.resetEmptyOffset(v)
}

// Narrow returns a view of length indices along an axis, from start on, which may count from the end. Unlike with Slice
// all of them must exist.
func (t *Tensor) Narrow(axis, start, length int) (*Tensor, error) {
	t.alive("Narrow")
	asked := func() string { return fmt.Sprintf("Narrow(%d, %d, %d)", axis, start, length) }
	a, err := t.axis(asked, axis)
	if err != nil {
		return nil, err
	}
	n := t.shape[a]
	if start < -n || start > n {
		return nil, t.viewError(asked, "the start is out of range for axis %d of length %d", a, n)
	}
	if start < 0 {
		start += n
	}
	if length < 0 || length > n-start {
		return nil, t.viewError(asked, "axis %d has %d indices from %d on", a, n-start, start)
	}
	return t.narrowed(a, start, length), nil
}

// narrowed is Narrow for a valid part.
func (t *Tensor) narrowed(axis, start, length int) *Tensor {
	v := t.copyView()
	v.offset += start * v.strides[axis]
	v.shape[axis] = length
	return t.resetEmptyOffset(v)
}

// Split returns views of consecutive parts along an axis. The lengths must add up to the length of the axis.
func (t *Tensor) Split(axis int, lengths ...int) ([]*Tensor, error) {
	t.alive("Split")
	asked := func() string { return fmt.Sprintf("Split(%d, %v)", axis, lengths) }
	a, err := t.axis(asked, axis)
	if err != nil {
		return nil, err
	}
	left := t.shape[a]
	for _, n := range lengths {
		if n < 0 || n > left {
			return nil, t.viewError(asked, "the lengths do not add up to %d, that of axis %d", t.shape[a], a)
		}
		left -= n
	}
	if left != 0 {
		return nil, t.viewError(asked, "the lengths do not add up to %d, that of axis %d", t.shape[a], a)
	}
	parts := make([]*Tensor, len(lengths))
	start := 0
	for i, n := range lengths {
		parts[i] = t.narrowed(a, start, n)
		start += n
	}
	return parts, nil
}

// Chunk returns views of at most n consecutive parts along an axis, as PyTorch's chunk. The length of a part is the
// axis's length divided by n and rounded up, so there may be fewer parts, and the last may be shorter. An axis of
// length 0 has n parts.
func (t *Tensor) Chunk(axis, n int) ([]*Tensor, error) {
	t.alive("Chunk")
	asked := func() string { return fmt.Sprintf("Chunk(%d, %d)", axis, n) }
	a, err := t.axis(asked, axis)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, t.viewError(asked, "there is at least one part")
	}
	length := t.shape[a]
	if length == 0 {
		return t.Split(a, make([]int, n)...)
	}
	size := (length-1)/n + 1
	parts := make([]*Tensor, 0, (length-1)/size+1)
	for start := 0; start < length; start += size {
		parts = append(parts, t.narrowed(a, start, min(size, length-start)))
	}
	return parts, nil
}

// Flip returns a view with the order of the given axes reversed, or of all axes if none is given.
func (t *Tensor) Flip(axes ...int) (*Tensor, error) {
	t.alive("Flip")
	flipped, err := t.axes(func() string { return fmt.Sprintf("Flip(%v)", axes) }, axes)
	if err != nil {
		return nil, err
	}
	v := t.copyView()
	for a, n := range t.shape {
		if n > 0 && (len(axes) == 0 || slices.Contains(flipped, a)) {
			v.offset += (n - 1) * v.strides[a]
			v.strides[a] = -v.strides[a]
		}
	}
	return t.resetEmptyOffset(v), nil
}
