package caching_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// construct makes an allocator with settings in PyTorch's syntax.
func construct(dev driver.Device, settings string) (*caching.Allocator, error) {
	cfg, _, err := caching.ParseConfig(settings)
	if err != nil {
		return nil, err
	}
	return caching.New(dev, cfg)
}

// newAllocator makes an allocator with settings in PyTorch's syntax, and checks its invariants when the test ends.
func newAllocator(t testing.TB, dev driver.Device, settings string) *caching.Allocator {
	t.Helper()
	return memtest.New(t, construct, dev, settings)
}

var conformanceSettings = map[string]string{
	"native":     "",
	"split":      "max_split_size_mb:20",
	"roundup":    "roundup_power2_divisions:4",
	"gc":         "garbage_collection_threshold:0.5,limit:200MiB",
	"expandable": "expandable_segments:True",
	"exact":      "pytorch-exact:True,release_lock_on_cudamalloc:True",
}

func TestConformance(t *testing.T) {
	memtest.RunAll(t, memtest.Config{}, construct, conformanceSettings)
}

func TestPrivatePools(t *testing.T) {
	for _, name := range []string{"native", "expandable", "split"} {
		t.Run(name, func(t *testing.T) {
			memtest.RunPools(t, memtest.Config{New: func(t testing.TB, dev driver.Device) mem.Allocator {
				return newAllocator(t, dev, conformanceSettings[name])
			}})
		})
	}
}
