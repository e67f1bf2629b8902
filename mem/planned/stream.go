package planned

import (
	"iter"
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// A servedSlot is a slot in the form that serves requests: 40 bytes, so that many fit in the processor's caches.
type servedSlot struct {
	ptr       driver.Pointer
	minSize   int64  // requests from this size on
	sizeRange uint64 // and up to this many bytes more
	// the first slot that ends before this position; always free if there is none, never if the fallback serves
	first ending
	// index in streamAllocator.ends of the number of the other slots that end here, which follow it; 0: none
	rest uint32

	// The generation in which it was freed, times 2; the low bit is set while its block is overdue and live.
	freed atomic.Uint64
}

// size is the block's.
func (p *servedSlot) size() int64 { return roundUp(p.minSize + int64(p.sizeRange)) }

// An ending is a slot number. The top bit says that the slot may have been freed in the generation before.
type ending uint32

const wrapped ending = 1 << 31

func (e ending) slot() int     { return int(e &^ wrapped) }
func (e ending) early() uint64 { return uint64(e >> 31) }

// A streamAllocator serves a StreamPlan: one stream, or several that share memory.
type streamAllocator struct {
	a            *Allocator
	sharers      []sharer // by Slot.Stream
	base         driver.Pointer
	end          driver.Pointer
	n            int // slots
	loop         int // -1: none
	slots        []servedSlot
	until        []int32        // by slot, as Slot.End; 0 where the fallback serves
	ends         []ending       // see servedSlot.rest
	keys         []int64        // by slot: keyOf, as recorded
	grams        []gramAt       // sorted
	checkpoints  []checkpoint   // by position, spaced so that they hold at most two slots for each slot of the stream
	wraps        []int32        // slots that are live into the next round
	loads        []stats.Sums   // live by the plan once a position is served
	requested    []atomic.Int64 // with room only: by slot; negative once it is counted
	peakLoads    []stats.Sums   // the highest of loads in each peakSpan positions
	largestSizes []int64        // bytes of the largest block in each peakSpan positions
	sums         []stats.Sums   // by position: over the slots before it

	_  [64]byte      // separates fields that each request writes from read-only fields
	at atomic.Uint64 // position, generation and slow

	mu          sync.Mutex // guards the fields below
	gen         uint64
	pos         int
	start       int            // the position at which the generation began
	since       []uint64       // by slot: the generation of its allocation, if it is live from before this generation
	overdue     []overdueBlock // by address
	overdueSums stats.Sums     // of the live ones
	lost        bool
	missed      int              // requests since the stream is lost
	recent      [numRecent]int64 // requests, the last one last
	total       stats.Sums       // in all
	peak        stats.Sums       // since the last count
	finds       int64            // number of times that the position was found again

	largest int64 // bytes of the largest block served since the last count
}

// A sharer is a stream of a streamAllocator.
type sharer struct {
	id     driver.StreamID
	stream driver.Stream // that of the latest request, if there are several sharers
}

// indexOf returns the index of a stream among the sharers.
func (l *streamAllocator) indexOf(s driver.Stream) int {
	id := s.ID()
	return slices.IndexFunc(l.sharers, func(x sharer) bool { return x.id == id })
}

// keyOf returns the size of a request and the index of its stream in one number.
func keyOf(size int64, index int) int64 { return size | int64(index)<<sizeBits }

func (s *Slot) key() int64 { return keyOf(s.Size, s.Stream) }

// sumsOf returns the sums of one slot, for the largest request that it serves.
func (l *streamAllocator) sumsOf(k int) stats.Sums {
	p := &l.slots[k]
	return stats.Block(p.size(), p.minSize+int64(p.sizeRange))
}

// A checkpoint holds the slots that are live by the plan just before a position is served.
type checkpoint struct {
	at    int
	slots []int32
}

const (
	stride   = 512 // positions: see checkpoints
	peakSpan = 64  // and peakLoads
)

// open sets up the allocator of streams, for their part of the region.
func (l *streamAllocator) open(a *Allocator, p *Plan, from *StreamPlan, ids []driver.StreamID, base driver.Pointer) {
	n := len(from.Slots)
	*l = streamAllocator{
		a: a, base: base, end: base + driver.Pointer(from.Size), n: n, loop: from.Loop,
		slots: make([]servedSlot, n+2), until: make([]int32, n), keys: make([]int64, n),
		loads: make([]stats.Sums, n), sums: make([]stats.Sums, n+1),
		since: make([]uint64, n), gen: 1,
	}
	for _, id := range ids {
		l.sharers = append(l.sharers, sharer{id: id})
	}
	if p.Room > 0 {
		l.requested = make([]atomic.Int64, n)
	}
	at := make([][]ending, n+1)
	for i := range from.Slots {
		s := &from.Slots[i]
		l.keys[i] = s.key()
		pl := &l.slots[i]
		*pl = servedSlot{
			ptr: base + driver.Pointer(s.Offset), minSize: p.least(s.Size),
		}
		pl.sizeRange = uint64(p.most(s.Size) - pl.minSize)
		l.sums[i+1] = l.sums[i]
		if s.Offset < 0 {
			continue
		}
		l.until[i] = int32(s.End)
		l.sums[i+1].Add(l.sumsOf(i))
		if end, ok := from.wraps(s); ok {
			l.wraps = append(l.wraps, int32(i))
			at[end] = append(at[end], ending(i)|wrapped)
		} else if s.End <= n {
			at[s.End] = append(at[s.End], ending(i))
		}
	}
	const never, always = 0, 1 // indexes beyond the slots: a mark of no generation, and one of every generation
	l.slots[n+always].freed.Store(math.MaxUint64)
	l.ends = append(l.ends, 0)
	for i := range n + 1 {
		pl, here := &l.slots[i], at[i]
		switch {
		case i == n || l.until[i] == 0:
			pl.first = ending(n + never)
		case len(here) > 0:
			pl.first, here = here[0], here[1:]
		default:
			pl.first = ending(n + always)
		}
		if len(here) > 0 {
			pl.rest = uint32(len(l.ends))
			l.ends = append(append(l.ends, ending(len(here))), here...)
		}
	}
	l.indexLive(at)
	l.index()
}

// indexLive records what is live by the plan: as slots at some positions, and as bytes at all.
func (l *streamAllocator) indexLive(at [][]ending) {
	var load stats.Sums
	l.checkpoints = []checkpoint{{}}
	for i := range l.n {
		if last := &l.checkpoints[len(l.checkpoints)-1]; i-last.at >= max(stride, len(last.slots)) {
			l.checkpoints = append(l.checkpoints, checkpoint{i, slices.Collect(l.planLiveBefore(i))})
		}
		if i == l.loop {
			for _, k := range l.wraps {
				load.Add(l.sumsOf(int(k)))
			}
		}
		for _, e := range at[i] {
			load.Sub(l.sumsOf(e.slot()))
		}
		if l.until[i] > 0 {
			load.Add(l.sumsOf(i))
		}
		l.loads[i] = load
		if i%peakSpan == 0 {
			l.peakLoads, l.largestSizes = append(l.peakLoads, stats.Sums{}), append(l.largestSizes, 0)
		}
		l.peakLoads[i/peakSpan].Max(load)
		l.largestSizes[i/peakSpan] = max(l.largestSizes[i/peakSpan], l.sums[i+1].Bytes-l.sums[i].Bytes)
	}
}

// planLive reports whether a slot is live by the plan just before a position is served, including the slots that end
// there.
func (l *streamAllocator) planLive(k int32, position int) bool {
	end := int(l.until[k])
	switch {
	case end == 0:
		return false
	case int(k) < position:
		return end >= position
	}
	return l.loop >= 0 && position >= l.loop && end > l.n && end != Forever && end-(l.n-l.loop) >= position
}

// planLiveBefore visits the slots before a position that are live there by the plan.
func (l *streamAllocator) planLiveBefore(position int) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		from := &l.checkpoints[sort.Search(len(l.checkpoints), func(i int) bool {
			return l.checkpoints[i].at > position
		})-1]
		for _, k := range from.slots {
			if l.planLive(k, position) && !yield(k) {
				return
			}
		}
		for k := int32(from.at); int(k) < position; k++ {
			if l.planLive(k, position) && !yield(k) {
				return
			}
		}
	}
}

// allPlanLive visits the slots for which planLive is true.
func (l *streamAllocator) allPlanLive(position int) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for k := range l.planLiveBefore(position) {
			if !yield(k) {
				return
			}
		}
		for _, k := range l.wraps {
			if int(k) >= position && l.planLive(k, position) && !yield(k) {
				return
			}
		}
	}
}
