package trace

import (
	"cmp"
	"math"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Lifetimes are those of the blocks of a recording, in the order of their allocations, the older ones first: 8 bytes
// for each block and about one for each event, besides the events. They do not change, and may be used by several
// goroutines.
type Lifetimes struct {
	Streams []uint64     // handles, ascending; Lifetime.Stream indexes it
	Pools   []mem.PoolID // Lifetime.Pool indexes it; Pools[0] is the default pool

	Prelude   Prelude   // as in Program
	Anomalies Anomalies // as in Program

	changes Changes
	trace   *Trace
	spans   []spanPiece // all but the last of spanBlocks blocks
	n       int         // blocks
	events  int
	odd     map[int32]*Lifetime    // blocks of which the events do not tell all
	streams []uint32               // index in Streams of each of Trace.Streams; nil if the same
	poolOf  func(entry int) uint16 // nil if the events have their pools
}

// A blockSpan has the events of a block.
type blockSpan struct{ start, end int32 }

// A spanPiece has the spans of some blocks. A list of pieces grows without copying.
type spanPiece struct {
	spans  []blockSpan
	delays []int32 // from Freed to End, or delayOdd; nil if all are as usual
}

// spanBlocks is the number of blocks in a piece.
const spanBlocks = 1 << 14

// usualDelay is that of blocks whose free and its completion are successive events, and of blocks that were not freed.
func (s *blockSpan) usualDelay(events int) int32 {
	if s.end < 0 || int(s.end) >= events {
		return 0
	}
	return 1
}

// delayOdd marks a block that is in Lifetimes.odd.
const delayOdd = math.MaxInt32

// span returns the events of a block.
func (l *Lifetimes) span(i int) *blockSpan {
	return &l.spans[uint(i)/spanBlocks].spans[uint(i)%spanBlocks]
}

// delay returns the events from the Freed of a block to its End, or delayOdd.
func (l *Lifetimes) delay(i int) int32 {
	p := &l.spans[uint(i)/spanBlocks]
	if p.delays != nil {
		return p.delays[uint(i)%spanBlocks]
	}
	return p.spans[uint(i)%spanBlocks].usualDelay(l.events)
}

// setDelay sets the delay of a block that has its end.
func (l *Lifetimes) setDelay(i int, delay int32) {
	p := &l.spans[uint(i)/spanBlocks]
	if p.delays == nil {
		if delay == p.spans[uint(i)%spanBlocks].usualDelay(l.events) {
			return
		}
		p.delays = make([]int32, len(p.spans), cap(p.spans))
		for k := range p.spans {
			p.delays[k] = p.spans[k].usualDelay(l.events)
		}
	}
	p.delays[uint(i)%spanBlocks] = delay
}

// A Lifetime is that of one block. The block is active after the events Start to End-1.
type Lifetime struct {
	Ptr  driver.Pointer
	Size int64 // requested bytes

	// Start is the event that allocated the block, if Recorded is set. Otherwise the block existed before the event
	// Start+1, without a record of its allocation: it is older than the recording (-1), or recording was off when it
	// was allocated.
	Start int32

	Freed int32 // the event that requested its free; Trace.Len() if there is none, -1 if it is older than the recording
	End   int32 // the event that made its memory available again; Trace.Len() if it was still active at the end

	Stack    StackID // where it was allocated; 0 if unknown
	Tag      uint32  // the user's text for the allocation, as an index into Trace.Metadata
	Stream   uint32  // index into Lifetimes.Streams
	Pool     uint16  // index into Lifetimes.Pools
	Recorded bool    // the recording has its allocation
}

// ActiveAt reports whether the block is active after an event.
func (b *Lifetime) ActiveAt(event int) bool { return int(b.Start) <= event && event < int(b.End) }

// Changes returns the changes of the requested bytes of the active blocks.
func (l *Lifetimes) Changes() *Changes { return &l.changes }

// Len returns the number of blocks.
func (l *Lifetimes) Len() int { return l.n }

// Start returns Lifetime.Start of a block.
func (l *Lifetimes) Start(i int) int { return int(l.span(i).start) }

// End returns Lifetime.End of a block.
func (l *Lifetimes) End(i int) int { return int(l.span(i).end) }

// ActiveAt reports whether a block is active after an event.
func (l *Lifetimes) ActiveAt(i, event int) bool {
	s := l.span(i)
	return int(s.start) <= event && event < int(s.end)
}

// Since returns the first block that starts after an event, or Len().
func (l *Lifetimes) Since(event int) int {
	return sort.Search(l.n, func(i int) bool { return l.Start(i) > event })
}

// oddAt returns a block if it is in odd, or nil.
func (l *Lifetimes) oddAt(i int) *Lifetime {
	if l.delay(i) != delayOdd {
		return nil
	}
	return l.odd[int32(i)]
}

// Size returns Lifetime.Size of a block.
func (l *Lifetimes) Size(i int) int64 {
	if odd := l.oddAt(i); odd != nil && !odd.Recorded {
		return odd.Size
	}
	if l.trace.Columns != nil {
		return l.trace.Columns.Size(int(l.span(i).start))
	}
	return l.trace.Events[l.span(i).start].Size
}

// Ptr returns Lifetime.Ptr of a block.
func (l *Lifetimes) Ptr(i int) driver.Pointer {
	if odd := l.oddAt(i); odd != nil && !odd.Recorded {
		return odd.Ptr
	}
	return l.trace.ptr(int(l.span(i).start))
}

// At returns the lifetime of a block. A LifetimesReader is quicker for successive ones.
func (l *Lifetimes) At(i int) Lifetime {
	odd := l.oddAt(i)
	if odd != nil && !odd.Recorded {
		return *odd
	}
	e := l.trace.At(int(l.span(i).start))
	return l.recorded(i, &e, odd)
}

// recorded returns the lifetime of a block that an event allocated.
func (l *Lifetimes) recorded(i int, e *Event, odd *Lifetime) Lifetime {
	s := l.span(i)
	b := Lifetime{
		Ptr: e.Ptr, Size: e.Size, Start: s.start, End: s.end, Stack: e.Stack, Tag: e.Metadata, Stream: e.Stream,
		Pool: e.Pool, Recorded: true,
	}
	b.Freed = b.End - l.delay(i)
	if odd != nil {
		b.Freed, b.Stack = odd.Freed, cmp.Or(b.Stack, odd.Stack)
	}
	if l.streams != nil {
		b.Stream = l.streams[e.Stream]
	}
	if !l.trace.PoolsKnown {
		b.Pool = 0
	}
	if l.poolOf != nil {
		b.Pool = l.poolOf(int(b.Start))
	}
	return b
}

// Unrecorded returns the number of blocks whose allocation the recording lacks.
func (l *Lifetimes) Unrecorded() (n int) {
	for _, b := range l.odd {
		if !b.Recorded {
			n++
		}
	}
	return n
}
