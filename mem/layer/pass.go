package layer

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Pass is the part of a layer that passes calls on to the allocator below. A layer embeds it and implements Alloc and
// AllocWith, and whatever else it changes:
//
//	type tracer struct{ layer.Pass }
//
//	func (t *tracer) Alloc(s driver.Stream, size int64) (mem.Block, error) { ... }
//
// It is for layers that return the blocks of the allocator below unchanged.
type Pass struct{ Below mem.Allocator }

// Free implements mem.Allocator.
func (p Pass) Free(b mem.Block, used ...driver.Stream) { p.Below.Free(b, used...) }

// Movable implements mem.Mover.
func (p Pass) Movable(b mem.Block, h mem.Holder) bool { return mem.Movable(p.Below, b, h) }

// Unwrap implements mem.Wrapper.
func (p Pass) Unwrap() mem.Allocator { return p.Below }
