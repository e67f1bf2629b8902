package planned

import (
	"math"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// request serves a request under the stream's mutex, or returns false if the fallback must.
func (l *streamAllocator) request(s driver.Stream, size int64) (mem.Block, bool) {
	l.lock()
	defer l.unlock()
	if l.a.closed.Load() {
		return mem.Block{}, false
	}
	before, key := l.recent[numRecent-1], keyOf(size, l.indexOf(s))
	l.remember(key)
	position, ok := l.findPosition(before, key)
	if !ok {
		l.lost = true
		l.missed++
		return mem.Block{}, false
	}
	if l.lost {
		l.lost, l.missed = false, 0
		l.finds++
	}
	l.jump(position)
	return l.serve(s, size)
}

// findPosition finds the position of a request that followed one before, by their keys. The expected position comes
// first while the stream is not lost; then a match of the recent requests; then, for a lost stream, single requests
// near the position. See Departures in planned.go.
func (l *streamAllocator) findPosition(before, key int64) (position int, ok bool) {
	if l.gen == maxGen {
		return 0, false // no generations left: tags would repeat
	}
	next := l.ahead(0)
	if next >= 0 && !l.lost && l.accepts(next, key) {
		return next, true
	}
	if at, ok := l.findRecent(); ok {
		l.lost = true // so that request counts it as found
		return at, true
	}
	if !l.lost {
		return 0, false
	}
	if l.accepts(next, key) {
		return next, true
	}
	if at := l.ahead(l.missed); l.accepts(at, key) {
		return at, true
	}
	for n := 1; n <= window; n++ {
		if at := l.ahead(n); l.accepts(at, key) && l.accepts(l.ahead(n-1), before) {
			return at, true
		}
	}
	return 0, false
}

// ahead returns the position n positions on, or -1 beyond the end.
func (l *streamAllocator) ahead(n int) int {
	at := l.pos + n
	if at < l.n {
		return at
	}
	if l.loop < 0 || at-l.n >= l.n-l.loop {
		return -1
	}
	return l.loop + at - l.n
}

// accepts reports whether a position serves a request.
func (l *streamAllocator) accepts(position int, key int64) bool {
	if position < 0 || key>>sizeBits != l.keys[position]>>sizeBits {
		return false
	}
	p := &l.slots[position]
	return uint64(key&sizeMask-p.minSize) <= p.sizeRange
}

// A gramAt is a position, with a hash of the requests up to it.
type gramAt struct {
	sum uint64
	at  int32
}

// index builds the search index of the plan. The first positions of the body are listed twice: they follow the end of
// the body and what is before the body.
func (l *streamAllocator) index() {
	var row [minMatch]int64
	add := func(at int) {
		copy(row[:], row[1:])
		row[minMatch-1] = l.keys[at]
		l.grams = append(l.grams, gramAt{gramOf(row), int32(at)})
	}
	for i := range l.n {
		add(i)
	}
	if l.loop >= 0 {
		for i := l.loop; i < min(l.loop+minMatch-1, l.n); i++ {
			add(i)
		}
	}
	slices.SortFunc(l.grams, func(x, y gramAt) int {
		switch {
		case x.sum != y.sum && x.sum < y.sum:
			return -1
		case x.sum != y.sum:
			return 1
		}
		return int(x.at - y.at)
	})
	l.grams = slices.Compact(l.grams)
}

func gramOf(row [minMatch]int64) (sum uint64) {
	for _, key := range row {
		sum = mix(sum, key)
	}
	return sum
}

// mix adds a number to a hash.
func mix(sum uint64, n int64) uint64 {
	sum = (sum ^ uint64(n)) * 0x9e3779b97f4a7c15
	return sum ^ sum>>29
}

// findRecent finds the recent requests in the plan. A match of minMatch requests suffices a few positions on;
// elsewhere the longest match of at least farMatch requests counts. It compares at most maxCompared candidates, from
// the position onwards.
func (l *streamAllocator) findRecent() (position int, ok bool) {
	sum := gramOf([minMatch]int64(l.recent[numRecent-minMatch:]))
	find := func(at int) int {
		return sort.Search(len(l.grams), func(i int) bool {
			g := &l.grams[i]
			return g.sum > sum || g.sum == sum && int(g.at) >= at
		})
	}
	first, last := find(0), find(math.MaxInt)
	from := find(l.pos)
	longest := farMatch - 1
	for i := range min(last-first, maxCompared) {
		at := from + i
		if at >= last {
			at -= last - first
		}
		place := int(l.grams[at].at)
		n := l.matchLength(place)
		if near := place - l.pos; n >= minMatch && near >= 0 && near <= window {
			return place, true
		}
		if n > longest {
			position, longest, ok = place, n, true
		}
	}
	return position, ok
}

// matchLength returns how many of the last requests equal those up to a position. At the body's start it continues at
// the body's end.
func (l *streamAllocator) matchLength(position int) (n int) {
	for n < numRecent && position >= 0 && l.keys[position] == l.recent[numRecent-1-n] {
		n++
		if position == l.loop {
			position = l.n
		}
		position--
	}
	return n
}

// jump makes position the next one to be served. If it is a few positions ahead, the positions between are skipped one
// by one; otherwise a new generation begins.
//
// Before a new generation, each live block is assigned to one of two kinds: it is live by the plan at the new position
// too, and stays a slot's block, with the generation of its allocation in since; or it is overdue. Then the slots that
// are live by the plan but were never served, or were freed, get marks of the new generation, so that the slots that
// end there find them free.
func (l *streamAllocator) jump(position int) {
	if n := position - l.pos; n >= 0 && n <= 4*window {
		for l.pos < position {
			l.markOverdue(l.pos)
			l.skip()
		}
		return
	}
	for k := range l.allPlanLive(l.pos) {
		if !l.live(int(k)) {
			continue
		}
		if gen := l.genOf(int(k)); l.planLive(k, position) {
			l.since[k] = gen
		} else {
			l.setOverdue(int(k))
		}
	}
	kept := l.overdue[:0]
	for _, s := range l.overdue {
		if s.pending || !l.planLive(int32(s.slot), position) {
			kept = append(kept, s)
			continue
		}
		l.since[s.slot] = s.gen
		l.overdueSums.Sub(l.sumsOf(s.slot))
		l.slots[s.slot].freed.And(^uint64(1))
	}
	clear(l.overdue[len(kept):])
	l.overdue = kept
	l.gen++
	l.pos, l.start = position, position
	for k := range l.allPlanLive(position) {
		if m := l.slots[k].freed.Load(); m&1 == 0 && m>>1 >= l.since[k] {
			l.slots[k].freed.Store(l.freedMark(int(k)))
		}
	}
}

// markOverdue makes the blocks overdue that should be free before a position is served, and are not.
func (l *streamAllocator) markOverdue(position int) {
	p := &l.slots[position]
	if k := p.first.slot(); k < l.n {
		l.setOverdue(k)
	}
	for _, e := range l.others(p) {
		l.setOverdue(e.slot())
	}
}

// skip leaves the next position to the fallback. The slot counts as freed.
func (l *streamAllocator) skip() {
	k := l.pos
	l.pos++
	if l.slots[k].freed.Load()&1 == 0 {
		l.slots[k].freed.Store(l.freedMark(k))
	}
}

// serve serves the next position, unless an overdue block is in the way.
func (l *streamAllocator) serve(s driver.Stream, size int64) (mem.Block, bool) {
	k := l.pos
	p := &l.slots[k]
	l.markOverdue(k)
	if l.until[k] == 0 || !l.makeRoom(s, p) {
		l.skip()
		return mem.Block{}, false
	}
	tag := l.gen<<posBits | uint64(k)
	l.pos++
	if len(l.sharers) > 1 {
		l.sharers[l.keys[k]>>sizeBits].stream = s
	}
	if l.requested != nil {
		l.requested[k].Store(-size)
	}
	l.total.Add(stats.Block(p.size(), size))
	l.largest = max(l.largest, p.size())
	load := l.loads[k]
	load.Add(l.overdueSums)
	l.peak.Max(load)
	return mem.Block{Ptr: p.ptr, Size: p.size(), Tag: tag}, true
}
