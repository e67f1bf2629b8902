package planned

import (
	"math"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// request serves a request under the lane's mutex, or says that the fallback must.
func (l *streamAllocator) request(s driver.Stream, size int64) (mem.Block, bool) {
	l.lock()
	defer l.unlock()
	if l.a.closed.Load() {
		return mem.Block{}, false
	}
	before := l.recent[numRecent-1]
	l.remember(size)
	position, ok := l.findPosition(before, size)
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

// findPosition looks for the position of a request that came after one of before bytes.
func (l *streamAllocator) findPosition(before, size int64) (position int, ok bool) {
	if l.gen == maxGen {
		return 0, false // no more turns: tags would come again
	}
	next := l.ahead(0)
	if next >= 0 && !l.lost && l.accepts(next, size) {
		return next, true
	}
	if at, ok := l.findRecent(); ok {
		l.lost = true // it counts as found
		return at, true
	}
	if !l.lost {
		return 0, false
	}
	if l.accepts(next, size) {
		return next, true
	}
	if at := l.ahead(l.missed); l.accepts(at, size) {
		return at, true
	}
	for n := 1; n <= window; n++ {
		if at := l.ahead(n); l.accepts(at, size) && l.accepts(l.ahead(n-1), before) {
			return at, true
		}
	}
	return 0, false
}

// ahead is n positions on, or -1.
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

func (l *streamAllocator) accepts(position int, size int64) bool {
	if position < 0 {
		return false
	}
	p := &l.slots[position]
	return uint64(size-p.minSize) <= p.sizeRange
}

// A gramAt is a position, by the sizes up to there.
type gramAt struct {
	sum uint64
	at  int32
}

// index notes where requests can be found. Where the body begins it comes after both its end and what is before it.
func (l *streamAllocator) index() {
	var row [minMatch]int64
	add := func(at int) {
		copy(row[:], row[1:])
		row[minMatch-1] = l.sizes[at]
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
	for _, size := range row {
		sum = mix(sum, size)
	}
	return sum
}

// mix joins a number to a sum of others.
func mix(sum uint64, n int64) uint64 {
	sum = (sum ^ uint64(n)) * 0x9e3779b97f4a7c15
	return sum ^ sum>>29
}

// findRecent finds where the last requests stand in the plan: a few positions on, or where most of them do.
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

// matchLength is how many of the last requests are those up to a position.
func (l *streamAllocator) matchLength(position int) (n int) {
	for n < numRecent && position >= 0 && l.sizes[position] == l.recent[numRecent-1-n] {
		n++
		if position == l.loop {
			position = l.n
		}
		position--
	}
	return n
}

// jump makes position the next to be served. A few positions are passed; else a new turn begins.
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
		if turn := l.genOf(int(k)); l.planLive(k, position) {
			l.since[k] = turn
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
		l.overdueSums.sub(l.sumsOf(s.slot))
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

// markOverdue makes strays of the slots that should be free before a position is served, and are not.
func (l *streamAllocator) markOverdue(position int) {
	p := &l.slots[position]
	if k := p.first.slot(); k < l.n {
		l.setOverdue(k)
	}
	for _, e := range l.others(p) {
		l.setOverdue(e.slot())
	}
}

// skip leaves the next position to the fallback.
func (l *streamAllocator) skip() {
	k := l.pos
	l.pos++
	if m := l.slots[k].freed.Load(); m&1 == 0 && l.until[k] > 0 {
		l.slots[k].freed.Store(l.freedMark(k))
	}
}

// serve serves the next position, unless something is in the way.
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
	if l.requested != nil {
		l.requested[k].Store(-size)
	}
	l.total.add(sums{1, p.size(), size})
	l.largest = max(l.largest, p.size())
	load := l.loads[k]
	load.add(l.overdueSums)
	l.peak.max(load)
	return mem.Block{Ptr: p.ptr, Size: p.size(), Tag: tag}, true
}
