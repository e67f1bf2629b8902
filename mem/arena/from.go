package arena

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena/internal/region"
	"github.com/ashlar-go/ashlar/mem/internal/zeroed"
)

// NewFrom makes an arena in one block of another allocator of dev's memory. It allocates the block with from on s, and
// Close frees the block with the streams that used it. The block must not move. The arena compacts within it by copies,
// for which it may allocate up to a sixteenth of its size from dev. cfg.Size is required, and cfg.Page must be 0. The
// error names the wrong setting, or is an error of from.
func NewFrom(from mem.Allocator, dev driver.Device, s driver.Stream, cfg Config) (*Arena, error) {
	if cfg.Size <= 0 || cfg.Page != 0 {
		return nil, fmt.Errorf("arena: an arena of a block of %d bytes with pages of %d: want a size, and no pages",
			cfg.Size, cfg.Page)
	}
	if _, zeroes := mem.Find[zeroed.By](from); zeroes {
		return nil, fmt.Errorf("arena: an arena in a block: %w", zeroed.Err)
	}
	cfg, err := cfg.complete(dev)
	if err != nil {
		return nil, err
	}
	b, at, err := alignedBlock(from, s, cfg.Size)
	if err != nil {
		return nil, err
	}
	r, err := region.Open(dev, region.Options{Size: cfg.Size, At: at, Bounce: cfg.Bounce})
	if err != nil {
		from.Free(b)
		return nil, fmt.Errorf("arena: a region of a block: %w", err)
	}
	a := newArena(dev, cfg, &sharedRegion{base: at, r: r}, 0, cfg.Size)
	a.from, a.fromBlock, a.sizeSet = from, b, true
	a.begin()
	a.setUsers([]driver.Stream{s})
	return a, nil
}

// alignedBlock allocates a block that contains size bytes from an address that is a multiple of the grain.
func alignedBlock(from mem.Allocator, s driver.Stream, size int64) (mem.Block, driver.Pointer, error) {
	b, err := from.Alloc(s, size)
	if err == nil && b.Ptr%grain != 0 {
		from.Free(b)
		b, err = from.Alloc(s, size+grain)
	}
	if err != nil {
		return mem.Block{}, 0, fmt.Errorf("arena: a block of %d bytes: %w", size, err)
	}
	return b, (b.Ptr + grain - 1) / grain * grain, nil
}

// own reports whether the arena's memory comes from the device.
func (a *Arena) own() bool { return a.parent == nil && a.from == nil }
