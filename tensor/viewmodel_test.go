package tensor_test

import (
	"math/rand/v2"
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// A model is a tensor without strides: for each element, row by row, the offset in the storage at which it starts.
type model struct {
	dtype dtype.DType
	shape []int
	at    []int
	room  int // bytes of the storage
}

// remap returns a model of a new shape: its element at indices i is m's element at the indices that from writes into
// the slice it is given.
func (m *model) remap(shape []int, from func(i, old []int)) *model {
	n := &model{dtype: m.dtype, shape: shape, room: m.room}
	index, old := make([]int, len(shape)), make([]int, len(m.shape))
	for range product(shape) {
		from(index, old)
		linear := 0
		for a, i := range old {
			if i < 0 || i >= m.shape[a] {
				panic("the model looks outside of itself")
			}
			linear = linear*m.shape[a] + i
		}
		n.at = append(n.at, m.at[linear])
		for a := len(index) - 1; a >= 0; a-- {
			if index[a]++; index[a] < shape[a] {
				break
			}
			index[a] = 0
		}
	}
	return n
}

func product(shape []int) int {
	n := 1
	for _, length := range shape {
		n *= length
	}
	return n
}

// affine searches for strides that lead through at in the order of a shape. There is only one candidate for each axis,
// given by the element at index 1 along it.
func affine(at, shape []int) bool {
	if product(shape) == 0 {
		return true
	}
	strides := make([]int, len(shape))
	inner := 1
	for a := len(shape) - 1; a >= 0; a-- {
		if shape[a] > 1 {
			strides[a] = at[inner] - at[0]
		}
		inner *= shape[a]
	}
	for linear, got := range at {
		want, rest := at[0], linear
		for a := len(shape) - 1; a >= 0; a-- {
			want += rest % shape[a] * strides[a]
			rest /= shape[a]
		}
		if got != want {
			return false
		}
	}
	return true
}

// reshape is the model with another shape, or nil if there is no such view.
func (m *model) reshape(shape []int) *model {
	open := -1
	known := 1
	for i, n := range shape {
		switch {
		case n == -1 && open < 0:
			open = i
		case n < 0:
			return nil
		default:
			known *= n
		}
	}
	shape = slices.Clone(shape)
	if open >= 0 {
		if known == 0 || len(m.at)%known != 0 {
			return nil
		}
		shape[open] = len(m.at) / known
	}
	if product(shape) != len(m.at) || !affine(m.at, shape) || len(shape) > backend.MaxRank {
		return nil
	}
	return &model{dtype: m.dtype, shape: shape, at: m.at, room: m.room}
}

// axis converts an axis that may count from the end into one that counts from 0.
func (m *model) axis(axis int) (int, bool) {
	if axis < 0 {
		axis += len(m.shape)
	}
	return axis, axis >= 0 && axis < len(m.shape)
}

func (m *model) axes(axes []int) ([]int, bool) {
	var out []int
	for _, axis := range axes {
		a, ok := m.axis(axis)
		if !ok || slices.Contains(out, a) {
			return nil, false
		}
		out = append(out, a)
	}
	return out, true
}

// permute is the model with the axes in another order.
func (m *model) permute(axes []int) *model {
	var shape []int
	for _, a := range axes {
		shape = append(shape, m.shape[a])
	}
	return m.remap(shape, func(i, old []int) {
		for to, a := range axes {
			old[a] = i[to]
		}
	})
}

// pick is the model with only some indices along an axis.
func (m *model) pick(axis int, indices []int) *model {
	shape := slices.Clone(m.shape)
	shape[axis] = len(indices)
	return m.remap(shape, func(i, old []int) {
		copy(old, i)
		old[axis] = indices[i[axis]]
	})
}

// drop is the model without an axis, of which one index is left.
func (m *model) drop(axis, index int) *model {
	return m.remap(slices.Delete(slices.Clone(m.shape), axis, axis+1), func(i, old []int) {
		copy(old, i[:axis])
		copy(old[axis+1:], i[axis:])
		old[axis] = index
	})
}

// insert is the model with a new axis.
func (m *model) insert(axis int) *model {
	return m.remap(slices.Insert(slices.Clone(m.shape), axis, 1), func(i, old []int) {
		copy(old, i[:axis])
		copy(old[axis:], i[axis+1:])
	})
}

// span is the indices from start to before stop.
func span(start, stop int) []int {
	var out []int
	for i := start; i < stop; i++ {
		out = append(out, i)
	}
	return out
}

// viewAs is the model with the same bytes as another type, or nil.
func (m *model) viewAs(d dtype.DType) *model {
	if !d.Valid() || (d == dtype.Bool && m.dtype != d) {
		return nil
	}
	n := &model{dtype: d, shape: slices.Clone(m.shape), room: m.room}
	from, to, last := m.dtype.Size(), d.Size(), len(m.shape)-1
	switch {
	case from == to:
		n.at = m.at
		return n
	case last < 0:
		return nil
	case from > to:
		n.shape[last] *= from / to
		for _, at := range m.at {
			for part := 0; part < from; part += to {
				n.at = append(n.at, at+part)
			}
		}
		if !affine(n.at, n.shape) {
			return nil
		}
		return n
	}
	factor := to / from
	if m.shape[last]%factor != 0 {
		return nil
	}
	n.shape[last] /= factor
	for i, at := range m.at {
		if i%factor == 0 {
			if at%to != 0 {
				return nil
			}
			n.at = append(n.at, at)
		} else if at != n.at[len(n.at)-1]+i%factor*from {
			return nil
		}
	}
	return n
}

// between returns a number from low to high.
func between(r *rand.Rand, low, high int) int { return low + r.IntN(high-low+1) }
