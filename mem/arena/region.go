package arena

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena/internal/region"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A sharedRegion is a region that an arena shares with its children.
type sharedRegion struct {
	base driver.Pointer

	mu sync.Mutex // a region is not safe for concurrent use
	r  *region.Region
}

func openRegion(dev driver.Device, cfg Config) (*sharedRegion, error) {
	r, err := region.Open(dev, region.Options{Size: cfg.Size, Page: cfg.Page, Bounce: cfg.Bounce})
	switch {
	case noMemory(err):
		err = fmt.Errorf("arena: a region of %s: %w: %w", bytesize.Exact(cfg.Size), mem.ErrNoMemory, err)
	case err != nil:
		err = fmt.Errorf("arena: a region of %s: %w", bytesize.Exact(cfg.Size), err)
	}
	if err != nil {
		return nil, err
	}
	return &sharedRegion{base: r.Base(), r: r}, nil
}

func (g *sharedRegion) size() int64 { return g.r.Size() }

func (g *sharedRegion) move(s driver.Stream, moves []region.Move) (n int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.r.Move(s, moves)
}

// AddPeer implements mem.PeerAdder: the current and future pages of the region are mapped for dev too, for all arenas
// of the region. Without pages it does nothing.
func (a *Arena) AddPeer(dev driver.Device) error {
	a.region.mu.Lock()
	defer a.region.mu.Unlock()
	if err := a.region.r.AddPeer(dev); err != nil {
		return fmt.Errorf("arena: AddPeer: %w", err)
	}
	return nil
}

// ExportPages implements mem.PageExporter. Without pages nothing is mapped.
func (a *Arena) ExportPages(p driver.Pointer, size int64) (base driver.Pointer, pages []driver.PageFile, err error) {
	a.region.mu.Lock()
	defer a.region.mu.Unlock()
	if base, pages, err = a.region.r.ExportPages(p, size); err != nil {
		err = fmt.Errorf("arena: ExportPages: %w", err)
	}
	return base, pages, err
}

// paged reports whether this arena maps memory as it fills. A child's memory is mapped already.
func (a *Arena) paged() bool { return a.cfg.Page > 0 && a.parent == nil }

// extend maps memory behind the region up to an offset.
func (a *Arena) extend(end int64) error {
	if !a.paged() || end <= a.backed {
		return nil
	}
	end = roundUp(end, a.cfg.Page)
	a.region.mu.Lock()
	defer a.region.mu.Unlock()
	err := a.region.r.Extend(a.pointer(end))
	if err == nil {
		a.backed = end
	}
	a.countReserved(a.region.r.Reserved())
	return err
}

// EmptyCache implements mem.Trimmer. With pages it waits for the streams that used the end of the region, and frees
// the pages there that no block needs; Compact can first move blocks out of the way. Without pages, and in a child,
// there is nothing to free before Close.
func (a *Arena) EmptyCache() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.paged() || a.closed {
		return nil
	}
	err := a.trim()
	a.verify()
	return err
}

func (a *Arena) trim() error {
	end := a.hi
	tail, p, ok := a.holes.Find(a.hi - 1)
	if ok {
		end = tail.At
	}
	end = roundUp(end, a.cfg.Page)
	if end >= a.stats.ReservedBytes.All.Current {
		return nil
	}
	if err := a.streams.Sync(p.Users); err != nil {
		return fmt.Errorf("arena: wait for the memory to give back: %w", err)
	}
	if ok {
		a.holes.TakeAt(tail.At, tail.Size)
		a.holes.Give(tail.At, tail.Size, reuse.Dependencies{})
	}
	a.region.mu.Lock()
	defer a.region.mu.Unlock()
	a.backed = min(a.backed, end) // memory that could not be freed is mapped again before it is used
	err := a.region.r.Trim(a.pointer(end))
	a.countReserved(a.region.r.Reserved())
	return err
}

// noMemory reports whether err means that a device had no room.
func noMemory(err error) bool { return errors.Is(err, driver.ErrNoMemory) }
