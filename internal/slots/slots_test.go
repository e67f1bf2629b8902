package slots_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/internal/slots"
)

func TestTable(t *testing.T) {
	var table slots.Table[string]
	first, v := table.Add()
	*v = "first"
	second, v := table.Add()
	*v = "second"
	if got := table.Get(first); got == nil || *got != "first" {
		t.Errorf("Get of the first tag: %v", got)
	}
	table.Remove(first)
	if got := table.Get(first); got != nil {
		t.Errorf("Get of a removed tag: %q", *got)
	}
	third, v := table.Add()
	if third == first || uint32(third) != uint32(first) {
		t.Errorf("after %#x was removed Add returned %#x: want the same slot with another generation", first, third)
	}
	if *v != "" {
		t.Errorf("a new entry has the value %q", *v)
	}
	for _, tag := range []uint64{0, 1, first, third + 1<<32, ^uint64(0)} {
		if got := table.Get(tag); got != nil {
			t.Errorf("Get of %#x: %q, want nil", tag, *got)
		}
	}
	var tags []uint64
	for tag := range table.All() {
		tags = append(tags, tag)
	}
	if len(tags) != 2 || tags[0] != third || tags[1] != second {
		t.Errorf("All visits %#x, want %#x and %#x", tags, third, second)
	}
}

func TestRecycle(t *testing.T) {
	var table slots.Table[string]
	first, v := table.Add()
	*v = "kept"
	if tag, got := table.At(uint32(first)); tag != first || got == nil || *got != "kept" {
		t.Errorf("At of the slot of %#x: %#x, %v", first, tag, got)
	}
	table.Recycle(first)
	if _, got := table.At(uint32(first)); got != nil || table.Get(first) != nil {
		t.Error("a recycled entry is still there")
	}
	second, v := table.Add()
	if second == first || uint32(second) != uint32(first) || *v != "kept" {
		t.Errorf("after %#x was recycled Add returned %#x with %q: want the value of the same slot", first, second, *v)
	}
	table.Remove(second)
	if _, v = table.Add(); *v != "" {
		t.Errorf("after Remove a new entry has the value %q", *v)
	}
	if _, got := table.At(1); got != nil {
		t.Errorf("At of a slot that was never used: %q", *got)
	}
}
