package invariants

import (
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	ran := false
	Check(func() error { ran = true; return nil })
	if ran != Enabled {
		t.Errorf("the check ran: %t, Enabled: %t", ran, Enabled)
	}
	defer func() {
		r := recover()
		if (r != nil) != Enabled {
			t.Fatalf("panicked with %v, Enabled: %t", r, Enabled)
		}
		if text, ok := r.(string); Enabled && (!ok || !strings.Contains(text, "blocks overlap")) {
			t.Errorf("panicked with %v, want the error of the check in it", r)
		}
	}()
	Check(func() error { return errors.New("blocks overlap") })
}

func TestCheckAllocatesNothing(t *testing.T) {
	sum := 0
	if n := testing.AllocsPerRun(100, func() {
		Check(func() error { sum++; return nil })
	}); n != 0 {
		t.Errorf("a check that passes makes %v heap allocations, want 0", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	sum := 0
	for b.Loop() {
		Check(func() error { sum++; return nil })
	}
}
