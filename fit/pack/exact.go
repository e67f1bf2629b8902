package pack

import (
	"context"
	"fmt"
	"math"
)

// The search of Exact. The times at which lifetimes begin or end cut time into sections. A section has a floor, below
// which no more buffers will be placed, and a rest, the sum of the sizes that must still be placed above it. As in
// MiniMalloc (ASPLOS 2023), only canonical packings are considered, where each buffer lies at 0 or on another one. A
// branch is abandoned as soon as the floor plus the rest of a section exceed the capacity. Times that no unplaced
// buffer spans cut the rest into independent problems.
//
// The branching differs from MiniMalloc, which chooses the next buffer in order of offset. This search chooses a
// section whose floor is at most as high as the floors around it. Either one of the buffers that fit onto the floor
// lies there, or none does and the floor rises to the next height at which a buffer could lie. A section without spare
// room has no such last branch. The section with the fewest branches goes first. The floors form a skyline: no buffer
// is ever placed below another one that is already there. No packing is lost by this, because the buffers in a hollow
// of the skyline are chosen before a buffer is laid across the hollow.
//
// The search proceeds in rounds. Each round starts from the beginning. When every preference has had a round, the next
// rounds may visit three tenths more nodes. A preference is an order in which the buffers of a section are tried, and a
// rule for which of equally narrow sections goes first. A section has a weight, the number of branches that it ended,
// which is kept from round to round; heavier sections go earlier. A round that ends before its nodes are spent has the
// answer.
//
// exactoffset.go has another branching, for Pack.
//
// The search does not use the symmetry between a packing and its reflection, does not learn from conflicts, and uses
// one processor.

// Exact finds offsets at which all buffers fit within capacity, or proves that there are none.
//
// If there is a packing, Exact returns one offset for each buffer, in the order of buffers, and true. If no packing has
// a height of at most capacity, it returns nil and false. The error is that of ctx if ctx ends first. It is also an
// error if a buffer has Lower >= Upper or Size <= 0, or if the sum of the sizes is over 2^61. The same input gives the
// same offsets. Exact keeps no state between calls, so calls may run concurrently. It reads no clock: set a deadline of
// ctx to limit the time.
//
// The problem is NP-hard. If a packing exists, an instance of a few hundred buffers often takes about a second, but
// times vary by orders of magnitude. A proof that no packing exists may take forever, unless Bound exceeds capacity.
func Exact(ctx context.Context, buffers []Buffer, capacity int64) (offsets []int64, ok bool, err error) {
	s, err := newExactSearch(buffers, capacity)
	if err != nil {
		return nil, false, err
	}
	switch s.search(ctx, math.MaxInt64) {
	case exactNone:
		return nil, false, nil
	case exactSpent:
		return nil, false, ctx.Err()
	}
	offsets = make([]int64, len(buffers))
	for i := range s.items {
		offsets[s.items[i].index] = s.offset[i]
	}
	return offsets, true, nil
}

// exactRound is the number of nodes that a round of the first turn may visit: enough for a fortunate descent through
// some hundred buffers with many small repairs, but few enough that an unsuitable preference ends soon.
const exactRound = 2000

// search searches in rounds until it has an answer, has visited a number of nodes, or ctx ends. After exactSpent it can
// be called again to continue.
func (s *exactSearch) search(ctx context.Context, nodes int64) exactAnswer {
	s.ctx = ctx
	for _, rest := range s.rest {
		if rest > s.capacity {
			return exactNone
		}
	}
	if s.capacity < 0 {
		return exactNone
	}
	for end := s.nodes + nodes; s.nodes < end && ctx.Err() == nil; s.turn++ {
		if a := s.settleAll(); a != exactSpent {
			return a
		}
		s.undo(0)
		s.branches = s.branches[:0]
	}
	return exactSpent
}

// bySections is a round of the search by sections.
func (s *exactSearch) bySections() exactAnswer {
	preference := s.turn % (2 * len(exactOrders))
	if preference == 0 && s.turn > 0 && s.round < math.MaxInt64/2 {
		s.round += s.round * 3 / 10 // slowly: times vary by orders of magnitude, so more short rounds are better
	}
	s.prefer(exactOrders[preference%len(exactOrders)], preference >= len(exactOrders))
	s.budget = s.round
	return s.settle(0, len(s.rest))
}

// exactLargest bounds the sum of all sizes, so that no sum in the search overflows.
const exactLargest = 1 << 61

// checkExact returns the sum of the sizes, or an error for invalid buffers.
func checkExact(buffers []Buffer) (total int64, err error) {
	for i, b := range buffers {
		if err := b.check(); err != nil {
			return 0, fmt.Errorf("pack: buffer %q (%d): %w", b.ID, i, err)
		}
		if b.Size > exactLargest-total {
			return 0, fmt.Errorf("pack: the sizes up to buffer %q (%d) sum to more than 2^61", b.ID, i)
		}
		total += b.Size
	}
	return total, nil
}
