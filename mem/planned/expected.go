package planned

import (
	"runtime"

	"github.com/ashlar-go/ashlar/mem"
)

// others returns the slots that end before a slot is served, except the first.
func (l *streamAllocator) others(p *servedSlot) []ending {
	if p.rest == 0 {
		return nil
	}
	return l.ends[p.rest+1:][:l.ends[p.rest]]
}

// othersFree reports whether the slots of others are free, as of this generation.
func (l *streamAllocator) othersFree(p *servedSlot, gen uint64) bool {
	for _, e := range l.others(p) {
		if !l.isFree(e, gen) {
			return false
		}
	}
	return true
}

// isFree reports whether a slot is free, as of this generation.
func (l *streamAllocator) isFree(e ending, gen uint64) bool {
	return l.slots[e.slot()].freed.Load()>>1 >= gen-e.early()
}

// freeExpected frees a live block that is not overdue.
func (l *streamAllocator) freeExpected(b mem.Block) bool {
	k, gen := int(b.Tag&posMask), b.Tag>>posBits
	if k >= len(l.slots) {
		return false
	}
	p := &l.slots[k]
	m := p.freed.Load()
	w := l.at.Load()
	now := w &^ slow >> posBits
	if p.ptr != b.Ptr || p.size() != b.Size || m&1 != 0 || m>>1 >= gen || gen > now {
		return false
	}
	if k >= int(w&posMask) {
		now--
	}
	return p.freed.CompareAndSwap(m, now<<1)
}

// lock locks the stream's mutex and sends every request there.
func (l *streamAllocator) lock() {
	l.mu.Lock()
	if w := l.at.Or(slow); int64(w) >= 0 {
		l.catchUp(int(w & posMask))
	}
}

// unlock lets requests be served without the mutex again, if the stream shares no memory, is not lost and has no
// overdue blocks.
func (l *streamAllocator) unlock() {
	w := l.gen<<posBits | uint64(l.pos)
	if len(l.sharers) > 1 || l.lost || len(l.overdue) > 0 || l.a.closed.Load() {
		w |= slow
	}
	l.check()
	l.at.Store(w)
	l.mu.Unlock()
}

// catchUp counts the requests that were served without the mutex.
func (l *streamAllocator) catchUp(pos int) {
	if pos == l.pos {
		return
	}
	l.total.Add(l.sums[pos])
	l.total.Sub(l.sums[l.pos])
	for i := l.pos; i < pos; {
		if next := min(i+peakSpan, l.n); i%peakSpan == 0 && next <= pos {
			l.peak.Max(l.peakLoads[i/peakSpan])
			l.largest = max(l.largest, l.largestSizes[i/peakSpan])
			i = next
			continue
		}
		l.peak.Max(l.loads[i])
		l.largest = max(l.largest, l.sums[i+1].Bytes-l.sums[i].Bytes)
		i++
	}
	if l.requested != nil {
		for i := l.pos; i < pos; i++ {
			if l.until[i] > 0 {
				l.total.Requested += l.counted(i) - l.sumsOf(i).Requested
			}
		}
	}
	for i := max(l.pos, pos-numRecent); i < pos; i++ {
		l.remember(l.keys[i])
	}
	l.pos = pos
}

// counted returns the bytes requested of a slot that was served without the mutex, and marks them as counted. The
// goroutine that advanced the position stores them right after, so counted may have to wait for that.
func (l *streamAllocator) counted(k int) int64 {
	for {
		if size := l.requested[k].Load(); size > 0 {
			l.requested[k].Store(-size)
			return size
		}
		runtime.Gosched()
	}
}

// remember adds a request to the recent ones.
func (l *streamAllocator) remember(key int64) {
	copy(l.recent[:], l.recent[1:])
	l.recent[numRecent-1] = key
}

// genOf returns the generation in which a live slot was last served.
func (l *streamAllocator) genOf(k int) uint64 {
	if l.start <= k && k < l.pos {
		return l.gen
	}
	return l.since[k]
}

// live reports whether a slot's block is live and not overdue.
func (l *streamAllocator) live(k int) bool {
	m := l.slots[k].freed.Load()
	return m&1 == 0 && m>>1 < l.genOf(k)
}

// freedMark returns the mark of a free slot.
func (l *streamAllocator) freedMark(k int) uint64 {
	if k >= l.pos {
		return (l.gen - 1) << 1
	}
	return l.gen << 1
}
