package layer

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Fallback allocator asks a second allocator when the first has no room. See NewFallback.
type Fallback struct{ parts }

// NewFallback returns an allocator that asks first and, if that has no room, asks second, once. The second has host
// memory behind that of a GPU, for example, or is a private pool behind the default one. It is RMM's
// failure_alternate_resource_adaptor. A block is freed to the allocator it came from. Only errors that match
// mem.ErrNoMemory cause a fallback. For more than two allocators, use a Fallback of a Fallback. A warm call takes one
// short lock.
func NewFallback(first, second mem.Allocator) *Fallback {
	return &Fallback{newParts("Fallback", first, second)}
}

// Alloc implements mem.Allocator. If neither has room, the error joins both errors.
func (f *Fallback) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return f.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. NoRetry applies to each of the two; the second is asked all the same.
func (f *Fallback) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	part := uint16(0)
	b, err := mem.AllocWith(f.all[0], s, size, o)
	if err != nil && errors.Is(err, mem.ErrNoMemory) {
		part = 1
		var also error
		if b, also = mem.AllocWith(f.all[1], s, size, o); also != nil {
			err = errors.Join(err, also)
		} else {
			err = nil
		}
	}
	if err != nil || b.Ptr == 0 {
		return mem.Block{}, err
	}
	return f.add(s.ID(), size, b, b, part), nil
}

// Unwrap implements mem.Wrapper. It returns the first allocator, so mem.Find finds its statistics. Use the second
// allocator for those of the second.
func (f *Fallback) Unwrap() mem.Allocator { return f.all[0] }
