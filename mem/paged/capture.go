package paged

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// errCaptured means that a capture prevents waiting for the users of some memory.
var errCaptured = &driver.Error{Call: "Stream.WaitFor", Code: driver.ErrCapturing, Detail: "the memory was used by, " +
	"or is for, a stream that captures"}

// placeAvoiding allocates memory that no capturing stream has used or, if the request's stream captures, that no other
// stream has used: from another hole, or at new addresses. If there is no such memory, it returns the error that it was
// given.
func (a *Allocator) placeAvoiding(r *request, units uint32, why error) (ref, error) {
	r.avoid = a.toAvoid(r.stream)
	var holes []ref
	a.eachHole(r.space, units, func(at ref, sp *span) bool {
		if !a.avoids(r.avoid, sp.deps.Users) {
			holes = append(holes, at)
		}
		return true
	})
	for _, at := range holes {
		err := a.allocateSpan(r, at, units)
		if err == nil {
			return at, nil
		}
		var short *shortage
		if !errors.Is(err, driver.ErrCapturing) && !errors.As(err, &short) {
			return 0, err
		}
	}
	at, err := a.placeFresh(r, units)
	var short *shortage
	if errors.As(err, &short) {
		return 0, why
	}
	return at, err
}

// An avoidance is the streams whose memory a request must not take: the given streams, or all others.
type avoidance struct {
	streams reuse.Set
	others  bool
}

// toAvoid returns the streams that s cannot wait for now.
func (a *Allocator) toAvoid(s driver.Stream) avoidance {
	if a.streams.NotCapturing(s) != nil {
		return avoidance{a.streams.Register(s), true}
	}
	return a.capturing()
}

// capturing returns the streams that capture, for which no other can wait.
func (a *Allocator) capturing() (avoid avoidance) {
	for s := range a.streams.Registered() {
		if a.streams.NotCapturing(s) != nil {
			avoid.streams = a.streams.Union(avoid.streams, a.streams.Register(s))
		}
	}
	return avoid
}

// avoids reports whether memory used by these streams is to be avoided.
func (a *Allocator) avoids(avoid avoidance, users reuse.Set) bool {
	if avoid.others {
		return !a.streams.Subset(users, avoid.streams)
	}
	return a.streams.Overlap(users, avoid.streams)
}

// placeFresh allocates a block at addresses that no block has had.
func (a *Allocator) placeFresh(r *request, units uint32) (ref, error) {
	for n := len(r.space.regions) - 1; n >= 0; n-- {
		rg := a.regions[r.space.regions[n]]
		if rg.tail == 0 {
			continue
		}
		end := len(rg.at) // from here on no block has been, and nothing is mapped
		for end > int(rg.reached) && rg.at[end-1] == 0 {
			end--
		}
		used := rg.base + driver.Pointer(int64(end)*a.granule)
		at := rg.tail
		sp := a.spans.at(at)
		if sp.end() < used || (sp.end()-max(sp.ptr, used))/unit < driver.Pointer(units) {
			continue
		}
		if sp.ptr >= used {
			sp.deps = reuse.Dependencies{}
			return at, a.allocateSpan(r, at, units)
		}
		// The part of the tail that blocks have used becomes a hole.
		i, rest := a.spans.alloc()
		rest.ptr, rest.units, rest.region = used, uint32((sp.end()-used)/unit), sp.region
		rest.prev, rest.next, rest.state = at, 0, tail
		sp.units -= rest.units
		sp.next, rg.tail = i, i
		a.addHole(rg, at, sp)
		err := a.allocateSpan(r, i, units)
		if err != nil {
			a.removeHole(rg, sp)
			a.join(at, sp, i, rest)
			sp.state, rg.tail = tail, at
			return 0, err
		}
		return i, nil
	}
	at, err := a.newRegion(r, units)
	if err != nil {
		return 0, err
	}
	return at, a.allocateSpan(r, at, units)
}
