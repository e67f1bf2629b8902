package planned

import (
	"runtime"

	"github.com/ashlar-go/ashlar/mem"
)

// others are what ends before a place is served, but for the first.
func (l *lane) others(p *place) []ending {
	if p.rest == 0 {
		return nil
	}
	return l.ends[p.rest+1:][:l.ends[p.rest]]
}

// over reports whether the rest of what ends before a place is served is free, as of this turn.
func (l *lane) over(p *place, turn uint64) bool {
	for _, e := range l.others(p) {
		if !l.ended(e, turn) {
			return false
		}
	}
	return true
}

// ended reports whether a slot is free, as of this turn.
func (l *lane) ended(e ending, turn uint64) bool {
	return l.places[e.slot()].mark.Load()>>1 >= turn-e.early()
}

// freed frees a live block that is no stray.
func (l *lane) freed(b mem.Block) bool {
	k, turn := int(b.Tag&posMask), b.Tag>>posBits
	if k >= len(l.places) {
		return false
	}
	p := &l.places[k]
	m := p.mark.Load()
	w := l.at.Load()
	now := w &^ slow >> posBits
	if p.ptr != b.Ptr || p.size() != b.Size || m&1 != 0 || m>>1 >= turn || turn > now {
		return false
	}
	if k >= int(w&posMask) {
		now--
	}
	return p.mark.CompareAndSwap(m, now<<1)
}

// lock takes the lane's mutex, and sends every request there.
func (l *lane) lock() {
	l.mu.Lock()
	if w := l.at.Or(slow); int64(w) >= 0 {
		l.catchUp(int(w & posMask))
	}
}

// unlock lets requests be served without the mutex, if nothing is in the way.
func (l *lane) unlock() {
	w := l.turn<<posBits | uint64(l.pos)
	if l.lost || len(l.strays) > 0 || l.a.closed.Load() {
		w |= slow
	}
	l.check()
	l.at.Store(w)
	l.mu.Unlock()
}

// catchUp counts what was served without the mutex.
func (l *lane) catchUp(pos int) {
	if pos == l.pos {
		return
	}
	l.served.add(l.sums[pos])
	l.served.sub(l.sums[l.pos])
	for i := l.pos; i < pos; {
		if next := min(i+top, l.n); i%top == 0 && next <= pos {
			l.peak.max(l.tops[i/top])
			l.largest = max(l.largest, l.wides[i/top])
			i = next
			continue
		}
		l.peak.max(l.loads[i])
		l.largest = max(l.largest, l.sums[i+1].bytes-l.sums[i].bytes)
		i++
	}
	if l.asked != nil {
		for i := l.pos; i < pos; i++ {
			if l.until[i] > 0 {
				l.served.asked += l.counted(i) - l.sumsOf(i).asked
			}
		}
	}
	for i := max(l.pos, pos-memory); i < pos; i++ {
		l.push(l.sizes[i])
	}
	l.pos = pos
}

// counted is what was asked for of a slot that was served without the mutex, and now is counted. Who moved the position may not have
// noted it yet, and does so next.
func (l *lane) counted(k int) int64 {
	for {
		if size := l.asked[k].Load(); size > 0 {
			l.asked[k].Store(-size)
			return size
		}
		runtime.Gosched()
	}
}

// push remembers a request.
func (l *lane) push(size int64) {
	copy(l.recent[:], l.recent[1:])
	l.recent[memory-1] = size
}

// turnOf is the turn in which a slot was served last, if it is on loan.
func (l *lane) turnOf(k int) uint64 {
	if l.start <= k && k < l.pos {
		return l.turn
	}
	return l.since[k]
}

// live reports whether a slot's block is on loan, and no stray.
func (l *lane) live(k int) bool {
	m := l.places[k].mark.Load()
	return m&1 == 0 && m>>1 < l.turnOf(k)
}

// passed is the mark of a slot that is free.
func (l *lane) passed(k int) uint64 {
	if k >= l.pos {
		return (l.turn - 1) << 1
	}
	return l.turn << 1
}
