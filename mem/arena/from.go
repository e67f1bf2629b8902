package arena

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena/internal/region"
)

// NewFrom makes an arena of one block of another allocator of dev's memory, from, which is asked for it on s, and which
// Close gives it back to, told of the streams that used it. The block stays where it is, and the arena compacts within
// it, by copies, for which it may take up to a sixteenth of its size of dev. Cfg.Size is required, and cfg.Page must be
// 0. The error says what is wrong with cfg, or is from's.
func NewFrom(from mem.Allocator, dev driver.Device, s driver.Stream, cfg Config) (*Arena, error) {
	if cfg.Size <= 0 || cfg.Page != 0 {
		return nil, fmt.Errorf("arena: an arena of a block of %d bytes with pages of %d: want a size, and no pages",
			cfg.Size, cfg.Page)
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

// alignedBlock returns a block that has so many bytes from an address on that is a multiple of the grain.
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

// own reports whether the arena has its memory of the device.
func (a *Arena) own() bool { return a.parent == nil && a.from == nil }
