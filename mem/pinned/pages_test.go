package pinned

import "testing"

// Each page is written to once, at its beginning, by however many goroutines.
func TestTouch(t *testing.T) {
	for _, size := range []int{1, touchStep, touchStep + 1, 8 * touchStep, 100*touchStep + 7} {
		for _, n := range []int{1, 2, 8, 128} {
			pages := make([]byte, size)
			for i := range pages {
				pages[i] = 1
			}
			touch(pages, n)
			for i, c := range pages {
				if (c == 0) != (i%touchStep == 0) {
					t.Fatalf("%d bytes, %d goroutines: byte %d is %d", size, n, i, c)
				}
			}
		}
	}
}
