package engine

import (
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	_ "github.com/ashlar-go/ashlar/mem/pinned" // what AllocatorFor has of page-locked memory
)

// AllocatorFor returns an allocator of memory with all that is wanted, for work on a device. Where the device's own memory will
// do, it is Engine.Allocator, with a layer.SizeTracker of the caller's own on top if want has mem.TrackSizes: the engine's limit and its
// Close hold for it. All other memory (mem.OnHost for a GPU) is opened anew, as mem.AllocatorFor does, and is an io.Closer: the
// caller closes it before the engine, and shares it among those who are to share its cache. The error matches ErrClosed after
// Close, and mem.ErrUnknown, with a list of what there is, if nothing will do.
func (e *Engine) AllocatorFor(i int, want mem.Attributes) (mem.Allocator, error) {
	d := e.at("AllocatorFor", i)
	if err := e.open(); err != nil {
		return nil, err
	}
	if !mem.OwnAttributes(d.device).Satisfies(want &^ mem.TrackSizes) {
		var a mem.Allocator
		err := d.lanes.during(func() (err error) { a, err = mem.AllocatorFor(d.device, want); return err })
		return a, err
	}
	if want&mem.TrackSizes != 0 {
		return layer.NewSizeTracker(d.lanes, layer.SizeTrackerOptions{}), nil
	}
	return d.lanes, nil
}
