package caching

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// maxPinning is the maximum number of pinning blocks in an error.
const maxPinning = 5

// outOfMemory returns the error for a request without room, with its explanation. The caller holds mu and r's shard.
func (a *Allocator) outOfMemory(r *request) *mem.OutOfMemory {
	a.lockShards()
	defer a.unlockShards()
	a.totals.numOOMs++
	sh := r.pool.sh
	info := a.dev.Info()
	free, total, err := a.dev.Available()
	if err != nil {
		total = info.TotalMemory
	}
	e := &mem.OutOfMemory{
		Requested: r.requested, Rounded: r.size, Segment: r.segment, Rejected: r.rejected,
		Device: info.Ordinal, DeviceName: info.Name, Total: total, Free: free,
		Reserved: a.reserved,
		Stream:   sh.stream.ID(), Pool: r.pool.blockPool.id, Small: r.pool.small(),
		Cause: r.err,
	}
	if a.limit != noLimit {
		e.Allowed = a.limit
	}
	if r.limited {
		e.Needed = a.reserved + r.segment
	}
	if r.size <= total { // a larger request fails for another reason
		e.Addresses, e.ReserveClass = r.addresses, r.class
	}
	e.Allocated, _ = a.sum(allocatedBytes, classAll)
	a.describeCache(e, r)
	segments := a.segments(nil)
	a.describePinning(e, segments)
	a.describeRemedies(e, r, segments)
	if a.observer != nil {
		a.observer(mem.Event{
			Action: mem.ActionOOM, Stream: sh.stream.ID(), Pool: r.pool.blockPool.id, Ptr: driver.Pointer(free),
			Size: r.size,
		})
	}
	return e
}

func (a *Allocator) describeCache(e *mem.OutOfMemory, r *request) {
	for _, sh := range a.live {
		for _, p := range sh.pools {
			if p == nil {
				continue
			}
			c := mem.CachedMemory{Pool: p.blockPool.id, Stream: sh.stream.ID(), Small: p.small(), Blocks: p.free.n}
			for at := p.free.first(); at.ok(); at = p.free.next(at) {
				c.Bytes += at.entry().size()
				c.Largest = at.entry().size()
			}
			if c.Blocks > 0 {
				e.Cached = append(e.Cached, c)
			}
			if p == r.pool {
				e.LargestFree = c.Largest
			}
			if p.blockPool.id != (mem.PoolID{}) {
				e.PrivatePools += c.Bytes
			}
		}
	}
}

// describePinning adds the live and pending blocks that keep the most free memory from being released.
func (a *Allocator) describePinning(e *mem.OutOfMemory, segments []mem.SegmentInfo) {
	for i := range segments {
		s := &segments[i]
		stranded := s.TotalSize - s.ActiveSize
		if stranded == 0 || s.ActiveSize == 0 {
			continue
		}
		e.Stranded += stranded
		pin := mem.PinningBlock{Segment: s.Ptr, SegmentSize: s.TotalSize, Stranded: stranded}
		for _, b := range s.Blocks {
			if b.State == mem.Inactive {
				continue
			}
			pin.Live++
			if b.Size > pin.Size {
				pin.Ptr, pin.Size, pin.Requested = b.Ptr, b.Size, b.RequestedSize
				pin.Pending = b.State == mem.ActivePendingFree
			}
		}
		e.Pinning = append(e.Pinning, pin)
	}
	slices.SortStableFunc(e.Pinning, func(x, y mem.PinningBlock) int { return cmp.Compare(y.Stranded, x.Stranded) })
	e.Pinning = e.Pinning[:min(len(e.Pinning), maxPinning)]
}

