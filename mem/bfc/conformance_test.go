package bfc_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// newAllocator makes an allocator, and checks its invariants when the test ends.
func newAllocator(t testing.TB, dev driver.Device, cfg bfc.Config) *bfc.Allocator {
	t.Helper()
	a, err := bfc.New(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Check(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// configs are the ways in which the allocator gets its memory, and forgets who had it.
func configs() map[string]bfc.Config {
	return map[string]bfc.Config{
		"growth":  {},
		"whole":   {NoGrowth: true},
		"virtual": {Virtual: true},
		"stamped": {Counter: &bfc.Counter{}},
	}
}

func conformance(cfg bfc.Config) memtest.Config {
	return memtest.Config{
		New:   func(t testing.TB, dev driver.Device) mem.Allocator { return newAllocator(t, dev, cfg) },
		Waits: true,
		Ops:   600, Seeds: 3, FaultOps: 30,
	}
}

func TestConformanceOnSim(t *testing.T) {
	for name, cfg := range configs() {
		c := conformance(cfg)
		c.Device = func(testing.TB) driver.Device { return sim.New(sim.Options{Total: 256 << 20, CallSites: true}) }
		t.Run(name, func(t *testing.T) { memtest.Run(t, c) })
	}
}

func TestConformanceOnHost(t *testing.T) {
	for name, cfg := range configs() {
		c := conformance(cfg)
		c.Ops, c.Seeds, c.FaultOps = 200, 1, 10
		c.Device = func(t testing.TB) driver.Device {
			dev, err := host.Open(host.Options{Total: 256 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return dev
		}
		t.Run(name, func(t *testing.T) { memtest.Run(t, c) })
	}
}
