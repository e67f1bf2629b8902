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

// failsPerNode is the number of branches that end at once and together count as a node.
const failsPerNode = 32

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
	if cut := s.cut(start, past); cut > 0 {
		return s.settleApart(from, cut, past, func(from, past int) exactAnswer {
			return s.settleUpwards(from, past, 0, 0)
		})
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
		if s.holds(mark, start, from, past, at) {
			if a := s.settleUpwards(from, past, at, s.rank[x]); a != exactNone {
				return a
			}
		} else if s.fails++; s.fails%failsPerNode == 0 && s.spend() {
			return exactSpent
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

// holds reports whether the unplaced items of [from, past) fit below the capacity, as far as the sums of their sizes
// say, after the changes in the trail since mark: none of them lies below least. Floors changed only where the changed
// items live.
func (s *exactSearch) holds(mark int, start int32, from, past int, least int64) bool {
	for _, rest := range s.rest[from:past] {
		if rest > 0 && least > s.capacity-rest {
			return false
		}
	}
	low, high := int32(past), int32(from)
	for _, step := range s.trail[mark:] {
		low, high = min(low, s.items[step.item].first), max(high, s.items[step.item].past)
	}
	for t := low; t < high; t++ {
		s.floor[t] = math.MaxInt64
	}
	for x, end := start, int32(len(s.items)); x != end && s.items[x].first < high; x = s.next[x] {
		first, offset := max(low, s.items[x].first), s.offset[x]
		if first >= s.items[x].past || s.placed[x] {
			continue
		}
		floors := s.floor[first:min(high, s.items[x].past)]
		for i := range floors {
			floors[i] = min(floors[i], offset)
		}
	}
	for t := low; t < high; t++ {
		if rest := s.rest[t]; rest > 0 && s.floor[t] > s.capacity-rest {
			return false
		}
	}
	return true
}
