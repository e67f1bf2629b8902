package backendtest

import "slices"

// Lengths of axes: short ones, and those around which vectors, rows, tiles and blocks of threads end.
var (
	shortLengths = []int{1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17}
	longLengths  = []int{31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 511, 1023, 1024, 1025, 2049, 4097}
	hugeLength   = 70_000
)

// shape returns the lengths of up to five axes, now and then sixteen, with at most most elements in all, and sometimes
// none.
func (s *suite) shape(most int) []int {
	rank := s.rng.IntN(6)
	if s.oneIn(24) {
		rank = 16
	}
	return s.shapeOf(rank, most)
}

// shapeOf is shape for a number of axes.
func (s *suite) shapeOf(rank, most int) []int {
	lengths := make([]int, rank)
	left := most
	take := func(i int, from []int) {
		n := pick(s.rng, from...)
		if n > left {
			n = 1 + s.rng.IntN(left)
		}
		lengths[i], left = n, left/n
	}
	order := s.rng.Perm(rank)
	for k, i := range order {
		switch {
		case rank == 1 && most >= 3000 && s.oneIn(40):
			lengths[i] = hugeLength
		case k == 0 && s.oneIn(2):
			take(i, longLengths)
		case rank > 5:
			take(i, []int{1, 1, 1, 2, 2, 3})
		default:
			take(i, shortLengths)
		}
	}
	if rank > 0 && s.oneIn(20) {
		lengths[s.rng.IntN(rank)] = 0
	}
	return lengths
}

// A layout says where elements lie in memory of span elements.
type layout struct {
	shape, strides []int
	offset, span   int
}

// layout returns a random layout of shape: plain row-major in a third of the cases, with the axes in another order in
// some, and with gaps, negative strides and, if broadcast says so, strides of 0 in the rest.
func (s *suite) layout(shape []int, broadcast bool) layout {
	l := layout{shape: slices.Clone(shape), strides: make([]int, len(shape))}
	order := make([]int, len(shape)) // from the innermost axis
	for i := range order {
		order[i] = len(shape) - 1 - i
	}
	kind := s.rng.IntN(6)
	if kind >= 2 {
		s.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	l.offset = s.rng.IntN(4) * s.rng.IntN(20)
	step := 1
	if kind >= 4 {
		step = pick(s.rng, 1, 1, 2, 3)
	}
	l.span = l.offset + 1
	for _, axis := range order {
		n := shape[axis]
		stride := step
		if kind >= 3 && s.oneIn(3) {
			stride = -step
		}
		if broadcast && kind >= 3 && s.oneIn(3) {
			stride = 0
		}
		l.strides[axis] = stride
		switch {
		case n <= 1:
			// Of an axis with nothing to step over, any stride will do.
			if s.oneIn(2) {
				l.strides[axis] = pick(s.rng, 0, 1, -7, 1<<40, -1<<40)
			}
		case stride != 0:
			reach := (n - 1) * step
			l.span += reach
			if stride < 0 {
				l.offset += reach
			}
			step *= n
			if kind >= 4 {
				step += s.rng.IntN(4)
			}
		}
	}
	l.span += s.rng.IntN(20)
	return l
}

// walk calls visit with every place, in row-major order of the indices, by the definition: each index in turn.
func (l layout) walk(visit func(i int, index []int, place int)) {
	for _, n := range l.shape {
		if n == 0 {
			return
		}
	}
	index := make([]int, len(l.shape))
	for i := 0; ; i++ {
		place := l.offset
		for k, at := range index {
			place += at * l.strides[k]
		}
		visit(i, index, place)
		k := len(index) - 1
		for k >= 0 && index[k] == l.shape[k]-1 {
			index[k] = 0
			k--
		}
		if k < 0 {
			return
		}
		index[k]++
	}
}

// elements is how many there are in a shape.
func elements(shape []int) int {
	n := 1
	for _, length := range shape {
		n *= length
	}
	return n
}

// rowMajor is where the element with these indices stands in row-major order.
func rowMajor(shape, index []int) int {
	at := 0
	for k, n := range shape {
		at = at*n + index[k]
	}
	return at
}
