package caching_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// newAllocator makes an allocator with settings in PyTorch's syntax, and checks its invariants when the test ends.
func newAllocator(t testing.TB, dev driver.Device, settings string) *caching.Allocator {
	t.Helper()
	cfg, _, err := caching.ParseConfig(settings)
	if err != nil {
		t.Fatal(err)
	}
	a, err := caching.New(dev, cfg)
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

var conformanceSettings = map[string]string{
	"native":     "",
	"split":      "max_split_size_mb:20",
	"roundup":    "roundup_power2_divisions:4",
	"gc":         "garbage_collection_threshold:0.5,limit:200MiB",
	"expandable": "expandable_segments:True",
	"exact":      "pytorch-exact:True,release_lock_on_cudamalloc:True",
}

func simDevice(testing.TB) driver.Device {
	return sim.New(sim.Options{Total: 256 << 20, CallSites: true})
}

func TestConformanceOnSim(t *testing.T) {
	for name, settings := range conformanceSettings {
		t.Run(name, func(t *testing.T) {
			memtest.Run(t, memtest.Config{
				Device: simDevice,
				New:    func(t testing.TB, dev driver.Device) mem.Allocator { return newAllocator(t, dev, settings) },
			})
		})
	}
}

func TestConformanceOnHost(t *testing.T) {
	for _, name := range []string{"native", "expandable"} {
		t.Run(name, func(t *testing.T) {
			memtest.Run(t, memtest.Config{
				Device: func(t testing.TB) driver.Device {
					dev, err := host.Open(host.Options{Total: 256 << 20})
					if err != nil {
						t.Fatal(err)
					}
					return dev
				},
				New: func(t testing.TB, dev driver.Device) mem.Allocator {
					return newAllocator(t, dev, conformanceSettings[name])
				},
				Ops: 300, Seeds: 2, FaultOps: 15,
			})
		})
	}
}
