package tensor

import (
	"errors"
	"math"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A reclaimingAllocator is a place's allocator with the place's options. If there is no room, it reclaims dropped
// storages and tries again.
type reclaimingAllocator struct{ place *Place }

// Alloc implements mem.Allocator.
func (a reclaimingAllocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator; the request's options are joined with the place's. It retries as long as
// the set of storages changes, since another goroutine may have freed or allocated memory. These attempts are
// tentative; only when nothing is left to reclaim does it make a final request, whose failure counts and is reported as
// out of memory. Memory that others free does not help a request beyond the limit or the device. With NoRetry it makes
// one request.
func (a reclaimingAllocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if a.place.options != nil {
		o = o.Join(*a.place.options)
	}
	h := a.place.state
	if o.NoRetry {
		return mem.AllocWith(h.alloc, s, size, o)
	}
	changes, tentative := &h.live.changes, o
	tentative.Tentative = true
	b, err := mem.AllocWith(h.alloc, s, size, tentative)
	for errors.Is(err, mem.ErrNoMemory) {
		before := changes.Load()
		beyond := size > h.most()
		if h.live.reclaim() > 0 || changes.Load() != before && !beyond {
			b, err = mem.AllocWith(h.alloc, s, size, tentative)
			continue
		}
		if b, err = mem.AllocWith(h.alloc, s, size, o); changes.Load() == before || beyond {
			break
		}
	}
	return b, err
}

// most returns the size of the largest request that could ever be served: by the limit or the device's memory.
func (h *deviceState) most() int64 {
	most := int64(math.MaxInt64)
	if limit, ok := mem.LimitOf(h.alloc); ok {
		most = limit
	}
	if total := h.device.Info().TotalMemory; total > 0 {
		most = min(most, total)
	}
	return most
}

// Free implements mem.Allocator.
func (a reclaimingAllocator) Free(b mem.Block, used ...driver.Stream) {
	a.place.state.alloc.Free(b, used...)
}

// Unwrap implements mem.Wrapper.
func (a reclaimingAllocator) Unwrap() mem.Allocator { return a.place.state.alloc }
