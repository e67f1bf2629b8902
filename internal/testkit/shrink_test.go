package testkit

import (
	"slices"
	"testing"
)

// What is left is what the failure needs.
func TestShrink(t *testing.T) {
	var items []int
	for i := range 1000 {
		items = append(items, i)
	}
	got := Shrink(items, func(some []int) bool {
		return slices.Contains(some, 17) && slices.Contains(some, 500) && slices.Contains(some, 999)
	})
	if !slices.Equal(got, []int{17, 500, 999}) {
		t.Errorf("%v is left", got)
	}
}
