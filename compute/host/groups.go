package host

import "slices"

// Groups are the axes of an array in the order that suits work along some of them: outer axes, those that the work is
// along (the middle), and inner axes, along which the array has smaller strides than along any in the middle. In a plan
// of that order the elements are numbered (o*rows + r)*columns + c, with r for the middle and c for the inner axes.
type groups struct {
	outer, middle, inner []int
	rows, columns        int
}

func groupsOf(a *array, middle func(axis int) bool) groups {
	g := groups{rows: 1, columns: 1}
	closest := -1 // the smallest stride of the middle
	for axis, l := range a.dims() {
		if !middle(axis) {
			continue
		}
		g.middle = append(g.middle, axis)
		g.rows *= l
		if s := abs(a.strides[axis]); l > 1 && (closest < 0 || s < closest) {
			closest = s
		}
	}
	for axis, l := range a.dims() {
		switch {
		case middle(axis) || l == 1:
		case abs(a.strides[axis]) < closest:
			g.inner = append(g.inner, axis)
			g.columns *= l
		default:
			g.outer = append(g.outer, axis)
		}
	}
	for _, axes := range [][]int{g.outer, g.middle, g.inner} {
		slices.SortStableFunc(axes, func(i, j int) int { return abs(a.strides[j]) - abs(a.strides[i]) })
	}
	return g
}

// order returns all axes, but for outer and inner ones of length 1.
func (g *groups) order() []int { return slices.Concat(g.outer, g.middle, g.inner) }

// singleAxis is the middle of one axis.
func singleAxis(axis int) func(int) bool { return func(a int) bool { return a == axis } }
