package pack

import (
	"cmp"
	"math"
	"slices"
)

// The search upwards is that of MiniMalloc (ASPLOS 2023): buffers are placed in the order of their offsets, and of
// their rank at equal offsets, each at the lowest offset that is left for it. A branch is a buffer that lies below the
// lowest end of all unplaced ones; another would leave a gap in which a buffer fits. Neither this search nor the one by
// sections is better on all instances: each finds packings in a second that the other misses in a minute.

// upwards makes s search upwards. Its rounds double when the orders have had one each.
func (s *exactSearch) upwards() {
	s.settleAll = func() exactAnswer {
		s.prefer(exactOrders[s.turn%upwardsOrders], false)
		s.budget = int64(2*len(s.items)) << min(40, s.turn/upwardsOrders+1)
		return s.settleUpwards(0, len(s.rest), 0, 0)
	}
}

// upwardsOrders is the number of exactOrders that the search upwards uses, as MiniMalloc does.
const upwardsOrders = 3

// settleUpwards is settle for the search upwards. It places no item before (least, rank) in the order of offsets and
// ranks.
func (s *exactSearch) settleUpwards(from, past int, least int64, rank int32) exactAnswer {
	if s.spend() {
		return exactSpent
	}
	start, end := s.firstFrom(from), int32(len(s.items))
	if start == end || int(s.items[start].first) >= past {
		return exactFound
	}
	if cut := s.level(start, from, past); cut > 0 {
		return s.settleApart(from, cut, past, func(from, past int) exactAnswer {
			return s.settleUpwards(from, past, 0, 0)
		})
	}
	for t := from; t < past; t++ {
		if s.rest[t] > 0 && max(least, s.floor[t]) > s.capacity-s.rest[t] {
			return exactNone
		}
	}
	mark, base := len(s.trail), len(s.branches)
	s.gatherUpwards(start, past, least, rank)
	for i, limit := base, len(s.branches); i < limit; i++ {
		x := s.branches[i]
		if s.repeats(s.branches[base:i], x) {
			continue
		}
		at := s.offset[x]
		below := s.place(x, start)
		if s.fitsAbove(x, at+s.items[x].size) {
			if a := s.settleUpwards(from, past, at, s.rank[x]); a != exactNone {
				return a
			}
		}
		s.undo(mark)
		if !below { // as in branch
			break
		}
	}
	s.branches = s.branches[:base]
	return exactNone
}

// gatherUpwards pushes the items that could be next, sorted by offset and rank.
func (s *exactSearch) gatherUpwards(start int32, past int, least int64, rank int32) {
	base, end := len(s.branches), int32(len(s.items))
	top := int64(math.MaxInt64)
	for x := start; x != end && int(s.items[x].first) < past; x = s.next[x] {
		top = min(top, s.offset[x]+s.items[x].size)
	}
	for x := start; x != end && int(s.items[x].first) < past; x = s.next[x] {
		if at := s.offset[x]; at < top && (at > least || at == least && s.rank[x] >= rank) {
			s.branches = append(s.branches, x)
		}
	}
	slices.SortFunc(s.branches[base:], func(x, y int32) int {
		return cmp.Or(cmp.Compare(s.offset[x], s.offset[y]), cmp.Compare(s.rank[x], s.rank[y]))
	})
}

// fitsAbove reports whether the unplaced items fit between top and the capacity in the sections of x.
func (s *exactSearch) fitsAbove(x int32, top int64) bool {
	it := &s.items[x]
	for _, rest := range s.rest[it.first:it.past] {
		if rest > 0 && top > s.capacity-rest {
			return false
		}
	}
	return true
}
