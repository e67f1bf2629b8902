package pinned

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Attach makes a segment of page-locked memory known to who else works on it: a network card that is to read and write
// it (ibv_reg_mr), say. It is what TensorFlow calls an allocation visitor. An allocator calls it once for each segment
// that the device gave, before any of it is allocated, and detach, unless that is nil, before the segment goes back.
// No lock is held.
//
// A segment that cannot be attached goes back, and the request fails with that error. One that cannot be detached stays
// cached. If the device does not take a segment back, it is attached again; if that fails too, the segment is not used
// any more, and stays the device's until that is closed.
type Attach func(segment []byte) (detach func() error, err error)

// nicName is that of the allocator that RegisterNIC makes known. An import alone brings none.
const nicName = "nic"

// RegisterNIC has mem.AllocatorFor give page-locked memory out for mem.NICCompatible, under the name "nic": attach
// registers it with the network card. Its settings are those of ParseConfig. It is for init functions, and panics if it
// was called before.
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

// announce calls Config.Attach for a segment.
func (a *Allocator) attachSegment(seg *segment) (err error) {
	if a.cfg.Attach == nil {
		return nil
	}
	if seg.detach, err = a.cfg.Attach(seg.mem); err != nil {
		return fmt.Errorf("attach %d bytes: %w", len(seg.mem), err)
	}
	return nil
}

// withdraw calls what Attach returned.
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
