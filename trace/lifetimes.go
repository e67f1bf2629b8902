package trace

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Lifetimes are those of the blocks of a recording, in the order of their allocations, the older ones first: 10 bytes for
// each block, besides the events. They do not change, and may be used by several goroutines.
type Lifetimes struct {
	Streams []uint64     // handles, ascending; Lifetime.Stream indexes it
	Pools   []mem.PoolID // Lifetime.Pool indexes it; Pools[0] is the default pool

	trace   *Trace
	start   []int32
	end     []int32
	delay   []uint16               // from Freed to End, or delayOdd
	odd     map[int32]*Lifetime    // blocks of which the events do not tell all
	streams []uint32               // index in Streams of each of Trace.Streams; nil if the same
	poolOf  func(entry int) uint16 // nil if the events have their pools
}

// delayOdd in Lifetimes.delay marks a block that is in Lifetimes.odd.
const delayOdd = math.MaxUint16

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

// Lifetimes derives the lifetimes of all blocks, as ToProgram derives the requests: each block of the program is one.
func (t *Trace) Lifetimes(opts ProgramOptions) (*Lifetimes, error) {
	c := newConverter(t, opts)
	l := &Lifetimes{trace: t, odd: map[int32]*Lifetime{}}
	c.lives = l
	if err := c.convert(); err != nil {
		return nil, err
	}
	l.Streams, l.Pools, l.streams = c.handles, c.p.Pools, c.streams
	if !t.PoolsKnown && opts.PoolOf != nil {
		l.poolOf = func(entry int) uint16 { return uint16(max(0, slices.Index(l.Pools, opts.PoolOf(entry)))) }
	}
	l.grow(uint32(c.p.Blocks))
	l.finish()
	l.survivors(opts.Live, c.p.Survivors)
	l.sort()
	return l, nil
}

// room allocates memory for the blocks that are allocated and some others.
func (l *Lifetimes) room(allocs, live int) {
	n := allocs + live
	l.start, l.end, l.delay = make([]int32, 0, n), make([]int32, 0, n), make([]uint16, 0, n)
}

// While lifetimes are derived, their index is the number of the block. The end of a block that is active is endOpen, and
// that of a block whose free was requested at an event is -2-event.
const endOpen = math.MaxInt32

// grow adds blocks up to a number.
func (l *Lifetimes) grow(n uint32) {
	for uint32(len(l.start)) < n {
		l.start, l.end, l.delay = append(l.start, -1), append(l.end, endOpen), append(l.delay, 0)
	}
}

// request applies an op of an entry.
func (l *Lifetimes) request(entry int32, op Op) {
	if op.Kind == OpEmptyCache || op.Kind == OpTry {
		return
	}
	l.grow(op.Block + 1)
	switch op.Kind {
	case OpAlloc:
		l.start[op.Block] = entry
	case OpFree:
		l.end[op.Block] = entry
		l.setFreed(int32(op.Block), entry)
	case OpFreeDeferred:
		l.end[op.Block] = -2 - entry
	case OpComplete:
		l.complete(op.Block, entry)
	}
}

// extend lets a freed block be active up to the completion that follows its free.
func (l *Lifetimes) extend(block uint32) {
	l.end[block]++
	if l.delay[block] != delayOdd {
		l.delay[block]++
	}
}

// complete ends a block.
func (l *Lifetimes) complete(block uint32, event int32) {
	freed := event
	if l.end[block] < -1 {
		freed = min(-2-l.end[block], event)
	}
	l.end[block] = event
	l.setFreed(int32(block), freed)
}

// setFreed sets the event that requested the free of a block that has its end.
func (l *Lifetimes) setFreed(block, freed int32) {
	if delay := l.end[block] - freed; delay < delayOdd && l.delay[block] != delayOdd {
		l.delay[block] = uint16(delay)
		return
	}
	l.oddly(block).Freed = freed
}

// oddly returns the block in l.odd.
func (l *Lifetimes) oddly(block int32) *Lifetime {
	b := l.odd[block]
	if b == nil {
		b = &Lifetime{Start: l.start[block], Recorded: true}
		l.odd[block] = b
		if b.Freed = l.end[block] - int32(l.delay[block]); l.end[block] < -1 {
			b.Freed = -2 - l.end[block]
		}
		l.delay[block] = delayOdd
	}
	return b
}

// unseen applies an op that no entry shows, but took effect with an event.
func (l *Lifetimes) unseen(event int32, op unseenOp) {
	l.grow(op.Block + 1)
	switch op.Kind {
	case OpAlloc:
		b := l.oddly(int32(op.Block))
		*b = Lifetime{
			Ptr: op.ptr, Size: op.Size, Start: event, Freed: b.Freed, Stream: op.Stream, Pool: op.Pool,
		}
		l.start[op.Block] = event
	case OpFree:
		l.end[op.Block] = event
		l.setFreed(int32(op.Block), event)
	case OpFreeDeferred:
		l.oddly(int32(op.Block)).Freed = event
	case OpComplete:
		l.complete(op.Block, event)
	}
}

// finish ends the blocks that are active at the end.
func (l *Lifetimes) finish() {
	n := int32(l.trace.Len())
	for i, end := range l.end {
		if end >= -1 && end != endOpen {
			continue
		}
		l.end[i] = n
		if end < -1 {
			l.setFreed(int32(i), -2-end)
		} else if b := l.odd[int32(i)]; b != nil && b.Freed > n {
			b.Freed = n
		}
	}
	for i, b := range l.odd {
		b.End = l.end[i]
	}
}

