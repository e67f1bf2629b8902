package engine

import (
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	_ "github.com/ashlar-go/ashlar/mem/pinned" // page-locked memory for AllocatorFor
)

// AllocatorFor returns an allocator of memory with the wanted attributes, for work on a device. If the device's own
// memory has them, it is Engine.Allocator, to which the engine's limit and Close apply, with a new layer.SizeTracker on
// top if want has mem.TrackSizes. For other memory (mem.OnHost for a GPU) each call opens an allocator, as
// mem.AllocatorFor does. That one is an io.Closer: the caller closes it before the engine, and shares it where its
// cache is to be shared. The error matches ErrClosed after Close, and mem.ErrUnknown, with a list of the known
// allocators, if none has the attributes.
func (e *Engine) AllocatorFor(i int, want mem.Attributes) (mem.Allocator, error) {
	d := e.at("AllocatorFor", i)
	if err := e.checkOpen(); err != nil {
		return nil, err
	}
	if !mem.OwnAttributes(d.device).Satisfies(want &^ mem.TrackSizes) {
		var a mem.Allocator
		err := d.allocator.whileOpen(func() (err error) { a, err = mem.AllocatorFor(d.device, want); return err })
		return a, err
	}
	if want&mem.TrackSizes != 0 {
		return layer.NewSizeTracker(d.allocator, layer.SizeTrackerOptions{}), nil
	}
	return d.allocator, nil
}
