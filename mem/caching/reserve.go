package caching

import (
	"fmt"
	"maps"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
)

// A Reserve is the size of an expandable segment's addresses: Bytes, or, if that is 0, a part of the device's memory.
// The zero Reserve sets nothing.
type Reserve struct {
	Bytes    int64
	Fraction float64
}

func (r Reserve) validate() error {
	if r.Bytes < 0 || !(r.Fraction >= 0) {
		return fmt.Errorf("caching: expandable reserve of %d bytes, fraction %v: want at least 0", r.Bytes, r.Fraction)
	}
	return nil
}

// reserveOf returns the reserve for streams of a class, and whether it is the class's own.
func (c *Config) reserveOf(class string) (r Reserve, own bool) {
	if r, own = c.ExpandableReserveByClass[class]; own {
		return r, true
	}
	return c.ExpandableReserve, false
}

// size returns the bytes of addresses of an expandable segment: whole pages, and at most PyTorch's 9/8 of the device's
// memory (clamp_reserve_bytes of c10/cuda/CUDAAllocatorConfig.h).
func (r Reserve) size(total, page int64) int64 {
	size := total + total/8
	switch {
	case r.Bytes > 0:
		size = min(size, r.Bytes)
	case r.Fraction > 0:
		size = int64(min(float64(size), r.Fraction*float64(total)))
	}
	return max((min(size, maxBlockSize-page)+page-1)/page, 1) * page
}

// reserveSize returns the bytes of addresses of p's next expandable segment. ofClass is its stream's class if that has
// its own reserve.
func (a *Allocator) reserveSize(p *shardPool) (size int64, ofClass string) {
	class := a.reserveClasses[p.sh.stream.ID()]
	r, own := a.cfg.reserveOf(class)
	if own {
		ofClass = class
	}
	return r.size(a.dev.Info().TotalMemory, a.cfg.pageSize(p)), ofClass
}

// SetReserveClass puts a stream into a class in place of its former one: its expandable segments made from now on take
// the addresses of Config.ExpandableReserveByClass (setExpandableSegmentReserveClassForStream). The empty class is
// none. Classes go by stream numbers: remove a stream from its class before it is closed.
func (a *Allocator) SetReserveClass(s driver.Stream, class string) {
	check.Stream("caching: SetReserveClass", s)
	a.mu.Lock()
	defer a.mu.Unlock()
	if class == "" {
		delete(a.reserveClasses, s.ID())
		return
	}
	if a.reserveClasses == nil {
		a.reserveClasses = map[driver.StreamID]string{}
	}
	a.reserveClasses[s.ID()] = class
}

// ReserveClass returns the class of a stream, or "" (getExpandableSegmentReserveClassForStream).
func (a *Allocator) ReserveClass(s driver.Stream) string {
	check.Stream("caching: ReserveClass", s)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reserveClasses[s.ID()]
}

// SetDefaultReserve sets a class's reserve, unless the settings have a reserve for all segments or for the class
// (setDefaultExpandableSegmentReserveFractionForClass). A later list of reserves by class replaces it. fraction is a
// part of the device's memory, more than 0.
func (a *Allocator) SetDefaultReserve(class string, fraction float64) error {
	return a.update(func(c *Config) error {
		if _, own := c.reserveOf(class); own || c.ExpandableReserve != (Reserve{}) {
			return nil
		}
		if !(fraction > 0) {
			return fmt.Errorf("caching: SetDefaultReserve of class %q: a fraction of %v, want more than 0", class,
				fraction)
		}
		c.ExpandableReserveByClass = maps.Clone(c.ExpandableReserveByClass)
		if c.ExpandableReserveByClass == nil {
			c.ExpandableReserveByClass = map[string]Reserve{}
		}
		c.ExpandableReserveByClass[class] = Reserve{Fraction: fraction}
		return nil
	})
}

// An ExpandableInfo describes an expandable segment.
type ExpandableInfo struct {
	Stream   driver.StreamID
	Small    bool  // of a pool of blocks up to 1 MiB
	Mapped   int64 // bytes of memory
	Reserved int64 // bytes of addresses
}

// ExpandableSegments describes the expandable segments, by stream: PyTorch's getExpandableSegmentSizes, and the
// addresses that getExpandableSegmentsReservedBytes adds up.
func (a *Allocator) ExpandableSegments() []ExpandableInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	var all []ExpandableInfo
	for _, sh := range a.live {
		for _, ex := range sh.expandables {
			if ex == nil {
				continue
			}
			info := ExpandableInfo{Stream: sh.stream.ID(), Small: ex.small, Reserved: ex.size}
			for _, page := range ex.pages {
				info.Mapped += page.Size
			}
			all = append(all, info)
		}
	}
	return all
}
