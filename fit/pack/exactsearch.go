package pack

import "math"

// An exactAnswer is the result of a search of a part of time.
type exactAnswer int

const (
	exactFound exactAnswer = iota // all items are placed
	exactNone                     // there is no packing; offsets and placements are as before
	exactSpent                    // the nodes of the round are spent, or ctx ended: the state is for undo(0)
)

// settle places all unplaced items of the sections [from, past). No unplaced item may live both inside and outside of
// them.
func (s *exactSearch) settle(from, past int) exactAnswer {
	if s.spend() {
		return exactSpent
	}
	start, end := s.firstFrom(from), int32(len(s.items))
	if start == end || int(s.items[start].first) >= past {
		return exactFound
	}
	if cut := s.cut(start, past); cut > 0 {
		return s.settleApart(from, cut, past, s.settle)
	}
	s.level(start, from, past)
	for t := from; t < past; t++ {
		if s.rest[t] > 0 && s.floor[t] > s.capacity-s.rest[t] {
			s.weight[t]++
			return exactNone
		}
	}
	return s.branch(s.narrowest(start, from, past), start, from, past)
}

// spend counts a node. It reports whether the search has to stop before it.
func (s *exactSearch) spend() bool {
	if s.budget--; s.budget < 0 {
		return true
	}
	s.nodes++
	return s.nodes%s.pause == 0 && s.ctx.Err() != nil
}

// firstFrom returns the first unplaced item in or after a section.
func (s *exactSearch) firstFrom(section int) int32 {
	x, end := s.next[len(s.items)], int32(len(s.items))
	for x != end && int(s.items[x].first) < section {
		x = s.next[x]
	}
	return x
}

// settleApart settles the two sides of a time that no unplaced item spans. The sides are independent: if one has no
// packing, other packings of the other side would not help.
func (s *exactSearch) settleApart(from, cut, past int, settle func(from, past int) exactAnswer) exactAnswer {
	mark := len(s.trail)
	if a := settle(from, cut); a != exactFound {
		return a
	}
	a := settle(cut, past)
	if a == exactNone {
		s.undo(mark)
	}
	return a
}

// cut returns the first section before past that no unplaced item spans from an earlier one, or 0.
func (s *exactSearch) cut(start int32, past int) int {
	end, reach := int32(len(s.items)), s.items[start].past
	for x := start; x != end && int(s.items[x].first) < past; x = s.next[x] {
		it := &s.items[x]
		if it.first >= reach {
			return int(it.first)
		}
		reach = max(reach, it.past)
	}
	return 0
}

// level computes the floors of [from, past).
func (s *exactSearch) level(start int32, from, past int) {
	if s.floors != nil {
		s.levelWide(start, from, past)
		return
	}
	end := int32(len(s.items))
	for t := from; t < past; t++ {
		s.floor[t] = math.MaxInt64
	}
	for x := start; x != end && int(s.items[x].first) < past; x = s.next[x] {
		it := &s.items[x]
		offset, floors := s.offset[x], s.floor[it.first:it.past]
		for i := range floors {
			floors[i] = min(floors[i], offset)
		}
	}
}

// narrowest returns the section to branch on. Every section whose fitting items all lie on even floors is eligible:
// then no item can be placed beneath them later. The section with the lowest floor is always eligible.
func (s *exactSearch) narrowest(start int32, from, past int) int {
	if s.floors != nil {
		s.countWide(start, from, past)
	} else {
		s.count(start, from, past)
	}
	best, width := -1, 0.0
	for t := from; t < past; t++ {
		if s.rest[t] == 0 || s.uneven[t] {
			continue
		}
		branches := float64(s.fits[t])
		if s.floor[t] < s.capacity-s.rest[t] {
			branches++ // the floor may rise without an item
		}
		branches /= s.weight[t]
		if best < 0 || branches < width || branches == width && !s.earliest && s.floor[t] < s.floor[best] {
			best, width = t, branches
		}
	}
	return best
}

// count counts the items that fit onto the floors of [from, past), and finds the uneven sections.
func (s *exactSearch) count(start int32, from, past int) {
	clear(s.fits[from:past])
	clear(s.uneven[from:past])
	end := int32(len(s.items))
	for x := start; x != end && int(s.items[x].first) < past; x = s.next[x] {
		it := &s.items[x]
		offset, floors := s.offset[x], s.floor[it.first:it.past]
		even := true
		for _, f := range floors {
			if f != offset {
				even = false
				break
			}
		}
		if even {
			fits := s.fits[it.first:it.past]
			for i := range fits {
				fits[i]++
			}
			continue
		}
		for i, f := range floors {
			if f == offset {
				s.uneven[int(it.first)+i] = true
			}
		}
	}
}

// branch tries, in order, each item that fits onto the floor of section at, and then none of them.
func (s *exactSearch) branch(at int, start int32, from, past int) exactAnswer {
	mark, base, floor := len(s.trail), len(s.branches), s.floor[at]
	s.gather(at, start, past)
	limit := len(s.branches)
	above := s.above(at, start, past)
	for i := base; i < limit; i++ {
		x := s.branches[i]
		if s.repeats(s.branches[base:i], x) {
			continue
		}
		below := s.place(x, start)
		if a := s.settle(from, past); a != exactNone {
			return a
		}
		s.undo(mark)
		if !below { // x obstructs no other buffer: the rest failed, and would fail again
			s.branches = s.branches[:base]
			return exactNone
		}
	}
	s.branches = s.branches[:base]
	if above == math.MaxInt64 || above > s.capacity-s.rest[at] {
		s.weight[at]++
		return exactNone
	}
	end := int32(len(s.items))
	for x := start; x != end && int(s.items[x].first) <= at; x = s.next[x] {
		if int(s.items[x].past) > at && s.offset[x] == floor {
			s.lift(x, above)
		}
	}
	a := s.settle(from, past)
	if a == exactNone {
		s.undo(mark)
	}
	return a
}

// gather pushes the items that fit onto the floor of section at, sorted by rank.
func (s *exactSearch) gather(at int, start int32, past int) {
	base, end := len(s.branches), int32(len(s.items))
	for x := start; x != end && int(s.items[x].first) <= at; x = s.next[x] {
		if int(s.items[x].past) <= at || s.offset[x] != s.floor[at] {
			continue
		}
		i := len(s.branches)
		s.branches = append(s.branches, x)
		for ; i > base && s.rank[s.branches[i-1]] > s.rank[x]; i-- {
			s.branches[i] = s.branches[i-1]
		}
		s.branches[i] = x
	}
}

// above returns a lower bound of the lowest item in section at if no item lies on the floor: that item then lies on a
// higher floor, or on an item that is not alive in the section and lies on the floor or higher.
func (s *exactSearch) above(at int, start int32, past int) int64 {
	height, end := int64(math.MaxInt64), int32(len(s.items))
	for x := start; x != end && int(s.items[x].first) < past; x = s.next[x] {
		it, offset := &s.items[x], s.offset[x]
		switch {
		case int(it.first) > at || int(it.past) <= at:
			if offset >= s.floor[at] {
				height = min(height, offset+it.size)
			}
		case offset > s.floor[at]:
			height = min(height, offset)
		}
	}
	return height
}

// repeats reports whether x is equivalent to one of tried: the same lifetime in sections and the same size.
func (s *exactSearch) repeats(tried []int32, x int32) bool {
	a := &s.items[x]
	for _, y := range tried {
		if b := &s.items[y]; a.first == b.first && a.past == b.past && a.size == b.size {
			return true
		}
	}
	return false
}
