package memtest

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
)

// A misreporter is a sound allocator whose statistics are changed while it has live blocks.
type misreporter struct {
	*pool
	change func(*mem.Stats)
}

func (m misreporter) Stats() mem.Stats {
	s := m.pool.Stats()
	if s.Allocation.All.Current > 0 {
		m.change(&s)
	}
	return s
}

// Each figure that is wrong by one is found, and named.
func TestEachFigureThatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*mem.Stats)
		text   string // of the report
	}{
		"allocated, current": {func(s *mem.Stats) { s.AllocatedBytes.All.Current++ }, "allocated_bytes is"},
		"allocated, peak":    {func(s *mem.Stats) { s.AllocatedBytes.All.Peak++ }, "allocated_bytes is"},
		"allocated, sum":     {func(s *mem.Stats) { s.AllocatedBytes.All.Allocated++ }, "allocated_bytes is"},
		"requested, current": {func(s *mem.Stats) { s.RequestedBytes.All.Current++ }, "requested_bytes is"},
		"requested, peak":    {func(s *mem.Stats) { s.RequestedBytes.All.Peak++ }, "requested_bytes is"},
		"largest":            {func(s *mem.Stats) { s.LargestAlloc++ }, "the largest block is said to be"},
	} {
		t.Run(name, func(t *testing.T) {
			found := reportOf(t, "Statistics", Config{New: func(_ testing.TB, dev driver.Device) mem.Allocator {
				return misreporter{newPool(dev, none), tt.change}
			}}.with(sim.Options{Total: 1 << 30}))
			if !strings.Contains(found, tt.text) {
				t.Errorf("the report lacks %q:\n%s", tt.text, found)
			}
		})
	}
}

// While few blocks are live, a figure that is wrong is found after every call.
func TestFiguresAreCheckedAfterEveryCall(t *testing.T) {
	w := newModel(t, Config{New: func(_ testing.TB, dev driver.Device) mem.Allocator {
		return misreporter{newPool(dev, none), func(s *mem.Stats) { s.AllocatedBytes.All.Current++ }}
	}}.with(sim.Options{Total: 1 << 30}), nil)
	for range 10 {
		w.mustAlloc(t, 0, 512)
		if w.checkReports(false) == nil {
			t.Errorf("the wrong figure is not found with %d live blocks", len(w.live))
		}
	}
}
