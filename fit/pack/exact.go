package pack

import (
	"context"
	"fmt"
	"math"
)

// Exact finds offsets at which all buffers fit within capacity, or proves that there are none.
//
// It returns one offset for each buffer, in the order of buffers, and true; or nil and false once it has proved that no
// packing has a height of at most capacity; or an error: ctx's when ctx ended first, or one that names a buffer with
// Lower >= Upper or Size <= 0, or sizes whose sum is over 2^61. The same input gives the same offsets. Exact keeps no
// state between calls, so calls may run at the same time, and it reads no clock: a limit on time is ctx's deadline.
//
// The problem is NP-hard. Instances of a few hundred buffers are often settled in about a second when a packing exists,
// but luck varies by orders of magnitude; a proof that none exists may take for ever unless the sum of sizes alive at one moment already shows it.
//
// # The search
//
// The times at which lifetimes begin or end cut time into sections. A section has a floor, below which nothing more will
// be placed, and a rest, the sizes that must still be placed above it. As in MiniMalloc (ASPLOS 2023), only canonical
// packings are looked at, where each buffer lies at 0 or on another; a branch is given up as soon as the floor and the
// rest of one section pass the capacity; and times that no unplaced buffer spans cut the rest into problems of their own.
//
// What is branched on differs from MiniMalloc, which chooses the next buffer in order of offset. Here a section is chosen,
// one whose floor is lower than the floors around it, or level with them: either one of the buffers that fit onto the
// floor lies there, or nothing does, and the floor rises to the next height at which something could lie. A section
// without room to waste lacks that last branch, and the section with the fewest branches goes first. Floors are those of
// a skyline: nothing is ever placed below what is already there, which loses nothing, because whatever could lie in the
// hollow of a skyline is decided before a buffer is laid across it.
//
// The search is in rounds, each from the start, with three tenths more nodes once every preference has had its turn. A
// preference is an order in which the buffers of one section are tried, and which of equally narrow sections goes first.
// Sections carry a weight, the number of times they ended a branch, that stays from round to round and makes them go
// earlier. A round that ends before its nodes are spent has settled the question.
//
// Not done: symmetry between a packing and its reflection, learning of conflicts, use of more than one processor.
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

// exactRound is how many nodes a round of the first turn may visit: enough for a lucky descent through some hundred
// buffers with many small repairs, and little enough that an unlucky preference is soon over.
const exactRound = 2000

// search searches in rounds until the question is settled, so many more nodes are spent, or ctx ends. After exactSpent it
// can be called again, and goes on where it was.
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
		preference := s.turn % (2 * len(exactOrders))
		if preference == 0 && s.turn > 0 && s.round < math.MaxInt64/2 {
			s.round += s.round * 3 / 10 // slowly: luck varies by orders of magnitude, so many short rounds beat few long ones
		}
		s.prefer(exactOrders[preference%len(exactOrders)], preference >= len(exactOrders))
		s.budget = s.round
		if a := s.settle(0, len(s.rest)); a != exactSpent {
			return a
		}
		s.undo(0)
		s.branches = s.branches[:0]
	}
	return exactSpent
}

// exactLargest bounds the sum of all sizes, so that no sum in the search overflows.
const exactLargest = 1 << 61

// checkExact says what is wrong with buffers, or returns the sum of their sizes.
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
