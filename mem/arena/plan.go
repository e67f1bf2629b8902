package arena

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/fit"
	"github.com/ashlar-go/ashlar/mem/arena/internal/region"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A gap is a hole as a plan found it.
type gap struct {
	fit.Span
	deps reuse.Dependencies
}

// A slide is one block's way down.
type slide struct {
	block uint32
	to    int64
}

// A plan is how blocks would slide together: each in turn as low as it goes, without overtaking another. It ascends.
type plan struct {
	slides  []slide
	largest int64 // bytes of the largest hole afterwards
}

// plan slides the blocks that may move. It leaves order and gaps in the order of addresses.
//
// What is neither a hole nor in order is frozen. Between that and the next such place the region is runs of blocks and
// holes: within a run, everything from cursor to the block looked at is free once the blocks below it have moved.
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
	cursor, end := a.lo, a.lo // of the run so far: what is behind cursor is free
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

// movesOf returns the slides as moves of bytes, neighbours that go equally far as one; blocks[i] is how many moves[i]
// is of.
func (a *Arena) movesOf(slides []slide) (moves []region.Move, blocks []int) {
	for _, s := range slides {
		r := &a.blocks[s.block]
		m := region.Move{To: a.pointer(s.to), From: a.pointer(r.at), Size: r.size}
		if n := len(moves); n > 0 {
			last := &moves[n-1]
			if uint64(last.To)+uint64(last.Size) == uint64(m.To) && uint64(last.From)+uint64(last.Size) == uint64(m.From) {
				last.Size += m.Size
				blocks[n-1]++
				continue
			}
		}
		moves, blocks = append(moves, m), append(blocks, 1)
	}
	return moves, blocks
}

// writtenGaps are the holes between the first byte that moves write and the last that they read.
func (a *Arena) writtenGaps(moves []region.Move) []gap {
	last := moves[len(moves)-1]
	low, high := int64(moves[0].To-a.region.base), int64(last.From-a.region.base)+last.Size
	from, _ := slices.BinarySearchFunc(a.gaps, low, func(g gap, at int64) int { return cmp.Compare(g.At, at) })
	to, _ := slices.BinarySearchFunc(a.gaps, high, func(g gap, at int64) int { return cmp.Compare(g.At, at) })
	return a.gaps[from:to]
}
