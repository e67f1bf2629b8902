package arena

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/fit"
	"github.com/ashlar-go/ashlar/mem/arena/internal/region"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A gap is a hole at the time of a plan.
type gap struct {
	fit.Span
	deps reuse.Dependencies
}

// A slide is the move of one block towards the start.
type slide struct {
	block uint32
	to    int64
}

// A plan is the result of sliding blocks together: each block in turn moves as low as possible without passing another.
// Slides are in ascending order.
type plan struct {
	slides  []slide
	largest int64 // bytes of the largest hole afterwards
}

// plan slides the blocks that may move. It leaves order and gaps in the order of addresses.
//
// Spans that are neither holes nor in order are frozen. They separate the region into runs of blocks and holes. Within
// a run, all memory from cursor up to the current block is free after the blocks below have moved.
func (a *Arena) plan(mayMove func(*block) bool) plan {
	slices.SortFunc(a.order, func(i, j uint32) int { return cmp.Compare(a.blocks[i].at, a.blocks[j].at) })
	for place, i := range a.order {
		a.blocks[i].orderIndex = uint32(place)
	}
	a.gaps = a.gaps[:0]
	for s, p := range a.holes.All() {
		a.gaps = append(a.gaps, gap{s, p})
	}
	var p plan
	cursor, end := a.lo, a.lo // of the current run: the memory from cursor on is free
	reach := func(at, size int64) {
		if at != end {
			p.largest = max(p.largest, end-cursor)
			cursor = at
		}
		end = at + size
	}
	gaps := a.gaps
	for _, i := range a.order {
		r := &a.blocks[i]
		for len(gaps) > 0 && gaps[0].At < r.at {
			reach(gaps[0].At, gaps[0].Size)
			gaps = gaps[1:]
		}
		reach(r.at, r.size)
		if cursor < r.at && mayMove(r) {
			p.slides = append(p.slides, slide{i, cursor})
			cursor += r.size
		} else {
			p.largest = max(p.largest, r.at-cursor)
			cursor = end
		}
	}
	for _, g := range gaps {
		reach(g.At, g.Size)
	}
	p.largest = max(p.largest, end-cursor)
	return p
}

// movesOf converts slides to moves of bytes. Neighbours with the same shift become one move; blocks[i] is the number of
// blocks in moves[i].
func (a *Arena) movesOf(slides []slide) (moves []region.Move, blocks []int) {
	for _, s := range slides {
		r := &a.blocks[s.block]
		m := region.Move{To: a.pointer(s.to), From: a.pointer(r.at), Size: r.size}
		if n := len(moves); n > 0 {
			last := &moves[n-1]
			if uint64(last.To)+uint64(last.Size) == uint64(m.To) &&
				uint64(last.From)+uint64(last.Size) == uint64(m.From) {
				last.Size += m.Size
				blocks[n-1]++
				continue
			}
		}
		moves, blocks = append(moves, m), append(blocks, 1)
	}
	return moves, blocks
}

// writtenGaps returns the holes between the first byte that moves write and the last byte that they read.
func (a *Arena) writtenGaps(moves []region.Move) []gap {
	last := moves[len(moves)-1]
	low, high := int64(moves[0].To-a.region.base), int64(last.From-a.region.base)+last.Size
	from, _ := slices.BinarySearchFunc(a.gaps, low, func(g gap, at int64) int { return cmp.Compare(g.At, at) })
	to, _ := slices.BinarySearchFunc(a.gaps, high, func(g gap, at int64) int { return cmp.Compare(g.At, at) })
	return a.gaps[from:to]
}
