package tensor

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/dtype"
)

// An excerpt holds the elements of a tensor that are printed.
type excerpt struct {
	dtype dtype.DType
	shape []int  // the number shown along each axis
	cut   []bool // for each axis, whether only its two ends are shown
	data  []byte // row by row
}

// maxGap is the largest gap in bytes between two elements that are read in one copy. A copy from a GPU takes about 10
// µs, to which 4 KiB add almost nothing.
const maxGap = 4 << 10

// excerpt reads the elements to print: all, or only edge at each end of the longer axes if there are more than
// threshold. Each copy from the device reads elements that are close together in memory, for any strides.
func (t *Tensor) excerpt(threshold, edge int) (*excerpt, error) {
	e := &excerpt{dtype: t.dtype, shape: slices.Clone(t.shape), cut: make([]bool, len(t.shape))}
	n := t.Len()
	if n == 0 {
		return e, nil
	}
	if n > threshold {
		for i, length := range t.shape {
			if length-edge > edge {
				e.shape[i], e.cut[i] = 2*edge, true
			}
		}
	}
	at := t.shown(e, edge)
	size := t.dtype.Size()
	e.data = make([]byte, len(at)*size)
	order := make([]int, len(at)) // indices of at, sorted by address
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	for len(order) > 0 {
		n := 1
		for n < len(order) && at[order[n]]-at[order[n-1]] <= maxGap/size {
			n++
		}
		first, last := at[order[0]], at[order[n-1]]
		piece := make([]byte, (last-first+1)*size)
		if err := t.readRange(piece, int64(first-t.offset)*int64(size)); err != nil {
			return nil, err
		}
		for _, i := range order[:n] {
			copy(e.data[i*size:(i+1)*size], piece[(at[i]-first)*size:])
		}
		order = order[n:]
	}
	return e, nil
}

// shown returns the positions in the storage of the elements to print, in row-major order.
func (t *Tensor) shown(e *excerpt, edge int) []int {
	at := []int{t.offset}
	for axis, n := range e.shape {
		next := make([]int, 0, len(at)*n)
		for _, start := range at {
			for i := range n {
				if e.cut[axis] && i >= edge {
					i += t.shape[axis] - n
				}
				next = append(next, start+i*t.strides[axis])
			}
		}
		at = next
	}
	return at
}

// count returns the number of elements.
func (e *excerpt) count() int { return len(e.data) / e.dtype.Size() }

// element returns element i.
func (e *excerpt) element(i int) dtype.Scalar { return e.dtype.Load(e.data[i*e.dtype.Size():]) }

// component returns the type of the elements, or of their real parts if they are complex.
func (e *excerpt) component() dtype.DType {
	switch e.dtype {
	case dtype.Complex64:
		return dtype.Float32
	case dtype.Complex128:
		return dtype.Float64
	}
	return e.dtype
}

// floats returns the real parts of all elements and, if they are complex, the imaginary parts.
func (e *excerpt) floats() (re, im []float64) {
	re, im = make([]float64, e.count()), make([]float64, e.count())
	for i := range re {
		c := e.element(i).Complex128()
		re[i], im[i] = real(c), imag(c)
	}
	return re, im
}

// exact returns bools and integers in Python's form, and the length of the longest.
func (e *excerpt) exact() (words []string, width int) {
	words = make([]string, e.count())
	for i := range words {
		words[i] = e.element(i).String()
		if e.dtype == dtype.Bool {
			words[i] = map[string]string{"true": "True", "false": "False"}[words[i]]
		}
		width = max(width, len(words[i]))
	}
	return words, width
}
