package host

import "github.com/ashlar-go/ashlar/compute/backend"

// A plan is the order in which a kernel visits operands of one shape: axes, the outermost first, each with a length of
// at least 2 and a stride in each operand. The elements are numbered in the order of the plan, the last axis fastest.
// Neighbouring axes are merged if they are one axis in all operands. Methods that reorder axes say so; the numbers are
// then not row-major.
type plan struct {
	n        int // elements; not 0
	rank     int
	operands int
	lengths  [backend.MaxRank]int
	strides  [maxOperands][backend.MaxRank]int
	first    [maxOperands]int // position of element 0, in elements from the operand's lowest
}

// planOf makes a plan of the axes of shape in the given order, the outermost first, or in their own order if it is nil.
// Axes that are not in order must have length 1.
func planOf(shape, order []int, operands ...array) plan {
	p := axesOf(shape, order, operands...)
	p.merge()
	return p
}

// anyOrder makes a plan whose elements may be numbered in any order: the best for the first operand, then for the
// others.
func anyOrder(shape []int, operands ...array) plan {
	p := axesOf(shape, nil, operands...)
	p.makeFirstPositive()
	p.sort(0, p.rank)
	p.merge()
	return p
}

// axesOf makes a plan of all axes longer than 1, unmerged.
func axesOf(shape, order []int, operands ...array) plan {
	p := plan{n: 1, operands: len(operands)}
	axes := len(shape)
	if order != nil {
		axes = len(order)
	}
	for i := range axes {
		axis := i
		if order != nil {
			axis = order[i]
		}
		if shape[axis] == 1 {
			continue
		}
		p.n *= shape[axis]
		p.lengths[p.rank] = shape[axis]
		for k := range operands {
			p.strides[k][p.rank] = operands[k].strides[axis]
		}
		p.rank++
	}
	for k := range operands {
		p.first[k] = operands[k].first
	}
	return p
}

// makeFirstPositive makes the strides of the first operand positive.
func (p *plan) makeFirstPositive() {
	for i := range p.rank {
		if p.strides[0][i] >= 0 {
			continue
		}
		for k := range p.operands {
			p.first[k] += (p.lengths[i] - 1) * p.strides[k][i]
			p.strides[k][i] = -p.strides[k][i]
		}
	}
}

// sort orders the axes from..to-1 by their strides, the smallest last: by the strides of the first operand, then by
// those of the second, and so on.
func (p *plan) sort(from, to int) {
	for i := from + 1; i < to; i++ { // insertion sort: few axes, mostly in order
		for j := i; j > from && p.isInner(j-1, j); j-- {
			p.swap(j-1, j)
		}
	}
}

// isInner reports whether axis i must come after axis j, its outer neighbour.
func (p *plan) isInner(i, j int) bool {
	for k := range p.operands {
		if a, b := abs(p.strides[k][i]), abs(p.strides[k][j]); a != b {
			return a < b
		}
	}
	return false
}

func (p *plan) swap(i, j int) {
	p.lengths[i], p.lengths[j] = p.lengths[j], p.lengths[i]
	for k := range p.operands {
		s := &p.strides[k]
		s[i], s[j] = s[j], s[i]
	}
}

// merge merges neighbouring axes that are one axis in all operands.
func (p *plan) merge() {
	last := 0
	for i := 1; i < p.rank; i++ {
		one := true
		for k := range p.operands {
			one = one && p.strides[k][last] == p.lengths[i]*p.strides[k][i]
		}
		if one {
			p.lengths[last] *= p.lengths[i]
		} else {
			last++
			p.lengths[last] = p.lengths[i]
		}
		for k := range p.operands {
			p.strides[k][last] = p.strides[k][i]
		}
	}
	p.rank = min(p.rank, last+1)
}

// row returns the length of the last axis.
func (p *plan) row() int {
	if p.rank == 0 {
		return 1
	}
	return p.lengths[p.rank-1]
}

// stride returns an operand's stride along the last axis.
func (p *plan) stride(k int) int {
	if p.rank == 0 {
		return 1
	}
	return p.strides[k][p.rank-1]
}

// flat reports whether the elements of an operand are consecutive in the order of the plan.
func (p *plan) flat(k int) bool {
	n := 1
	for i := p.rank - 1; i >= 0; i-- {
		if p.strides[k][i] != n {
			return false
		}
		n *= p.lengths[i]
	}
	return true
}

func abs(i int) int { return max(i, -i) }

// A cursor visits an operand in the order of a plan.
type cursor struct {
	p     *plan
	k     int
	next  int // the number of the current element
	at    int // its position, in elements from the operand's lowest
	index [backend.MaxRank]int
}

func cursorOf(p *plan, k int) cursor { return cursor{p: p, k: k, at: p.first[k]} }

// seek moves to the element with number n.
func (c *cursor) seek(n int) {
	if n == c.next {
		return
	}
	c.next, c.at = n, c.p.first[c.k]
	for i := c.p.rank - 1; i >= 0; i-- {
		if n == 0 {
			c.index[i] = 0
			continue
		}
		l := c.p.lengths[i]
		c.index[i] = n % l
		n /= l
		c.at += c.index[i] * c.p.strides[c.k][i]
	}
}

// run returns the position of the next elements, at most n and all in one row, and moves past them.
func (c *cursor) run(n int) (at, m int) {
	at = c.at
	i := c.p.rank - 1
	if i < 0 {
		c.next++
		return at, 1
	}
	strides := &c.p.strides[c.k]
	m = min(n, c.p.lengths[i]-c.index[i])
	c.next += m
	c.index[i] += m
	c.at += m * strides[i]
	for c.index[i] == c.p.lengths[i] {
		c.at -= c.index[i] * strides[i]
		c.index[i] = 0
		if i--; i < 0 {
			break
		}
		c.index[i]++
		c.at += strides[i]
	}
	return at, m
}