// describeRemedies adds the settings with which there would have been room. headroom is the memory that the device
// could still give. Free segments have been released already, except those that describeKept finds.
func (a *Allocator) describeRemedies(e *mem.OutOfMemory, r *request, segments []mem.SegmentInfo) {
	headroom := e.Free
	if e.Allowed > 0 {
		headroom = min(headroom, e.Allowed-e.Reserved)
	}
	add := func(name, format string, args ...any) {
		e.Remedies = append(e.Remedies, mem.Remedy{Name: name, Reason: fmt.Sprintf(format, args...)})
	}
	estimate := func(name, format string, args ...any) {
		add(name, format, args...)
		e.Remedies[len(e.Remedies)-1].Estimate = true
	}
	if e.Addresses > 0 && headroom >= r.segment {
		name := "expandable_segments_reserve:" + inGiB(r.size)
		if r.class != "" {
			name = "expandable_segments_reserve_by_class:[" + r.class + ":" + inGiB(r.size) + "]"
		}
		add(name, "a segment of so many addresses holds it, and there is memory for it")
	}
	for _, c := range e.Cached {
		if c.Stream != e.Stream && c.Pool == e.Pool && c.Small == e.Small && c.Largest >= r.size {
			add(fmt.Sprintf("the cache of stream %d", c.Stream), "it has a free block of %s", mem.FormatSize(c.Largest))
		}
		if a.couldLend(c) && e.Pool == (mem.PoolID{}) && c.Stream == e.Stream && c.Small == e.Small &&
			c.Largest >= r.size {
			add(fmt.Sprintf("UseOnOOM for pool %v", c.Pool), "it has a free block of %s", mem.FormatSize(c.Largest))
		}
	}
	a.describeKept(r, headroom, segments, add)
	if !r.expandable && a.vm != nil {
		// Packed into one expandable segment, the live blocks would leave all that is stranded to be mapped elsewhere.
		if room := headroom + e.Stranded; room >= r.segment {
			estimate("expandable_segments:True", "free memory in pieces comes to %s", mem.FormatSize(room))
		}
	}
	if a.cfg.MaxSplitSize == Unlimited {
		if limit, room := a.splitLimit(r, headroom, segments); limit > 0 {
			estimate(fmt.Sprintf("max_split_size_mb:%d", limit>>20),
				"small blocks would not have pinned larger segments, which would have left %s", mem.FormatSize(room))
		}
	}
}

// inGiB formats bytes in GiB, rounded up to hundredths, as PyTorch parses a size of addresses.
func inGiB(bytes int64) string {
	const hundredth = float64(1<<30) / 100
	return fmt.Sprintf("%.2fG", math.Ceil(float64(bytes)/hundredth)/100)
}

// couldLend reports whether free memory belongs to a Pool that would lend it with UseOnOOM and does not.
func (a *Allocator) couldLend(c mem.CachedMemory) bool {
	pp := a.private[c.Pool]
	return pp != nil && pp.own > 0 && !pp.closed && !slices.Contains(a.overflow, pp) &&
		(!a.cfg.ExpandableSegments || pp.source != nil)
}

// describeKept adds a remedy if the request would have fitted with the segments that are free as a whole, and says why
// they were not released.
func (a *Allocator) describeKept(
	r *request, headroom int64, segments []mem.SegmentInfo, add func(name, format string, args ...any),
) {
	var ordinary, private int64
	for i := range segments {
		switch s := &segments[i]; {
		case s.ActiveSize > 0:
		case s.Pool == (mem.PoolID{}):
			ordinary += s.TotalSize
		case a.private[s.Pool].source == nil:
			private += s.TotalSize
		}
	}
	if private > 0 && headroom+private >= r.segment {
		add("the free segments of private pools", "Pool.EmptyCache, or Close or ReleasePool and EmptyCache, give "+
			"%s back", mem.FormatSize(private))
	}
	if held := r.noRetry || r.rejected || a.capturing(); held && ordinary > 0 && headroom+ordinary >= r.segment {
		add("EmptyCache", "%s is free in segments that this request must not give back itself",
			mem.FormatSize(ordinary))
	}
}

// splitLimit returns the largest split limit, in whole MiB, with which there would have been room: segments of at
// least that size that hold only smaller blocks would have stayed whole.
func (a *Allocator) splitLimit(r *request, headroom int64, segments []mem.SegmentInfo) (limit, room int64) {
	var sizes []int64
	for i := range segments {
		if s := &segments[i]; s.Large && !s.Expandable && s.TotalSize > s.ActiveSize && s.ActiveSize > 0 {
			sizes = append(sizes, s.TotalSize>>20<<20)
		}
	}
	slices.Sort(sizes)
	for _, limit := range slices.Backward(slices.Compact(sizes)) {
		if limit <= a.cfg.LargeSegmentSize {
			break // such segments are made for small blocks, and split under any limit
		}
		room := headroom
		for i := range segments {
			s := &segments[i]
			small := !slices.ContainsFunc(s.Blocks, func(b mem.BlockInfo) bool {
				return b.State != mem.Inactive && b.Size >= limit
			})
			if s.Large && !s.Expandable && s.TotalSize >= limit && s.ActiveSize > 0 && small {
				room += s.TotalSize - s.ActiveSize
			}
		}
		if room >= r.segment {
			return limit, room
		}
	}
	return 0, 0
}
