package main

// sums are requested and reserved bytes.
type sums struct{ requested, reserved int64 }

// atLeast makes s at least other.
func (s *sums) atLeast(other sums) {
	s.requested, s.reserved = max(s.requested, other.requested), max(s.reserved, other.reserved)
}

// plus returns the sums of both.
func (s sums) plus(other sums) sums {
	return sums{s.requested + other.requested, s.reserved + other.reserved}
}

// A memoryOverTime has the sums after each entry, at the times of the entries or, if all have the same time, by their
// index. When there are too many, those close together become one moment, which is shown at the place of its first
// entry: the others are misplaced by less than 1/131072 of the whole.
type memoryOverTime struct {
	moments []moment
	width   uint64 // of a moment: more than the time from its first entry to its last
	entries int
	first   int64 // time
	last    int64 // the latest time so far: time does not run back
	timed   bool  // there are different times
}

// A moment has successive entries.
type moment struct {
	at    int64 // the time or the index of the first
	most  sums  // after any of the entries
	after sums  // after the last
}

// maxMoments is the maximum number of moments.
const maxMoments = 1 << 18

// add adds the sums after the next entry.
func (m *memoryOverTime) add(us int64, s sums) {
	if m.entries == 0 {
		m.first, m.last, m.width = us, us, 1
	}
	if us != m.first && !m.timed {
		m.timed = true
		m.merge(1 << 63)
		m.moments[0].at, m.width = m.first, 1
	}
	m.last = max(m.last, us)
	at := m.last
	if !m.timed {
		at = int64(m.entries)
	}
	m.entries++
	if n := len(m.moments); n > 0 {
		if k := &m.moments[n-1]; uint64(at)-uint64(k.at) < m.width {
			k.most.atLeast(s)
			k.after = s
			return
		}
	}
	for len(m.moments) >= maxMoments {
		m.merge(2 * m.width)
	}
	m.moments = append(m.moments, moment{at, s, s})
}

// merge makes moments wider.
func (m *memoryOverTime) merge(width uint64) {
	m.width = width
	kept := m.moments[:0]
	for _, k := range m.moments {
		if n := len(kept); n > 0 && uint64(k.at)-uint64(kept[n-1].at) < width {
			kept[n-1].most.atLeast(k.most)
			kept[n-1].after = k.after
			continue
		}
		kept = append(kept, k)
	}
	m.moments = kept
}
