package layer

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// parts are several allocators below a layer, and the live blocks of all, each with the index of its allocator.
type parts struct {
	all                []mem.Allocator
	blockTable[uint16] // index in all
}

func newParts(name string, all ...mem.Allocator) parts {
	return parts{all, blockTable[uint16]{name: name}}
}

// Free implements mem.Allocator. The block goes back to the allocator it came from.
func (p *parts) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	rec := p.remove(b, used)
	p.all[rec.value].Free(rec.below, used...)
}

// Movable implements mem.Mover. It returns false if the allocator that the block came from is no Mover.
func (p *parts) Movable(b mem.Block, h mem.Holder) bool {
	return p.movable(b, h, func(part uint16) mem.Allocator { return p.all[part] })
}

// EmptyCache implements mem.Trimmer, for all allocators in order. The error joins theirs.
func (p *parts) EmptyCache() error {
	return emptyCaches(p.all...)
}

// emptyCaches empties the caches of several allocators. An error does not stop it.
func emptyCaches(all ...mem.Allocator) error {
	var errs []error
	for _, a := range all {
		if t, ok := mem.Find[mem.Trimmer](a); ok {
			errs = append(errs, t.EmptyCache())
		}
	}
	return errors.Join(errs...)
}
