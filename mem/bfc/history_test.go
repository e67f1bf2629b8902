package bfc_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

// In random histories over several streams, with stamps and without, while the safe frontier moves and calls of the
// device fail, the structures and statistics stay right after each call, no work touches memory that earlier work may
// still touch, and in the end everything goes back to the device.
func TestHistoriesWithFailures(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		inner := sim.New(sim.Options{Total: 32 << 20, Granularity: 64 << 10})
		dev := fault.Wrap(inner)
		cfg := bfc.Config{
			Limit: mib + rng.Int64N(20*mib), Virtual: rng.IntN(2) == 0, NoGrowth: rng.IntN(3) == 0, NoCollect: rng.IntN(3) == 0,
		}
		if rng.IntN(3) == 0 {
			cfg.Initial = cfg.Limit / (64 << 10) / 3 * (64 << 10)
		}
		counter := &bfc.Counter{}
		if rng.IntN(2) == 0 {
			cfg.Counter = counter
		}
		a := newAllocator(t, dev, cfg)
		streams := []driver.Stream{dev.DefaultStream()}
		for len(streams) < 4 {
			s := drivertest.NewStream(t, dev)
			streams = append(streams, s)
		}
		var live []mem.Block
		for op := range 250 {
			if rng.IntN(3) == 0 {
				codes := []error{driver.ErrNoMemory, driver.ErrLost, driver.ErrInvalid}
				dev.SetRules(fault.Rule{Nth: 1 + rng.Int64N(4), Code: codes[rng.IntN(len(codes))]})
			}
			s := streams[rng.IntN(len(streams))]
			switch k := rng.IntN(20); {
			case k < 10 || len(live) == 0:
				var opts bfc.Options
				if rng.IntN(3) == 0 {
					bound := rng.Uint64N(counter.Get() + 1)
					opts.FreedBefore = func() uint64 { return bound }
				}
				b, err := a.Request(context.Background(), s, 1+rng.Int64N(1<<(1+rng.IntN(22))), opts)
				dev.SetRules()
				if err == nil {
					live = append(live, b)
					err = s.Fill(b.Ptr, 1, b.Size)
					if err != nil {
						t.Fatalf("seed %d, operation %d: %v", seed, op, err)
					}
				}
			case k < 17:
				i := rng.IntN(len(live))
				a.Free(live[i])
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			case k < 18:
				a.SetSafeFrontier(rng.Uint64N(counter.Get() + 3))
			case k < 19:
				_ = a.EmptyCache() // what fails is kept
			default:
				inner.Hold(s.ID())
			}
			dev.SetRules()
			if err := a.Check(); err != nil {
				t.Fatalf("seed %d, operation %d: %v", seed, op, err)
			}
		}
		for _, b := range live {
			a.Free(b)
		}
		err := a.Close()
		if free, total, _ := inner.Available(); err != nil || free != total {
			t.Errorf("seed %d: Close: %v; %d of %d bytes are free", seed, err, free, total)
		}
		if err := inner.Close(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
