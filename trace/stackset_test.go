package trace

import (
	"fmt"
	"testing"
)

// Equal stacks have one number, each frame is in the table once, and adding to a table keeps its content.
func TestStackSet(t *testing.T) {
	f := func(name string) Frame { return Frame{Name: name, Filename: name + ".go", Line: 7} }
	var x StackSet
	if x.Add(nil) != 0 || x.Table() != nil {
		t.Fatal("no frames are a stack")
	}
	ab, b := x.Add([]Frame{f("a"), f("b")}), x.Add([]Frame{f("b")})
	if ab == 0 || b == 0 || ab == b || x.Add([]Frame{f("a"), f("b")}) != ab || x.Add([]Frame{f("b"), f("a")}) == ab {
		t.Errorf("stacks %d and %d", ab, b)
	}
	table := x.Table()
	if len(table.Frames) != 2 {
		t.Errorf("frames %v", table.Frames)
	}
	y := NewStackSet(table)
	c := y.Add([]Frame{f("c"), f("b")})
	if y.Table() != table || len(table.Frames) != 3 || c == ab || c == b {
		t.Errorf("stack %d, frames %v", c, table.Frames)
	}
}

// However many frames the table has, other stacks have other numbers.
func TestStacksOfManyFrames(t *testing.T) {
	var x StackSet
	seen := map[StackID]int{}
	for i := range 70_000 { // more than two bytes count
		id := x.Add([]Frame{{Name: fmt.Sprint(i)}})
		if j, ok := seen[id]; ok {
			t.Fatalf("the stacks of frames %d and %d are both number %d", j, i, id)
		}
		seen[id] = i
	}
}
