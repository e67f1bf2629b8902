package diagnose

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A Layout is the reserved memory at one moment, as the recorded addresses show it. Sizes are in bytes. Reserved is the
// sum of Requested, Rounding, FreePools, FreeStreams and FreeOwn.
type Layout struct {
	Reserved  int64
	Requested int64 // requested bytes of the active blocks
	Rounding  int64 // of the active blocks, beyond the requested bytes

	FreePools    int64 // free in private pools
	FreeStreams  int64 // free in segments of other streams than that of the request
	FreeOwn      int64 // free in segments that the request could use
	PrivatePools int   // private pools
	OtherStreams int   // streams other than that of the request that have free memory

	LargestHole int64 // the largest free range that the request could use
	Pins        []Pin // the segments with the most memory in FreeOwn first; at most five kinds
	Move        *Move // nil if no segment is as large as the request, or without a request
}

// A Pin is one or more equal segments that cannot be returned to the GPU because of their live blocks.
type Pin struct {
	Segments int    // number of them
	Segment  int64  // bytes of each
	Free     int64  // free bytes in each
	Blocks   int    // live blocks in each
	Holder   string // the line that allocated most of the bytes in them
}

// A Move is the least that would have to move to make room for the request within one segment.
type Move struct {
	Segment int64 // bytes
	Bytes   int64 // of the blocks
	Blocks  int
	Holder  string // the line that allocated most of these bytes
}

// smallRequest is the largest request, in bytes, that PyTorch's allocator serves from small segments (kSmallSize).
const smallRequest = 1 << 20

// maxPins is the most pins in a layout.
const maxPins = 5

// A region is a contiguous range of memory of one stream and pool: a segment or, of an expandable segment, a range of
// mapped pages.
type region struct {
	ptr, end driver.Pointer
	stream   uint64
	pool     mem.PoolID
	mapped   bool // pages of an expandable segment, not a segment
	small    bool // a segment for requests of at most 1 MiB
	blocks   []placed
	free     int64
}

// placed is a block within a region.
type placed struct {
	ptr, end driver.Pointer
	block    *holders.Block
}

// findLayout sets Report.Layout to that at the failed request or, without one, at the peak.
func (x *explainer) findLayout() {
	if f := x.r.Failure; f != nil {
		x.r.Layout = x.layoutAt(f.Entry, f.Stream, f.Size)
		return
	}
	x.r.Layout = x.layoutAt(x.peak.Event, 0, 0)
}

// layoutAt returns the layout after an event, for a request of a size on a stream; without a request, all streams are
// alike. It returns nil if no memory was reserved.
func (x *explainer) layoutAt(event int, stream uint64, request int64) *Layout {
	regions := regionsAt(x.h, event)
	if len(regions) == 0 {
		return nil
	}
	place(x.h, x.s, regions, event)
	l := &Layout{}
	pools, streams := map[mem.PoolID]bool{}, map[uint64]bool{}
	var own []*region
	for i := range regions {
		r := &regions[i]
		l.Reserved += int64(r.end - r.ptr)
		used := int64(r.end-r.ptr) - r.free
		var requested int64
		for _, b := range r.blocks {
			requested += b.block.Size
		}
		requested = min(requested, used)
		l.Requested += requested
		l.Rounding += used - requested
		switch {
		case r.pool != (mem.PoolID{}):
			l.FreePools += r.free
			pools[r.pool] = true
		case request > 0 && r.stream != stream:
			l.FreeStreams += r.free
			if r.free > 0 {
				streams[r.stream] = true
			}
		default:
			l.FreeOwn += r.free
			if request == 0 || r.mapped || r.small == (request <= smallRequest) {
				l.LargestHole = max(l.LargestHole, r.largestHole())
			}
			own = append(own, r)
		}
	}
	l.PrivatePools, l.OtherStreams = len(pools), len(streams)
	l.Pins = x.pins(own)
	if request > 0 {
		l.Move = x.move(own, request)
	}
	return l
}

// regionsAt returns the reserved memory after an event, by address.
func regionsAt(h *holders.History, event int) []region {
	var regions []region
	for _, s := range h.Segments() {
		if s.ActiveAt(event) {
			regions = append(regions, region{
				ptr: s.Ptr, end: s.Ptr + driver.Pointer(s.Size), stream: s.Stream, pool: s.Pool,
				mapped: s.Expandable, small: !s.Large && !s.Expandable,
			})
		}
	}
	slices.SortFunc(regions, func(a, b region) int { return cmp.Compare(a.ptr, b.ptr) })
	return join(regions)
}

// first returns the index of the first region that ends after p.
func first(regions []region, p driver.Pointer) int {
	n, _ := slices.BinarySearchFunc(regions, p, func(r region, p driver.Pointer) int {
		if r.end <= p {
			return -1
		}
		return 1
	})
	return n
}

