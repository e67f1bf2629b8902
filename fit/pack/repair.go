package pack

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

// A repairer lowers a packing to a ceiling. It takes out the buffers that end above it, and places them again one after
// the other, each where it overlaps the least: the buffers that it overlaps there are taken out in turn. Large and
// long-lived buffers soon have a place, and the small and short-lived ones fill the gaps between them.
type repairer struct {
	first, last []int32   // by buffer: eras
	size        []int64   // by buffer
	weight      []float64 // by buffer: what taking it out costs
	penalty     []float64 // by buffer: factor of the weight, larger with each time that it had to be placed at a cost
	until       []int     // by buffer: the move until which it should stay
	offsets     []int64   // by buffer; those that are out have none
	out         []int32
	starts      []span // the placed buffers by offset
	ends        []span // the placed buffers by end
	low, high   []span // those of starts and ends that are alive with the current buffer
	rng         *rand.Rand
	ceiling     int64
	moves       int
}

// A span is a placed buffer in a list: key is its offset or its end.
type span struct {
	key         int64
	first, last int32
	buffer      int32
}

// The weight of a buffer is size^0.7 times its lifetime in eras. With other exponents, from 0.3 to 2 for the size and
// from 0 to 2 for the lifetime, the largest instances came less far down.
const sizeExponent = 0.7

func newRepairer(buffers []Buffer, rng *rand.Rand) *repairer {
	first, last, _ := eras(buffers)
	n := len(buffers)
	r := &repairer{
		first: make([]int32, n), last: make([]int32, n), size: make([]int64, n), weight: make([]float64, n),
		penalty: make([]float64, n), until: make([]int, n), offsets: make([]int64, n), rng: rng,
	}
	for i, b := range buffers {
		r.first[i], r.last[i], r.size[i] = int32(first[i]), int32(last[i]), b.Size
		r.weight[i] = math.Pow(float64(b.Size), sizeExponent) * float64(last[i]-first[i]+1)
	}
	return r
}

// begin takes out the buffers of a packing that end above the ceiling. It returns their weight, as a share of all.
func (r *repairer) begin(offsets []int64, ceiling int64) float64 {
	r.ceiling = ceiling
	copy(r.offsets, offsets)
	r.starts, r.ends, r.out = r.starts[:0], r.ends[:0], r.out[:0]
	var out, all float64
	for i, at := range offsets {
		r.penalty[i], r.until[i] = 1, 0
		all += r.weight[i]
		if at+r.size[i] > ceiling {
			r.out = append(r.out, int32(i))
			out += r.weight[i]
			continue
		}
		r.starts = append(r.starts, span{at, r.first[i], r.last[i], int32(i)})
		r.ends = append(r.ends, span{at + r.size[i], r.first[i], r.last[i], int32(i)})
	}
	r.moves = 0
	slices.SortFunc(r.starts, bySpan)
	slices.SortFunc(r.ends, bySpan)
	return out / all
}

// repair places the buffers that are out, in at most a number of moves. It reports whether the result is a packing
// below the ceiling.
func (r *repairer) repair(ctx context.Context, moves int) bool {
	for ; len(r.out) > 0 && r.moves < moves; r.moves++ {
		if r.moves%16 == 0 && ctx.Err() != nil {
			return false
		}
		i := r.take()
		at, cost := r.cheapest(i)
		if cost > 0 {
			r.penalty[i] *= 1.1
			for k := range r.low {
				if s := &r.low[k]; s.key < at+r.size[i] && s.key+r.size[s.buffer] > at {
					r.eject(s.buffer)
				}
			}
		}
		r.put(i, at)
		r.until[i] = r.moves + 10 + r.rng.IntN(20)
	}
	return len(r.out) == 0
}

// take removes a buffer from those that are out: three times of four the heaviest.
func (r *repairer) take() int32 {
	pick := 0
	if r.rng.IntN(4) == 0 {
		pick = r.rng.IntN(len(r.out))
	} else {
		for k, i := range r.out {
			if r.weight[i] > r.weight[r.out[pick]] {
				pick = k
			}
		}
	}
	i, last := r.out[pick], len(r.out)-1
	r.out[pick] = r.out[last]
	r.out = r.out[:last]
	return i
}

// stay is the factor of the weight of a buffer that was placed a few moves before.
const stay = 20

// cost returns what taking out a buffer costs.
func (r *repairer) cost(i int32) float64 {
	if r.until[i] > r.moves {
		return stay * r.weight[i] * r.penalty[i]
	}
	return r.weight[i] * r.penalty[i]
}

// cheapest returns the offset for buffer i that costs the least, and the cost. Of equal ones it takes any. The offsets
// are those just above and just below another buffer, and at both ends of the range.
func (r *repairer) cheapest(i int32) (at int64, least float64) {
	r.low = alive(r.low, r.starts, r.first[i], r.last[i])
	r.high = alive(r.high, r.ends, r.first[i], r.last[i])
	least, ties := math.Inf(1), 0
	top := r.ceiling - r.size[i]
	for _, above := range []bool{true, false} {
		begun, ended, cost := 0, 0, 0.0 // of the spans that begin below the buffer's end, and that end below its offset
		for k := -1; k < len(r.low); k++ {
			var here int64
			switch {
			case above && k >= 0:
				here = r.high[k].key
			case !above && k == len(r.low)-1:
				here = top
			case !above:
				here = r.low[k+1].key - r.size[i]
			}
			if here > top {
				break
			}
			if here < 0 {
				continue
			}
			for ; ended < len(r.high) && r.high[ended].key <= here; ended++ {
				cost -= r.cost(r.high[ended].buffer)
			}
			for ; begun < len(r.low) && r.low[begun].key < here+r.size[i]; begun++ {
				cost += r.cost(r.low[begun].buffer)
			}
			if begun == ended {
				cost = 0 // exactly
			}
			switch {
			case cost < least*(1-1e-9):
				at, least, ties = here, cost, 1
			case cost <= least*(1+1e-9):
				if ties++; r.rng.IntN(ties) == 0 {
					at = here
				}
			}
		}
	}
	return at, least
}

// alive copies the spans of a list that share an era with [first, last].
func alive(to, from []span, first, last int32) []span {
	to = slices.Grow(to[:0], len(from))[:len(from)]
	n := 0
	for k := range from { // without a branch, which would be mispredicted half of the time
		s := &from[k]
		to[n] = *s
		n += int(1 + ((last-s.first)|(s.last-first))>>31)
	}
	return to[:n]
}

// put places a buffer at an offset that is free.
func (r *repairer) put(i int32, at int64) {
	r.offsets[i] = at
	for _, l := range []struct {
		list *[]span
		key  int64
	}{{&r.starts, at}, {&r.ends, at + r.size[i]}} {
		s := span{l.key, r.first[i], r.last[i], i}
		k, _ := slices.BinarySearchFunc(*l.list, s, bySpan)
		*l.list = slices.Insert(*l.list, k, s)
	}
}

// eject takes out a buffer.
func (r *repairer) eject(i int32) {
	for _, l := range []struct {
		list *[]span
		key  int64
	}{{&r.starts, r.offsets[i]}, {&r.ends, r.offsets[i] + r.size[i]}} {
		k, _ := slices.BinarySearchFunc(*l.list, span{key: l.key, buffer: i}, bySpan)
		*l.list = slices.Delete(*l.list, k, k+1)
	}
	r.out = append(r.out, i)
}

func bySpan(x, y span) int { return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.buffer, y.buffer)) }
