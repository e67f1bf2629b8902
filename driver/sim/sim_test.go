package sim

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
)

// TestConformance runs the suite of all drivers, in every mode of completion.
func TestConformance(t *testing.T) {
	for name, opts := range map[string]Options{
		"at once":             {},
		"at random":           {Completion: AtRandom, Seed: 1},
		"on demand":           {Completion: OnDemand},
		"unchecked":           {Unchecked: true},
		"unchecked at random": {Unchecked: true, Completion: AtRandom, Seed: 2},
		"no virtual memory":   {NoVirtualMemory: true},
		"small":               {Total: 64 << 20, Granularity: 64 << 10, Alignment: 1},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t testing.TB) driver.Device {
				d := New(opts)
				t.Cleanup(func() {
					for _, r := range d.Reports() {
						t.Logf("report: %v", r)
					}
				})
				return d
			})
		})
	}
}
