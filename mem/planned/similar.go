package planned

// Two steps are similar if they differ by a few requests: left out, inserted, or of other sizes. So a program that
// departs from its steps now and then, of which hardly two are equal, is planned too.

const mostDifferent = 200 // of n requests, 2 + n/mostDifferent may differ

// promote counts an occurrence of a step that is not equal to any other for one that is similar, if there is one and
// none that is similar occurred twice. It returns that step, or nil.
func (r *recorder) promote(s *step) *step {
	var first *step
	for _, known := range r.steps {
		if (known.seen > 1 || first == nil) && similar(known.slots, s.slots) {
			if known.seen > 1 {
				return nil
			}
			first = known
		}
	}
	if first != nil {
		first.seen++
	}
	return first
}

// similar reports whether two rows of requests are nearly equal.
func similar(x, y []Slot) bool {
	left := 2 + max(len(x), len(y))/mostDifferent
	for i, j := 0, 0; i < len(x) || j < len(y); {
		if i < len(x) && j < len(y) && x[i].key() == y[j].key() {
			i, j = i+1, j+1
			continue
		}
		a, b := resume(x[i:], y[j:])
		if left -= max(a, b); left < 0 {
			return false
		}
		i, j = i+a, j+b
	}
	return true
}

// resume returns how many requests of two rows to skip, as few as possible, so that the next two of both are equal, or
// both end.
func resume(x, y []Slot) (a, b int) {
	for n := 1; n <= window; n++ {
		for k := 0; k <= n; k++ {
			if alike(x, y, n, k) {
				return n, k
			}
			if alike(x, y, k, n) {
				return k, n
			}
		}
	}
	return max(1, len(x)), max(1, len(y))
}

// alike reports whether the rows, after a and b requests, continue with two equal requests or both end.
func alike(x, y []Slot, a, b int) bool {
	if a > len(x) || b > len(y) {
		return false
	}
	x, y = x[a:], y[b:]
	for k := range 2 {
		if k >= len(x) || k >= len(y) {
			return len(x) == len(y)
		}
		if x[k].key() != y[k].key() {
			return false
		}
	}
	return true
}