// join joins mapped pages of one stream and pool that lie side by side.
func join(regions []region) []region {
	joined := regions[:0]
	for _, r := range regions {
		if n := len(joined); n > 0 && joined[n-1].end == r.ptr && joined[n-1].stream == r.stream &&
			joined[n-1].pool == r.pool && r.mapped && joined[n-1].mapped {
			joined[n-1].end = r.end
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// place sets the blocks of regions that are active after an event, and the free bytes.
func place(h *holders.History, s *snapshot.Snapshot, regions []region, event int) {
	final := map[driver.Pointer]int64{} // sizes, rounded
	own := s.SegmentsOf(h.Trace.Device)
	for i := range own {
		for j := range own[i].Blocks {
			if b := &own[i].Blocks[j]; b.State != mem.Inactive {
				final[b.Ptr] = b.Size
			}
		}
	}
	for i := range h.NumBlocks() {
		if !h.Lifetimes.ActiveAt(i, event) {
			continue
		}
		b := h.Block(i)
		n := first(regions, b.Ptr)
		if n == len(regions) || regions[n].ptr > b.Ptr {
			continue
		}
		size := (b.Size + 511) &^ 511
		if rounded := final[b.Ptr]; rounded >= b.Size && int(b.End) == h.Trace.Len() {
			size = rounded
		}
		r := &regions[n]
		r.blocks = append(r.blocks, placed{b.Ptr, min(b.Ptr+driver.Pointer(size), r.end), &b})
	}
	for i := range regions {
		r := &regions[i]
		slices.SortFunc(r.blocks, func(a, b placed) int { return cmp.Compare(a.ptr, b.ptr) })
		r.attach()
		r.holes(func(from, to driver.Pointer) { r.free += int64(to - from) })
	}
}

// attach makes the rest of a segment behind a large block part of the block if the allocator does not split it off.
func (r *region) attach() {
	for i := range r.blocks {
		b, next := &r.blocks[i], r.end
		if i+1 < len(r.blocks) {
			next = r.blocks[i+1].ptr
		}
		if !r.mapped && b.end-b.ptr > smallRequest && next > b.end && next-b.end <= smallRequest {
			b.end = next
		}
	}
}

// holes calls visit for the free ranges of a region.
func (r *region) holes(visit func(from, to driver.Pointer)) {
	at := r.ptr
	for _, b := range r.blocks {
		if b.ptr > at {
			visit(at, b.ptr)
		}
		at = max(at, b.end)
	}
	if at < r.end {
		visit(at, r.end)
	}
}

func (r *region) largestHole() (size int64) {
	r.holes(func(from, to driver.Pointer) { size = max(size, int64(to-from)) })
	return size
}

// pins returns the regions with the most free memory beside live blocks.
func (x *explainer) pins(own []*region) (pins []Pin) {
	index := map[Pin]int{}
	for _, r := range own {
		if r.free == 0 || len(r.blocks) == 0 {
			continue
		}
		pin := Pin{Segment: int64(r.end - r.ptr), Free: r.free, Blocks: len(r.blocks), Holder: x.holderOf(r.blocks)}
		n, ok := index[pin]
		if !ok {
			n = len(pins)
			index[pin] = n
			pins = append(pins, pin)
		}
		pins[n].Segments++
	}
	slices.SortStableFunc(pins, func(a, b Pin) int {
		return cmp.Compare(b.Free*int64(b.Segments), a.Free*int64(a.Segments))
	})
	return pins[:min(len(pins), maxPins)]
}

// holderOf returns the line that holds the most bytes of some blocks.
func (x *explainer) holderOf(blocks []placed) (label string) {
	sums := map[trace.StackID]int64{}
	most := int64(-1)
	for _, b := range blocks {
		sums[b.block.Stack] += b.block.Size
	}
	for _, b := range blocks {
		if sum := sums[b.block.Stack]; sum > most {
			most, label = sum, x.h.Label(holders.ByLine, b.block)
		}
	}
	return label
}

// move returns the least that would have to move out of a range of a region to make room for a request.
func (x *explainer) move(own []*region, request int64) *Move {
	var best *Move
	var in []placed
	for _, r := range own {
		if int64(r.end-r.ptr) < request {
			continue
		}
		starts := []driver.Pointer{r.ptr}
		for _, b := range r.blocks {
			starts = append(starts, b.end)
		}
		last, bytes := 0, int64(0)
		from := 0
		for _, start := range starts {
			end := start + driver.Pointer(request)
			if end > r.end {
				break
			}
			for ; last < len(r.blocks) && r.blocks[last].ptr < end; last++ {
				bytes += int64(r.blocks[last].end - r.blocks[last].ptr)
			}
			for ; from < last && r.blocks[from].end <= start; from++ {
				bytes -= int64(r.blocks[from].end - r.blocks[from].ptr)
			}
			if best == nil || bytes < best.Bytes {
				best = &Move{Segment: int64(r.end - r.ptr), Bytes: bytes, Blocks: last - from}
				in = r.blocks[from:last]
			}
		}
	}
	if best != nil {
		best.Holder = x.holderOf(in)
	}
	return best
}
