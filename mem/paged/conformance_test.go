package paged_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// newAllocator makes an allocator, and checks its invariants when the test ends.
func newAllocator(t testing.TB, dev driver.Device, cfg paged.Config) *paged.Allocator {
	t.Helper()
	a, err := paged.New(dev, cfg)
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

// configs are the ways in which memory is got and kept.
func configs() map[string]paged.Config {
	return map[string]paged.Config{
		"defaults":  {},
		"limit":     {Limit: 160 << 20},
		"small":     {Page: 1 << 20, Keep: 8 << 20},
		"large":     {Page: 16 << 20},
		"returning": {Keep: paged.KeepNone},
		"plain":     {NoAliases: true},
	}
}

func TestConformanceOnSim(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			suite := memtest.Config{
				Device: func(testing.TB) driver.Device {
					return sim.New(sim.Options{Total: 256 << 20, Granularity: 1 << 20, CallSites: true})
				},
				New:   func(t testing.TB, dev driver.Device) mem.Allocator { return newAllocator(t, dev, cfg) },
				Waits: true, Alignment: 512,
			}
			if name != "defaults" {
				suite.Ops, suite.Seeds, suite.FaultOps = 500, 2, 20
			}
			memtest.Run(t, suite)
		})
	}
}

func TestConformanceOnHost(t *testing.T) {
	memtest.Run(t, memtest.Config{
		Device: func(t testing.TB) driver.Device {
			dev, err := host.Open(host.Options{Total: 256 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return dev
		},
		New:   func(t testing.TB, dev driver.Device) mem.Allocator { return newAllocator(t, dev, paged.Config{}) },
		Waits: true, Alignment: 512, Ops: 300, Seeds: 2, FaultOps: 15,
	})
}
