package pack

import (
	"math"
	"math/bits"
)

// A minima is a table over sections. Level k holds a number for each 2^k consecutive sections, so that two of them
// cover any range.
type minima [][]int64

// newMinima returns a table for a number of sections.
func newMinima(sections int) minima {
	m := make(minima, bits.Len(uint(sections)))
	for k := range m {
		m[k] = make([]int64, sections)
	}
	return m
}

// clear sets the sections [from, past) of all levels to infinity.
func (m minima) clear(from, past int) {
	for _, level := range m[:bits.Len(uint(past-from))] {
		level = level[from:past]
		for t := range level {
			level[t] = math.MaxInt64
		}
	}
}

// lower lowers the sections of x to an offset, at the level of its width.
func (m minima) lower(x *exactItem, offset int64) {
	k := bits.Len32(uint32(x.past-x.first)) - 1
	level, last := m[k], x.past-1<<k
	level[x.first] = min(level[x.first], offset)
	level[last] = min(level[last], offset)
}

// spread applies what lower did at all levels in [from, past) to the lowest level, which is the result.
func (m minima) spread(from, past int) []int64 {
	for k := bits.Len(uint(past-from)) - 1; k > 0; k-- {
		half := 1 << (k - 1)
		level := m[k][from : past-2*half+1]
		low, high := m[k-1][from:][:len(level)], m[k-1][from+half:][:len(level)]
		for t, v := range level {
			low[t] = min(low[t], v)
		}
		for t, v := range level {
			high[t] = min(high[t], v)
		}
	}
	return m[0]
}

// gather computes all levels in [from, past) from the lowest.
func (m minima) gather(from, past int) {
	for k := 1; k < bits.Len(uint(past-from)); k++ {
		half := 1 << (k - 1)
		level := m[k][from : past-2*half+1]
		low, high := m[k-1][from:][:len(level)], m[k-1][from+half:][:len(level)]
		for t := range level {
			level[t] = min(low[t], high[t])
		}
	}
}

// least returns the least number in the sections of x, after gather.
func (m minima) least(x *exactItem) int64 {
	k := bits.Len32(uint32(x.past-x.first)) - 1
	return min(m[k][x.first], m[k][x.past-1<<k])
}

// wide reports whether the items live in so many sections that a table is faster than a loop over each.
func (s *exactSearch) wide() bool {
	sum := 0
	for i := range s.items {
		sum += int(s.items[i].past - s.items[i].first)
	}
	return sum > 16*len(s.rest)*bits.Len(uint(len(s.rest)))
}

// levelWide computes the same floors as level, in time that does not depend on the items' lifetimes.
func (s *exactSearch) levelWide(start int32, from, past int) {
	s.floors.clear(from, past)
	end := int32(len(s.items))
	for x := start; x != end && int(s.items[x].first) < past; x = s.next[x] {
		s.floors.lower(&s.items[x], s.offset[x])
	}
	copy(s.floor[from:past], s.floors.spread(from, past)[from:past])
}

// countWide computes the same fits and uneven sections as count, after levelWide. An item lies on even floors if the
// least of them is its offset, because none is above it.
func (s *exactSearch) countWide(start int32, from, past int) {
	s.floors.gather(from, past)
	s.unevens.clear(from, past)
	clear(s.fits[from:past])
	end := int32(len(s.items))
	for x := start; x != end && int(s.items[x].first) < past; x = s.next[x] {
		it := &s.items[x]
		if s.floors.least(it) < s.offset[x] {
			s.unevens.lower(it, s.offset[x])
			continue
		}
		s.fits[it.first]++
		if int(it.past) < past {
			s.fits[it.past]--
		}
	}
	lowest := s.unevens.spread(from, past)
	fits := int32(0)
	for t := from; t < past; t++ {
		fits += s.fits[t]
		s.fits[t] = fits
		s.uneven[t] = lowest[t] == s.floor[t] && s.rest[t] > 0
	}
}
