package reuse_test

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A cell is memory that goes from stream to stream.
type cell struct {
	at   driver.Pointer
	live bool
	past reuse.Dependencies // while it is free
	used reuse.Set          // while it is live
	last driver.Stream      // while it is live: whose work touched it last; nil if that is closed
}

// In random histories of memory that changes hands, is used by several streams live, merges and is cut, while streams
// end and others get their numbers, no work touches memory that earlier work may still touch: the device looks for
// that.
func TestHistories(t *testing.T) {
	const size = 256
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		c := newScene(t, 68, nil)
		use := []int{0, 1, 2, 3, 61, 62, 63, 64, 67} // streams
		base, err := c.dev.Alloc(12 * size)
		c.must(err)
		cells := make([]cell, 12)
		for i := range cells {
			cells[i].at = base + driver.Pointer(i*size)
		}
		touch := func(x *cell, s driver.Stream) {
			if err := s.Fill(x.at, 1, size); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			x.last = s
		}
		for range 400 {
			n := use[rng.IntN(len(use))]
			s := c.s[n]
			i := rng.IntN(len(cells))
			x := &cells[i]
			switch op := rng.IntN(100); {
			case op < 2 && n > 0:
				c.must(s.Close())
				c.s[n] = c.open()
				for i := range cells {
					if cells[i].last == s {
						cells[i].last = nil
					}
				}
			case op < 6:
				c.sim.Hold(s.ID())
			case op < 10:
				c.sim.Resume(s.ID())
			case op < 25: // merge with the next, and cut
				if y := &cells[(i+1)%len(cells)]; !x.live && !y.live {
					x.past = c.Merge(x.past, y.past)
					y.past = x.past
				}
			case !x.live:
				c.must(c.Wait(s, x.past))
				touch(x, s)
				x.live, x.used = true, c.Register(s)
			case op < 45 && x.last != nil:
				touch(x, x.last)
			case op < 60:
				c.must(c.Wait(s, reuse.InUse(x.used)))
				touch(x, s)
				x.used = c.Union(x.used, c.Register(s))
			default:
				x.live, x.past = false, c.Freed(x.used)
			}
		}
	}
}
