package trace

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// Lifetimes derives the lifetimes of all blocks, as ToProgram derives the requests: each block of the program is one.
func (t *Trace) Lifetimes(opts ProgramOptions) (*Lifetimes, error) {
	c := newConverter(t, opts)
	c.lives = newLifetimes()
	if err := c.convert(); err != nil {
		return nil, err
	}
	return c.lifetimes(), nil
}

func newLifetimes() *Lifetimes { return &Lifetimes{odd: map[int32]*Lifetime{}, events: endOpen} }

// lifetimes completes the lifetimes.
func (c *converter) lifetimes() *Lifetimes {
	l, t, opts := c.lives, c.t, &c.opts
	l.trace = t
	l.Streams, l.Pools, l.streams = c.handles, c.p.Pools, c.streams
	l.Prelude, l.Anomalies = c.p.Prelude, c.p.Anomalies
	if !t.PoolsKnown && opts.PoolOf != nil {
		l.poolOf = func(entry int) uint16 { return uint16(max(0, slices.Index(l.Pools, opts.PoolOf(entry)))) }
	}
	l.grow(uint32(c.p.Blocks))
	l.finish()
	l.survivors(opts.Live, c.p.Survivors)
	l.sort()
	return l
}

// While lifetimes are derived, events is endOpen, and their index is the number of the block. The end of a block that
// is active is endOpen, and that of a block whose free was requested at an event is -2-event.
const endOpen = math.MaxInt32

// grow adds blocks up to a number.
func (l *Lifetimes) grow(n uint32) {
	for ; uint32(l.n) < n; l.n++ {
		if l.n%spanBlocks == 0 {
			size := spanBlocks
			if l.n == 0 {
				size = 0 // few blocks take little memory
			}
			l.spans = append(l.spans, spanPiece{spans: make([]blockSpan, 0, size)})
		}
		last := &l.spans[len(l.spans)-1]
		if last.spans = append(last.spans, blockSpan{start: -1, end: endOpen}); last.delays != nil {
			last.delays = append(last.delays, 0)
		}
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
		l.span(int(op.Block)).start = entry
		l.changes.add(int(entry), op.Size)
	case OpFree:
		l.span(int(op.Block)).end = entry
		l.setFreed(int32(op.Block), entry)
	case OpFreeDeferred:
		l.span(int(op.Block)).end = -2 - entry
	case OpComplete:
		l.complete(op.Block, entry)
	}
}

// free ends a block of some bytes whose free was requested at an event and completed at the next one. It is active up
// to that.
func (l *Lifetimes) free(block uint32, size int64, event int32) {
	l.grow(block + 1)
	l.changes.add(int(event)+1, -size)
	l.span(int(block)).end = event + 1
	l.setFreed(int32(block), event)
}

// complete ends a block.
func (l *Lifetimes) complete(block uint32, event int32) {
	freed, s := event, l.span(int(block))
	if s.end < -1 {
		freed = min(-2-s.end, event)
	}
	s.end = event
	l.setFreed(int32(block), freed)
}

// setFreed sets the event that requested the free of a block that has its end. A block in l.odd has it already.
func (l *Lifetimes) setFreed(block, freed int32) {
	if l.delay(int(block)) != delayOdd {
		l.setDelay(int(block), l.span(int(block)).end-freed)
	}
}

// oddly returns the block in l.odd.
func (l *Lifetimes) oddly(block int32) *Lifetime {
	b := l.odd[block]
	if b == nil {
		s := l.span(int(block))
		b = &Lifetime{Start: s.start, Freed: s.end - l.delay(int(block)), Recorded: true}
		if s.end < -1 {
			b.Freed = -2 - s.end
		}
		l.odd[block] = b
		l.setDelay(int(block), delayOdd)
	}
	return b
}

// unseen applies an op that no entry shows, but took effect with an event.
func (l *Lifetimes) unseen(event int32, op unseenOp) {
	l.grow(op.Block + 1)
	switch op.Kind {
	case OpAlloc:
		l.changes.add(int(event), op.bytes)
		b := l.oddly(int32(op.Block))
		*b = Lifetime{
			Ptr: op.ptr, Size: op.Size, Start: event, Freed: b.Freed, Stream: op.Stream, Pool: op.Pool,
		}
		l.span(int(op.Block)).start = event
	case OpFree:
		l.changes.add(int(event), -op.bytes)
		l.span(int(op.Block)).end = event
		l.setFreed(int32(op.Block), event)
	case OpFreeDeferred:
		l.oddly(int32(op.Block)).Freed = event
	case OpComplete:
		l.changes.add(int(event), -op.bytes)
		l.complete(op.Block, event)
	}
}

// finish ends the blocks that are active at the end.
func (l *Lifetimes) finish() {
	n := int32(l.trace.Len())
	l.events = int(n)
	l.changes.finish(l.events)
	for i := range l.n {
		s := l.span(i)
		end := s.end
		if end >= -1 && end != endOpen {
			continue
		}
		s.end = n
		if end < -1 {
			l.setFreed(int32(i), -2-end)
		} else if b := l.odd[int32(i)]; b != nil && b.Freed > n {
			b.Freed = n
		}
	}
	for i, b := range l.odd {
		b.End = l.span(int(i)).end
	}
}

// survivors completes blocks that are active in the final state.
func (l *Lifetimes) survivors(live []LiveBlock, blocks []uint32) {
	for i, n := range blocks {
		if live[i].Stack == 0 {
			continue
		}
		b := l.odd[int32(n)]
		if b == nil && l.trace.At(l.Start(int(n))).Stack != 0 {
			continue
		}
		b = l.oddly(int32(n))
		b.End = l.span(int(n)).end
		b.Stack = live[i].Stack
	}
}

// move sets the events of a block to those of another one.
func (l *Lifetimes) move(to, from int) {
	delay := l.delay(from)
	*l.span(to) = *l.span(from)
	l.setDelay(to, delay)
}

// sort orders the blocks, whose numbers become their indices. Those that were recorded are in order already.
func (l *Lifetimes) sort() {
	type placed struct {
		number int32
		b      *Lifetime
		before int // recorded blocks
	}
	var others []placed
	for n, b := range l.odd {
		if !b.Recorded {
			others = append(others, placed{number: n, b: b})
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
	slices.SortStableFunc(others, func(a, b placed) int { return cmp.Compare(a.b.Start, b.b.Start) })
	// The recorded ones move to the front, and then, from the last one on, behind the others that precede them.
	at := 0
	for i, k := 0, 0; i < l.n; i++ {
		if k < len(numbers) && int(numbers[k]) == i {
			k++
			continue
		}
		l.move(at, i)
		at++
	}
	for i := range others { // of those that start together, the recorded ones come first
		others[i].before = sort.Search(at, func(n int) bool { return l.span(n).start > others[i].b.Start })
	}
	odd := make(map[int32]*Lifetime, len(l.odd))
	for n, b := range l.odd {
		if b.Recorded {
			k, _ := slices.BinarySearch(numbers, n)
			rank := int(n) - k // among the recorded ones
			odd[int32(rank+sort.Search(len(others), func(j int) bool { return others[j].before > rank }))] = b
		}
	}
	to := l.n
	for i, x := range slices.Backward(others) {
		for ; at > x.before; at-- {
			to--
			l.move(to, at-1)
		}
		to--
		*l.span(to) = blockSpan{x.b.Start, x.b.End}
		l.setDelay(to, delayOdd)
		odd[int32(to)] = others[i].b
	}
	l.odd = odd
}
