package planned

import (
	"math"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// request serves a request under the lane's mutex, or says that the fallback must.
func (l *lane) request(s driver.Stream, size int64) (mem.Block, bool) {
	l.lock()
	defer l.unlock()
	if l.a.closed.Load() {
		return mem.Block{}, false
	}
	before := l.recent[memory-1]
	l.push(size)
	position, ok := l.find(before, size)
	if !ok {
		l.lost = true
		l.missed++
		return mem.Block{}, false
	}
	if l.lost {
		l.lost, l.missed = false, 0
		l.finds++
	}
	l.move(position)
	return l.serve(s, size)
}

// find looks for the position of a request that came after one of before bytes.
func (l *lane) find(before, size int64) (position int, ok bool) {
	if l.turn == maxTurn {
		return 0, false // no more turns: tags would come again
	}
	next := l.ahead(0)
	if next >= 0 && !l.lost && l.takes(next, size) {
		return next, true
	}
	if at, ok := l.known(); ok {
		l.lost = true // it counts as found
		return at, true
	}
	if !l.lost {
		return 0, false
	}
	if l.takes(next, size) {
		return next, true
	}
	if at := l.ahead(l.missed); l.takes(at, size) {
		return at, true
	}
	for n := 1; n <= window; n++ {
		if at := l.ahead(n); l.takes(at, size) && l.takes(l.ahead(n-1), before) {
			return at, true
		}
	}
	return 0, false
}

// ahead is n positions on, or -1.
func (l *lane) ahead(n int) int {
	at := l.pos + n
	if at < l.n {
		return at
	}
	if l.loop < 0 || at-l.n >= l.n-l.loop {
		return -1
	}
	return l.loop + at - l.n
}

func (l *lane) takes(position int, size int64) bool {
	if position < 0 {
		return false
	}
	p := &l.places[position]
	return uint64(size-p.least) <= p.span
}

// A gramAt is a position, by the sizes up to there.
type gramAt struct {
	sum uint64
	at  int32
}

// index notes where requests can be found. Where the body begins it comes after both its end and what is before it.
func (l *lane) index() {
	var row [recall]int64
	add := func(at int) {
		copy(row[:], row[1:])
		row[recall-1] = l.sizes[at]
		l.grams = append(l.grams, gramAt{gramOf(row), int32(at)})
	}
	for i := range l.n {
		add(i)
	}
	if l.loop >= 0 {
		for i := l.loop; i < min(l.loop+recall-1, l.n); i++ {
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

func gramOf(row [recall]int64) (sum uint64) {
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

// known finds where the last requests stand in the plan: a few positions on, or where most of them do.
func (l *lane) known() (position int, ok bool) {
	sum := gramOf([recall]int64(l.recent[memory-recall:]))
	find := func(at int) int {
		return sort.Search(len(l.grams), func(i int) bool {
			g := &l.grams[i]
			return g.sum > sum || g.sum == sum && int(g.at) >= at
		})
	}
	first, last := find(0), find(math.MaxInt)
	from := find(l.pos)
	longest := sure - 1
	for i := range min(last-first, looks) {
		at := from + i
		if at >= last {
			at -= last - first
		}
		place := int(l.grams[at].at)
		n := l.common(place)
		if near := place - l.pos; n >= recall && near >= 0 && near <= window {
			return place, true
		}
		if n > longest {
			position, longest, ok = place, n, true
		}
	}
	return position, ok
}

// common is how many of the last requests are those up to a position.
func (l *lane) common(position int) (n int) {
	for n < memory && position >= 0 && l.sizes[position] == l.recent[memory-1-n] {
		n++
		if position == l.loop {
			position = l.n
		}
		position--
	}
	return n
}

// move makes position the next to be served. A few positions are passed; else a new turn begins.
func (l *lane) move(position int) {
	if n := position - l.pos; n >= 0 && n <= 4*window {
		for l.pos < position {
			l.expire(l.pos)
			l.pass()
		}
		return
	}
	for k := range l.planned(l.pos) {
		if !l.live(int(k)) {
			continue
		}
		if turn := l.turnOf(int(k)); l.loan(k, position) {
			l.since[k] = turn
		} else {
			l.stray(int(k))
		}
	}
	kept := l.strays[:0]
	for _, s := range l.strays {
		if s.pending || !l.loan(int32(s.slot), position) {
			kept = append(kept, s)
			continue
		}
		l.since[s.slot] = s.turn
		l.astray.sub(l.sumsOf(s.slot))
		l.places[s.slot].mark.And(^uint64(1))
	}
	clear(l.strays[len(kept):])
	l.strays = kept
	l.turn++
	l.pos, l.start = position, position
	for k := range l.planned(position) {
		if m := l.places[k].mark.Load(); m&1 == 0 && m>>1 >= l.since[k] {
			l.places[k].mark.Store(l.passed(int(k)))
		}
	}
}

// expire makes strays of the slots that should be free before a position is served, and are not.
func (l *lane) expire(position int) {
	p := &l.places[position]
	if k := p.first.slot(); k < l.n {
		l.stray(k)
	}
	for _, e := range l.others(p) {
		l.stray(e.slot())
	}
}

// pass leaves the next position to the fallback.
func (l *lane) pass() {
	k := l.pos
	l.pos++
	if m := l.places[k].mark.Load(); m&1 == 0 && l.until[k] > 0 {
		l.places[k].mark.Store(l.passed(k))
	}
}

// serve serves the next position, unless something is in the way.
func (l *lane) serve(s driver.Stream, size int64) (mem.Block, bool) {
	k := l.pos
	p := &l.places[k]
	l.expire(k)
	if l.until[k] == 0 || !l.clear(s, p) {
		l.pass()
		return mem.Block{}, false
	}
	tag := l.turn<<posBits | uint64(k)
	l.pos++
	if l.asked != nil {
		l.asked[k].Store(-size)
	}
	l.served.add(sums{1, p.size(), size})
	l.largest = max(l.largest, p.size())
	load := l.loads[k]
	load.add(l.astray)
	l.peak.max(load)
	return mem.Block{Ptr: p.ptr, Size: p.size(), Tag: tag}, true
}
