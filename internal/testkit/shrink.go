package testkit

import "slices"

// Shrink leaves out items as long as fails says that the rest still fails: halves first, then quarters, down to single
// items, until none can be left out. It calls fails a limited number of times. items itself fails, and stays as it is.
func Shrink[T any](items []T, fails func([]T) bool) []T {
	runs := 3000
	for part := max(1, len(items)/2); ; part = max(1, part/2) {
		before := len(items)
		for at := 0; at < len(items) && runs > 0; runs-- {
			end := min(len(items), at+part)
			if less := slices.Delete(slices.Clone(items), at, end); fails(less) {
				items = less
			} else {
				at = end
			}
		}
		if part == 1 && len(items) == before || runs == 0 {
			return items
		}
	}
}
