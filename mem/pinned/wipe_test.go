package pinned_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// With WipeBetweenKeys no byte of a key's blocks is in a block of another key, from the cache, the reserved segment or
// the driver, and a key's own bytes are still there.
func TestWipeBetweenKeys(t *testing.T) {
	for _, cfg := range []pinned.Config{
		{WipeBetweenKeys: true},
		{WipeBetweenKeys: true, ReserveSegment: 64 << 10, MaxCachedSize: 32 << 10},
	} {
		dev := drivertest.OpenSim(t, 1<<20)
		a, err := pinned.New(dev, cfg)
		testkit.Must(t, err)
		rng := rand.New(rand.NewPCG(1, 46))
		type block struct {
			mem.Block
			own byte
		}
		var live []block
		own, wiped := 0, 0
		for range 2000 {
			if n := len(live); n > 12 || n > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(n)
				a.Free(live[i].Block)
				live = append(live[:i], live[i+1:]...)
				continue
			}
			if rng.IntN(100) == 0 {
				testkit.Must(t, a.EmptyCache())
			}
			key := rng.IntN(3)
			var o mem.AllocOptions
			if key > 0 {
				o.Key = key
			}
			b, err := a.AllocOn(dev.DefaultStream(), 1+rng.Int64N(1<<(4+rng.IntN(13))), o)
			testkit.Must(t, err)
			all := a.Bytes(b)
			all = all[:cap(all)]
			mine := byte(0xA0 + key)
			switch {
			case bytes.Equal(all, bytes.Repeat([]byte{mine}, len(all))):
				own++
			case bytes.Equal(all, make([]byte, len(all))):
				wiped++
			default:
				t.Fatalf("a block of %d bytes of key %d holds other bytes: %x...", len(all), key, all[:min(len(all), 16)])
			}
			for i := range all {
				all[i] = mine
			}
			live = append(live, block{b, mine})
		}
		for _, b := range live {
			a.Free(b.Block)
		}
		testkit.Must(t, a.Close())
		if own == 0 || wiped == 0 {
			t.Errorf("%d blocks returned to their keys, and %d were wiped", own, wiped)
		}
	}
}
