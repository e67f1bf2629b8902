package paged

import "github.com/ashlar-go/ashlar/mem/internal/sizebins"

// Holes are in lists by their sizes: one for each number of units below 64, then 32 to each power of two, as in TLSF
// (Masmano and others, 2004). The last added hole is first. A bitmap of two levels finds the next nonempty list.
const (
	numBins = sizebins.NumBins
	maxFit  = 4 // maximum number of holes of its own list that a request examines before it takes a larger one
)

// holes are the listed holes of a space.
type holes struct {
	heads [numBins]ref
	used  sizebins.Set // the lists that are not empty
	n     int          // holes
}

func binOf(units uint32) int { return sizebins.Of(uint64(units)) }

// addHole lists a hole of a region.
func (a *Allocator) addHole(rg *region, at ref, r *span) {
	r.state = hole
	if rg.byAddress {
		rg.listPlace(at, r)
		return
	}
	h, b := &rg.space.holes, binOf(r.units)
	r.prev2, r.next2 = 0, h.heads[b]
	a.spans.at(r.next2).prev2 = at
	h.used.Add(b)
	h.heads[b] = at
	h.n++
}

// removeHole removes a hole of a region from its list.
func (a *Allocator) removeHole(rg *region, r *span) {
	if rg.byAddress {
		rg.unlistPlace(r)
		return
	}
	h := &rg.space.holes
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

// fittingHole returns a hole of a space that is slightly larger than a request, or 0 if no listed hole fits: the first
// that fits among the first few of the request's own list, else one of the next list.
func (a *Allocator) fittingHole(s *space, units uint32) ref {
	h, own := &s.holes, binOf(units)
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

// eachHole visits the holes of a space that fit, smaller lists first, then the ends of regions. visit must not change
// holes unless it returns false.
func (a *Allocator) eachHole(s *space, units uint32, visit func(at ref, r *span) bool) {
	h := &s.holes
	for b := h.used.Next(binOf(units)); b < numBins; b = h.used.Next(b + 1) {
		for at := h.heads[b]; at != 0; {
			r := a.spans.at(at)
			next := r.next2
			if r.units >= units && !visit(at, r) {
				return
			}
			at = next
		}
	}
	for i := len(s.regions) - 1; i >= 0; i-- {
		at := a.regions[s.regions[i]].tail
		if r := a.spans.at(at); at != 0 && r.units >= units && !visit(at, r) {
			return
		}
	}
}
