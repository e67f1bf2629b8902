package planned

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/fit/pack"
)

// place packs the slots of a stream and sets the size of its part of the region.
//
// fit/pack handles lifetimes that are one interval. A block that is live from one round into the next has two
// intervals at the same offset. For such streams place packs the intervals separately, and then places the blocks in
// the order of that packing, each as low as possible. It also packs with those blocks live during the whole body, and
// takes the lower of the two.
func (p *Plan) place(ctx context.Context, l *StreamPlan, steps int) error {
	served := func(s *Slot) int64 { return roundUp(p.most(s.Size)) }
	buffers, of := l.buffers(served)
	if len(of) == 0 {
		return nil
	}
	split, err := pack.Pack(ctx, buffers, pack.Options{Steps: steps})
	if err != nil {
		return err
	}
	wraps := make([]bool, len(l.Slots))
	for i := range of {
		wraps[of[i]] = i > 0 && of[i] == of[i-1]
	}
	if !slices.Contains(wraps, true) {
		for i, slot := range of {
			l.Slots[slot].Offset = split.Offsets[i]
		}
		l.Size = split.Height
		return nil
	}
	l.Size = math.MaxInt64
	if len(of) <= maxPlaceInOrder {
		l.placeInOrder(buffers, of, split.Offsets)
	}
	whole := make([]pack.Buffer, 0, len(of))
	var slots []int
	for i, slot := range of {
		b := buffers[i]
		switch {
		case len(slots) > 0 && slots[len(slots)-1] == slot:
			continue
		case wraps[slot]:
			b.Lower, b.Upper = int64(l.Loop), int64(len(l.Slots))
		}
		whole, slots = append(whole, b), append(slots, slot)
	}
	kept, err := pack.Pack(ctx, whole, pack.Options{Steps: steps})
	if err != nil {
		return err
	}
	if kept.Height < l.Size {
		l.Size = kept.Height
		for i, slot := range slots {
			l.Slots[slot].Offset = kept.Offsets[i]
		}
	}
	return nil
}

// maxPlaceInOrder bounds the work of placeInOrder, to about a second.
const maxPlaceInOrder = 20_000

// placeInOrder places slots in the order of the lower of their offsets, each as low as possible. It takes O(n²).
func (l *StreamPlan) placeInOrder(buffers []pack.Buffer, of []int, offsets []int64) {
	type part struct{ first, n int } // a slot's buffers
	parts := make([]part, 0, len(of))
	for i, slot := range of {
		if i > 0 && of[i-1] == slot {
			parts[len(parts)-1].n++
		} else {
			parts = append(parts, part{i, 1})
		}
	}
	lowest := func(p part) int64 { return slices.Min(offsets[p.first : p.first+p.n]) }
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(lowest(x), lowest(y)) })
	meet := func(x, y part) bool {
		for _, b := range buffers[x.first : x.first+x.n] {
			for _, c := range buffers[y.first : y.first+y.n] {
				if b.Lower < c.Upper && c.Lower < b.Upper {
					return true
				}
			}
		}
		return false
	}
	type span struct{ at, end int64 }
	var taken []span
	l.Size = 0
	for i, p := range parts {
		taken = taken[:0]
		for _, q := range parts[:i] {
			if meet(p, q) {
				at := l.Slots[of[q.first]].Offset
				taken = append(taken, span{at, at + buffers[q.first].Size})
			}
		}
		slices.SortFunc(taken, func(x, y span) int { return cmp.Compare(x.at, y.at) })
		at, size := int64(0), buffers[p.first].Size
		for _, t := range taken {
			if t.at-at >= size {
				break
			}
			at = max(at, t.end)
		}
		l.Slots[of[p.first]].Offset = at
		l.Size = max(l.Size, at+size)
	}
}
