package pinned

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// An Attach function registers a segment of page-locked memory with other users, such as a network card (ibv_reg_mr).
// It is TensorFlow's allocation visitor. An allocator calls it once for each new segment, before it allocates from the
// segment, and calls detach, unless that is nil, before it frees the segment. No lock is held.
//
// If a segment cannot be attached, it is freed, and the request fails with that error. If it cannot be detached, it
// stays cached. If the device fails to free it, it is attached again; if that fails, too, the segment is not used
// again, and stays allocated until the device is closed.
type Attach func(segment []byte) (detach func() error, err error)

// nicName is the name that RegisterNIC registers. Importing the package does not register it.
const nicName = "nic"

// RegisterNIC registers an allocator of page-locked memory for mem.NICCompatible, under the name "nic": attach
// registers its memory with the network card. Its settings are those of ParseConfig. It is for init functions, and
// panics if it was called before.
func RegisterNIC(attach Attach) {
	provides := mem.OnHost | mem.GPUCompatible | mem.NICCompatible
	mem.RegisterFor(provides, nicName, "", 10, func(dev driver.Device, settings string) (mem.Allocator, error) {
		return openMem(dev, settings, attach)
	})
}

// openMem makes a mem.Allocator that owns what it serves from.
func openMem(dev driver.Device, settings string, attach Attach) (mem.Allocator, error) {
	cfg, err := ParseConfig(settings)
	if err != nil {
		return nil, err
	}
	cfg.Attach = attach
	a, err := New(dev, cfg)
	if err != nil {
		return nil, err
	}
	return &MemAllocator{a: a, closes: true}, nil
}

// attachSegment calls Config.Attach for a segment.
func (a *Allocator) attachSegment(seg *segment) (err error) {
	if a.cfg.Attach == nil {
		return nil
	}
	if seg.detach, err = a.cfg.Attach(seg.mem); err != nil {
		return fmt.Errorf("attach %d bytes: %w", len(seg.mem), err)
	}
	return nil
}

// callDetach calls the function that Attach returned.
func (seg *segment) callDetach() error {
	if seg.detach == nil {
		return nil
	}
	if err := seg.detach(); err != nil {
		return fmt.Errorf("detach %d bytes: %w", len(seg.mem), err)
	}
	seg.detach = nil
	return nil
}
