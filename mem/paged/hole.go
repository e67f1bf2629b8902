package paged

import (
	"math/bits"
	"slices"

	"github.com/ashlar-go/ashlar/mem/internal/sizebins"
)

// Blocks of similar sizes share an address range, so that the holes between them have the sizes of later requests. A
// range has regions and holes of its own. The largest block of a range is an eighth of a granule, a half, 1, 2, 4 or 8
// granules; the last range takes all larger blocks.
const numRanges = 7

// rangeOf returns the range of a block of this size.
func (a *Allocator) rangeOf(units uint32) int {
	switch log := bits.Len32(units-1) + unitShift - int(a.shift); { // of granules, rounded up
	case log <= -3:
		return 0
	case log <= -1:
		return 1
	default:
		return min(log+2, numRanges-1)
	}
}

// Holes are in lists by their sizes: one for each number of units below 64, then 32 to each power of two, as in TLSF
// (Masmano and others, 2004). The last added hole is first. A bitmap of two levels finds the next nonempty list.
const (
	numBins = sizebins.NumBins
	maxFit  = 4 // maximum number of holes of its own list that a request examines before it takes a larger one
)

type holes struct {
	heads [numBins]ref
	used  sizebins.Set // the lists that are not empty
	n     int          // holes
}

func binOf(units uint32) int { return sizebins.Of(uint64(units)) }

func (a *Allocator) addHole(at ref, r *span) {
	h, b := a.regions[r.region].holes, binOf(r.units)
	r.state = hole
	r.prev2, r.next2 = 0, h.heads[b]
	a.spans.at(r.next2).prev2 = at
	h.used.Add(b)
	h.heads[b] = at
	h.n++
}

func (a *Allocator) removeHole(r *span) {
	h := a.regions[r.region].holes
	h.n--
	a.spans.at(r.next2).prev2 = r.prev2
	if r.prev2 != 0 {
		a.spans.at(r.prev2).next2 = r.next2
		return
	}
	b := binOf(r.units)
	if h.heads[b] = r.next2; r.next2 == 0 {
		h.used.Remove(b)
	}
}

// fittingHole returns a hole of the request's range that is slightly larger than the request, or 0 if no listed hole
// fits: the first that fits among the first few of the request's own list, else one of the next list.
func (a *Allocator) fittingHole(units uint32) ref {
	h, own := &a.ranges[a.rangeOf(units)], binOf(units)
	at := h.heads[own]
	for looked := 0; at != 0; looked++ {
		if looked == maxFit {
			if b := h.used.Next(own + 1); b < numBins {
				return h.heads[b]
			}
		}
		r := a.spans.at(at)
		if r.units >= units {
			return at
		}
		at = r.next2
	}
	if b := h.used.Next(own + 1); b < numBins {
		return h.heads[b]
	}
	return 0
}

// eachHole visits the holes that fit, range by range, the request's own first. visit must not change holes unless it
// returns false.
func (a *Allocator) eachHole(units uint32, visit func(at ref, r *span) bool) {
	own := a.rangeOf(units)
	for i := range numRanges {
		if !a.eachHoleOf((own+i)%numRanges, units, visit) {
			return
		}
	}
}

// eachHoleOf visits the holes of a range that fit, smaller lists first, then the ends of its regions, until visit
// returns false. It returns visit's last result.
func (a *Allocator) eachHoleOf(number int, units uint32, visit func(at ref, r *span) bool) bool {
	h := &a.ranges[number]
	for b := h.used.Next(binOf(units)); b < numBins; b = h.used.Next(b + 1) {
		for at := h.heads[b]; at != 0; {
			r := a.spans.at(at)
			next := r.next2
			if r.units >= units && !visit(at, r) {
				return false
			}
			at = next
		}
	}
	for _, rg := range slices.Backward(a.regions) {
		if rg.holes != h || rg.tail == 0 {
			continue
		}
		if r := a.spans.at(rg.tail); r.units >= units && !visit(rg.tail, r) {
			return false
		}
	}
	return true
}
