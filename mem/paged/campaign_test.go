package paged_test

import (
	"flag"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/paged"
)

var (
	ops  = flag.Int("ops", 40_000, "operations of TestCampaign, over all configurations")
	seed = flag.Uint64("seed", 0, "of TestCampaign; 0: a fresh one")
)

// TestCampaign runs random histories of work on several streams, with barely enough memory, so that pages move often.
// Streams are created and closed, capture, and are held. Blocks are used and freed by other streams than their own.
// Contents stay intact, and the device reports no race.
func TestCampaign(t *testing.T) {
	from := testkit.SeedFlag(t, "seed", *seed)
	const total = 64 // granules
	configs := []struct {
		name    string
		late    sim.Completion
		streams int
		cfg     paged.Config
	}{
		{"defaults", sim.AtRandom, 6, paged.Config{}},
		{"onDemand", sim.OnDemand, 5, paged.Config{}},
		{"limit", sim.AtRandom, 6, paged.Config{Limit: 24 * granule}},
		{"limitOnDemand", sim.OnDemand, 3, paged.Config{Limit: 20*granule + 1}},
		{"manyStreams", sim.AtRandom, 72, paged.Config{Limit: 40 * granule}},
		{"plain", sim.AtRandom, 4, paged.Config{NoAliases: true, Limit: 32 * granule}},
		{"returning", sim.AtRandom, 4, paged.Config{Keep: paged.KeepNone}},
		{"keeping", sim.AtOnce, 4, paged.Config{Keep: 4 * granule, Page: 2 * granule}},
		{"largePages", sim.AtRandom, 5, paged.Config{Page: 8 * granule}},
		{"largePagesLimit", sim.OnDemand, 5, paged.Config{Page: 4 * granule, Limit: 30 * granule}},
		{"spare", sim.AtRandom, 3, paged.Config{Spare: 8 * granule}},
		{"fewAddresses", sim.AtRandom, 4, paged.Config{Addresses: 3 * granule, Limit: 24 * granule}},
		{"fewAddressesLarge", sim.OnDemand, 4, paged.Config{Addresses: 40 * granule, Page: 4 * granule, NoAliases: true}},
	}
	for i, c := range configs {
		t.Run(c.name, func(t *testing.T) {
			seed := from + uint64(i)
			t.Logf("seed %d (-seed %d -ops %d)", seed, from, *ops)
			r := newRig(t, total, sim.Options{Completion: c.late, Seed: seed}, c.cfg, nil)
			w := newWorld(r, seed, c.streams)
			for w.step = range *ops / len(configs) {
				w.next()
				if w.step%64 == 0 {
					w.agree()
				}
			}
			w.end()
		})
	}
}