// survivors completes blocks that are active in the final state.
func (l *Lifetimes) survivors(live []LiveBlock, blocks []uint32) {
	for i, n := range blocks {
		if live[i].Stack == 0 {
			continue
		}
		b := l.odd[int32(n)]
		if b == nil && l.trace.At(int(l.start[n])).Stack != 0 {
			continue
		}
		b = l.oddly(int32(n))
		b.End = l.end[n]
		b.Stack = live[i].Stack
	}
}

// sort orders the blocks, whose numbers become their indices. Those that were recorded are in order already.
func (l *Lifetimes) sort() {
	type placed struct {
		number, start, end int32
		b                  *Lifetime
	}
	var others []placed
	for n, b := range l.odd {
		if !b.Recorded {
			others = append(others, placed{n, l.start[n], l.end[n], b})
		}
	}
	if len(others) == 0 {
		return
	}
	slices.SortFunc(others, func(a, b placed) int { return cmp.Compare(a.number, b.number) })
	numbers := make([]int32, len(others)) // ascending
	for i, x := range others {
		numbers[i] = x.number
	}
	slices.SortStableFunc(others, func(a, b placed) int { return cmp.Compare(a.start, b.start) })
	// The recorded ones move to the front, and then, from the last one on, behind the others that precede them.
	at := 0
	for i, k := 0, 0; i < len(l.start); i++ {
		if k < len(numbers) && int(numbers[k]) == i {
			k++
			continue
		}
		l.start[at], l.end[at], l.delay[at] = l.start[i], l.end[i], l.delay[i]
		at++
	}
	odd := make(map[int32]*Lifetime, len(l.odd))
	before := make([]int32, len(others)) // the number of recorded blocks before each of the others
	for i, x := range others {
		recorded := l.start[:at]
		n, _ := slices.BinarySearchFunc(recorded, x.start, func(a, b int32) int {
			if a <= b { // of those that start together, the recorded ones come first
				return -1
			}
			return 1
		})
		before[i] = int32(n)
	}
	for n, b := range l.odd {
		if b.Recorded {
			k, _ := slices.BinarySearch(numbers, n)
			rank := n - int32(k) // among the recorded ones
			j, _ := slices.BinarySearch(before, rank+1)
			odd[rank+int32(j)] = b
		}
	}
	to := len(l.start)
	for i := len(others) - 1; i >= 0; i-- {
		moved := at - int(before[i])
		to -= moved
		at -= moved
		copy(l.start[to:], l.start[at:at+moved])
		copy(l.end[to:], l.end[at:at+moved])
		copy(l.delay[to:], l.delay[at:at+moved])
		to--
		l.start[to], l.end[to], l.delay[to] = others[i].start, others[i].end, delayOdd
		odd[int32(to)] = others[i].b
	}
	l.odd = odd
}

// Len returns the number of blocks.
func (l *Lifetimes) Len() int { return len(l.start) }

// Start returns Lifetime.Start of a block.
func (l *Lifetimes) Start(i int) int { return int(l.start[i]) }

// End returns Lifetime.End of a block.
func (l *Lifetimes) End(i int) int { return int(l.end[i]) }

// ActiveAt reports whether a block is active after an event.
func (l *Lifetimes) ActiveAt(i, event int) bool { return l.Start(i) <= event && event < l.End(i) }

// Since returns the first block that starts after an event, or Len().
func (l *Lifetimes) Since(event int) int {
	return sort.Search(len(l.start), func(i int) bool { return int(l.start[i]) > event })
}

// Size returns Lifetime.Size of a block.
func (l *Lifetimes) Size(i int) int64 {
	if l.delay[i] == delayOdd {
		if b := l.odd[int32(i)]; !b.Recorded {
			return b.Size
		}
	}
	if l.trace.Columns != nil {
		return l.trace.Columns.Size(int(l.start[i]))
	}
	return l.trace.Events[l.start[i]].Size
}

// Ptr returns Lifetime.Ptr of a block.
func (l *Lifetimes) Ptr(i int) driver.Pointer {
	if l.delay[i] == delayOdd {
		if b := l.odd[int32(i)]; !b.Recorded {
			return b.Ptr
		}
	}
	return l.trace.ptr(int(l.start[i]))
}

// At returns the lifetime of a block.
func (l *Lifetimes) At(i int) Lifetime {
	var odd *Lifetime
	if l.delay[i] == delayOdd {
		if odd = l.odd[int32(i)]; !odd.Recorded {
			return *odd
		}
	}
	e := l.trace.At(int(l.start[i]))
	return l.recorded(i, &e, odd)
}

// recorded returns the lifetime of a block that an event allocated.
func (l *Lifetimes) recorded(i int, e *Event, odd *Lifetime) Lifetime {
	b := Lifetime{
		Ptr: e.Ptr, Size: e.Size, Start: l.start[i], End: l.end[i], Stack: e.Stack, Tag: e.Metadata, Stream: e.Stream,
		Pool: e.Pool, Recorded: true,
	}
	b.Freed = b.End - int32(l.delay[i])
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
