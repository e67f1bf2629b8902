//go:build gpu

package arena_test

import (
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// TestGPUCampaign is TestCampaign on a quarter of a gibibyte of a real GPU, in one block and in pages.
func TestGPUCampaign(t *testing.T) {
	from := testkit.SeedFlag(t, "seed", *seed)
	dev := drivertest.OpenDevice(t, "cuda:0")
	for name, cfg := range map[string]arena.Config{
		"whole": {Size: 256 << 20, Round: 1024},
		"paged": {Size: 256 << 20, Page: 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Logf("seed %d (-seed %d -ops %d)", from, from, *ops)
			campaign(t, dev, cfg, from, *ops/2)
		})
	}
}
