package sim_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
)

// TestConformance runs the suite of all drivers, in every mode of completion.
func TestConformance(t *testing.T) {
	for name, opts := range map[string]sim.Options{
		"at once":             {},
		"at random":           {Completion: sim.AtRandom, Seed: 1},
		"on demand":           {Completion: sim.OnDemand},
		"unchecked":           {Unchecked: true},
		"unchecked at random": {Unchecked: true, Completion: sim.AtRandom, Seed: 2},
		"no virtual memory":   {NoVirtualMemory: true},
		"small":               {Total: 64 << 20, Granularity: 64 << 10, Alignment: 1},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t testing.TB) driver.Device {
				d := sim.New(opts)
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
