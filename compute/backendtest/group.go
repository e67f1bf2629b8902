package backendtest

// groups returns, for each element of a shape in which the axes that over names have been combined (in row-major
// order), the numbers of the elements that fall together there, in row-major order.
func groups(shape []int, over func(axis int) bool) [][]int {
	combined := make([]int, len(shape))
	for k, n := range shape {
		combined[k] = n
		if over(k) {
			combined[k] = 1
		}
	}
	all := make([][]int, elements(combined))
	at := make([]int, len(shape))
	layout{shape: shape, strides: make([]int, len(shape))}.walk(func(i int, index []int, _ int) {
		for k := range index {
			at[k] = index[k]
			if over(k) {
				at[k] = 0
			}
		}
		g := rowMajor(combined, at)
		all[g] = append(all[g], i)
	})
	return all
}

// along is the axis of groups.
func along(axis int) func(int) bool { return func(k int) bool { return k == axis } }

// with returns a copy of shape with another length of one axis.
func with(shape []int, axis, n int) []int {
	out := append([]int{}, shape...)
	out[axis] = n
	return out
}
