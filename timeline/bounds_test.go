package timeline

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/driver/drivertest"
)

// A program that begins spans and never ends them, and gives them names without end, takes no memory without end.
func TestBounds(t *testing.T) {
	d := drivertest.OpenSim(t, 0)
	r := New(d, Options{Max: 8})
	lane := r.Lane(strings.Repeat("lane", 1000))
	flops := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1}
	for i := range 100 {
		lane.Begin(d.DefaultStream(), strings.Repeat("ü", 1000), 0, flops[i%len(flops)])
		lane.Mark(d.DefaultStream(), strings.Repeat("m", 1000), 0)
	}
	numbers := r.spans.numbers()
	if len(lane.open) > 8 || len(numbers) != 8 || len(r.samples.items) != 8 {
		t.Errorf("%d open, %d spans, %d samples", len(lane.open), len(numbers), len(r.samples.items))
	}
	for _, n := range numbers {
		if sp := r.spans.get(n); sp.flops != 0 {
			t.Errorf("%v operations", sp.flops)
		}
	}
	for _, name := range []string{lane.name, r.spans.get(numbers[0]).name, r.samples.items[0].name} {
		if len(name) > longestName || len(name) < longestName-4 || !utf8.ValidString(name) || !strings.HasSuffix(name, "…") {
			t.Errorf("a name of %d bytes: %q", len(name), name)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if leaks := d.Leaks(); !leaks.Empty() {
		t.Errorf("left: %v", leaks)
	}
}
