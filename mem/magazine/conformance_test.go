package magazine_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// over makes a Cache over mem/caching with settings in PyTorch's syntax.
func over(t testing.TB, dev driver.Device, settings string, opts magazine.Options) (*magazine.Cache, *caching.Allocator) {
	t.Helper()
	cfg, _, err := caching.ParseConfig(settings)
	if err != nil {
		t.Fatal(err)
	}
	below, err := caching.New(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := below.Check(); err != nil {
			t.Error(err)
		}
	})
	return magazine.New(below, opts), below
}

func TestConformanceOnSim(t *testing.T) {
	for _, tt := range []struct {
		name, settings string
		opts           magazine.Options
	}{
		{"default", "", magazine.Options{}},
		{"large blocks too", "", magazine.Options{MaxSize: 8 << 20}},
		{"tight bounds", "", magazine.Options{MaxSize: 8 << 20, Stream: 4 << 20, Total: 6 << 20}},
		{"expandable", "expandable_segments:True", magazine.Options{MaxSize: 8 << 20}},
		{"roundup", "roundup_power2_divisions:4", magazine.Options{MaxSize: 8 << 20}},
		{"gc", "garbage_collection_threshold:0.5,limit:200MiB", magazine.Options{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			memtest.Run(t, memtest.Config{
				Device: func(testing.TB) driver.Device { return sim.New(sim.Options{Total: 256 << 20, CallSites: true}) },
				New: func(t testing.TB, dev driver.Device) mem.Allocator {
					c, _ := over(t, dev, tt.settings, tt.opts)
					return c
				},
				Ops: 700, Seeds: 4, FaultOps: 30,
			})
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
		New: func(t testing.TB, dev driver.Device) mem.Allocator {
			c, _ := over(t, dev, "", magazine.Options{MaxSize: 8 << 20})
			return c
		},
		Ops: 300, Seeds: 2, FaultOps: 15,
	})
}

// A Cache on another is of no use, and no harm: each layer corrects what the one below says.
func TestConformanceOfTwo(t *testing.T) {
	memtest.Run(t, memtest.Config{
		Device: func(testing.TB) driver.Device { return sim.New(sim.Options{Total: 256 << 20, CallSites: true}) },
		New: func(t testing.TB, dev driver.Device) mem.Allocator {
			c, _ := over(t, dev, "", magazine.Options{MaxSize: 8 << 20})
			return magazine.New(c, magazine.Options{})
		},
		Ops: 300, Seeds: 2, FaultOps: 15,
	})
}
