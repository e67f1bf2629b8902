package tensor

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A thrifty allocator is a place's allocator with the place's options. Where there is no room, it takes back the memory of
// dropped storages and asks again.
type thrifty struct{ place *Place }

// Alloc implements mem.Allocator.
func (a thrifty) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator: a request has the options of both. It goes on as long as storages come and go, since
// another goroutine may have made room meanwhile, or taken it. It asks for good, so that a refusal counts as out of memory
// and is reported, only when nothing is left to take back. With NoRetry it asks once.
func (a thrifty) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if a.place.options != nil {
		o = o.Join(*a.place.options)
	}
	h := a.place.home
	if o.NoRetry {
		return mem.AllocWith(h.alloc, s, size, o)
	}
	changes, tentative := &h.ledger.changes, o
	tentative.Tentative = true
	b, err := mem.AllocWith(h.alloc, s, size, tentative)
	for errors.Is(err, mem.ErrNoMemory) {
		before := changes.Load()
		if h.ledger.reclaim() > 0 || changes.Load() != before {
			b, err = mem.AllocWith(h.alloc, s, size, tentative)
			continue
		}
		if b, err = mem.AllocWith(h.alloc, s, size, o); changes.Load() == before {
			break
		}
	}
	return b, err
}

// Free implements mem.Allocator.
func (a thrifty) Free(b mem.Block, used ...driver.Stream) { a.place.home.alloc.Free(b, used...) }

// Unwrap implements mem.Wrapper.
func (a thrifty) Unwrap() mem.Allocator { return a.place.home.alloc }
