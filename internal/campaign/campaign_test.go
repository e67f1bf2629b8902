// Package campaign runs the suite of mem/memtest on many seeds: one seed by default, as many as you like with
//
//	make campaign SEEDS=1000 OPS=20000
//
// Every seed runs the caching allocator under several settings on a simulated device whose work completes at random.
// A failure names its seed and prints a script; -seed starts there again.
package campaign

import (
	"flag"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seeds     = flag.Int("seeds", 1, "how many seeds")
	ops       = flag.Int("ops", 300, "operations of each random history")
)

var settings = []string{
	"",
	"expandable_segments:True",
	"max_split_size_mb:21",
	"roundup_power2_divisions:4",
	"garbage_collection_threshold:0.5,limit:256MiB",
	"expandable_segments:True,garbage_collection_threshold:0.3,max_split_size_mb:64,limit:300MiB",
}

func TestCampaign(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		for _, text := range settings {
			t.Run(fmt.Sprintf("seed%d/%s", seed, text), func(t *testing.T) {
				cfg, _, err := caching.ParseConfig(text)
				if err != nil {
					t.Fatal(err)
				}
				memtest.Run(t, memtest.Config{
					Sim: sim.Options{Total: 512 << 20, Seed: seed, Completion: sim.AtRandom},
					New: func(t testing.TB, dev driver.Device) mem.Allocator {
						a, err := caching.New(dev, cfg)
						if err != nil {
							t.Fatal(err)
						}
						return a
					},
					Ops: *ops, Seeds: 1, Seed: seed, FaultOps: 20,
				})
			})
		}
	}
}
