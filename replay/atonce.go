package replay

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay/internal/deferredfree"
)

// AtOnce returns a layer over a that completes deferred frees when they are requested: Free waits for the streams it is
// given, which is immediate for the streams of a replay, and passes none to a. See the package documentation on
// streams.
func AtOnce(a mem.Allocator) mem.Allocator { return atOnce{a} }

// atOnce is the layer of AtOnce.
type atOnce struct{ below mem.Allocator }

// Unwrap implements mem.Wrapper.
func (l atOnce) Unwrap() mem.Allocator { return l.below }

// Alloc implements mem.Allocator.
func (l atOnce) Alloc(s driver.Stream, size int64) (mem.Block, error) { return l.below.Alloc(s, size) }

// Free implements mem.Allocator.
func (l atOnce) Free(b mem.Block, used ...driver.Stream) {
	for _, s := range used {
		if side, ok := s.(*deferredfree.Stream); ok {
			side.Complete(side.Queued.Load()) // so that the allocator below need not wait
			continue
		}
		if s.Sync(context.Background()) != nil {
			l.below.Free(b, used...) // which may handle the error
			return
		}
	}
	l.below.Free(b)
}

// Movable implements mem.Mover.
func (l atOnce) Movable(b mem.Block, h mem.Holder) bool { return mem.Movable(l.below, b, h) }
