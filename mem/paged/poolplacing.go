package paged

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
)

// errStale means that a hole has mappings that graphs need, of pages that are in use elsewhere, or of one page twice.
var errStale = errors.New("paged: mappings that graphs use are in the way")

// placePrivate allocates a block from a private pool. If the stream cannot be ordered after the users of some memory,
// because of a capture, it takes other memory.
func (a *Allocator) placePrivate(r *request, units uint32) (ref, error) {
	if at, err := a.placeInPool(r, units); !errors.Is(err, driver.ErrCapturing) {
		return at, err
	}
	r.avoid = a.toAvoid(r.stream)
	return a.placeInPool(r, units)
}

// placeInPool takes a hole whose addresses have the pages that they need, or can get them: one that needs no new
// mapping, if possible. Otherwise it takes fresh addresses, and if there is no memory for these, the hole that needs
// the fewest pages.
func (a *Allocator) placeInPool(r *request, units uint32) (ref, error) {
	usable, least := a.poolHoles(r, units)
	var captured error
	for _, at := range usable {
		err := a.allocateSpan(r, at, units)
		switch {
		case err == nil:
			return at, nil
		case errors.Is(err, driver.ErrCapturing):
			captured = err
		case !isShortage(err) && err != errStale:
			return 0, err
		}
	}
	at, err := a.placeFresh(r, units)
	if err == nil || !isShortage(err) {
		return at, err
	}
	if least != 0 {
		switch failed := a.allocateSpan(r, least, units); {
		case failed == nil:
			return least, nil
		case errors.Is(failed, driver.ErrCapturing):
			captured = failed
		case !isShortage(failed) && failed != errStale:
			return 0, failed
		}
	}
	if captured != nil {
		return 0, captured
	}
	return 0, err
}

// isShortage reports whether an error is a *shortage.
func isShortage(err error) bool {
	if err == nil {
		return false // short would be allocated
	}
	var short *shortage
	return errors.As(err, &short)
}

const maxPoolHoles = 4 // that a request to a private pool tries before it takes fresh addresses

// poolHoles returns holes for a request to a private pool, those that need no new mappings first, and the one that
// needs the fewest unused pages, or 0. It leaves out holes with mappings that cannot be removed.
func (a *Allocator) poolHoles(r *request, units uint32) (usable []ref, least ref) {
	var partly []ref
	fewest, looked := int64(1)<<62, 0
	a.eachHole(r.space, units, func(at ref, sp *span) bool {
		looked++
		if a.avoids(r.avoid, sp.deps.Users) {
			return looked < maxHoles
		}
		nothing, stale := a.missing(a.granules(sp, units))
		if stale > 0 && r.space.fixed() {
			return looked < maxHoles
		}
		if n := a.unused(sp, units); n < fewest {
			fewest, least = n, at
		}
		switch {
		case nothing+stale == 0:
			usable = append(usable, at)
		case len(partly) < maxPoolHoles:
			partly = append(partly, at)
		}
		return len(usable) < maxPoolHoles && looked < maxHoles
	})
	return append(usable, partly...), least
}

// victims returns the streams whose memory the request must not drop. It asks the device once for a request.
func (a *Allocator) victims(r *request) avoidance {
	if a.main.unused > 0 && !r.asked {
		r.captured, r.asked = a.capturing(), true
	}
	return r.captured
}
