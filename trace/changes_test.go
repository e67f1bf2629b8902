package trace

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/internal/packed"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// Changes are the sums by event, in whatever order they become known.
func TestChangesAreSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	for _, events := range []int{0, 1, packed.PartLength, 3*recentChanges + 5, 7 * recentChanges} {
		var c Changes
		want, before := make([]int64, events), int64(0)
		for range 400 {
			event, bytes := rng.IntN(events+1)-1, rng.Int64N(1<<20)-1<<19
			if c.add(event, bytes); event < 0 {
				before += bytes
			} else {
				want[event] += bytes
			}
		}
		c.finish(events)
		got := make([]uint64, events)
		c.Read(0, got)
		for i := range want {
			if int64(got[i]) != want[i] {
				t.Errorf("of %d events, event %d changes %d bytes, want %d", events, i, int64(got[i]), want[i])
				break
			}
		}
		if c.Before() != before || c.Len() != events {
			t.Errorf("%d bytes before %d events, want %d before %d", c.Before(), c.Len(), before, events)
		}
	}
}
