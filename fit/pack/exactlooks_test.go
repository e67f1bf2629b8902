package pack

import (
	"context"
	"testing"
)

// looks is a context that ends after so many looks at it.
type looks struct {
	context.Context
	left int
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// The time for a node of an exact search grows with the number of buffers, up to a tenth of a second in Pack's largest
// core. So the work between two checks of the context is bounded in buffers, not in nodes.
func TestExactLooksAtItsContextOften(t *testing.T) {
	for _, n := range []int{1, 200, 2000, coreLargest} {
		buffers := make([]Buffer, n)
		for i := range buffers {
			buffers[i] = Buffer{Lower: int64(i), Upper: int64(i + 100), Size: 1 + int64(i)*7919%1000}
		}
		s, err := newExactSearch(buffers, Bound(buffers))
		if err != nil {
			t.Fatal(err)
		}
		const times = 4
		s.search(&looks{t.Context(), times}, 1_000_000)
		if most := int64(times * (1 + 16384/n)); s.nodes > most {
			t.Errorf("%d buffers: %d nodes in %d looks, want at most %d", n, s.nodes, times, most)
		}
	}
}
