package bfc

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
)

// pages is a range of addresses whose front is mapped to memory. It is for one goroutine at a time.
type pages struct {
	vm          *peers.Memory
	granularity int64
	base        driver.Pointer
	size        int64 // reserved
	mapped      int64
	list        []driver.Page // mapped, in order
	orphans     []driver.Page // unmapped pages that the device failed to drop
}

// openPages reserves addresses for limit bytes.
func openPages(dev driver.Device, limit int64) (*pages, error) {
	p := &pages{vm: peers.Of(dev), granularity: max(unit, dev.Info().Granularity)}
	p.size = roundUp(max(1, limit), p.granularity)
	var err error
	if p.base, err = p.vm.Reserve(p.size); err != nil {
		return nil, fmt.Errorf("bfc: %d bytes of addresses: %w", p.size, err)
	}
	return p, nil
}

// extend maps size more bytes, and returns their address. It first tries again to drop orphans.
func (p *pages) extend(size int64) (driver.Pointer, error) {
	_ = p.dropOrphans() // the next call tries the rest again
	page, err := p.vm.Create(size)
	if err != nil {
		return 0, err
	}
	at := p.base + driver.Pointer(p.mapped)
	if err := p.vm.Map(at, page); err != nil {
		p.orphans = append(p.orphans, page)
		return 0, errors.Join(err, p.dropOrphans())
	}
	p.list = append(p.list, page)
	p.mapped += size
	return at, nil
}

// unmap removes all memory, except the first page if kept is its size. No stream may use the memory any more. If it
// fails nothing has changed; pages that the device does not free become orphans.
func (p *pages) unmap(kept int64) error {
	if err := p.vm.Unmap(p.base+driver.Pointer(kept), p.mapped-kept); err != nil {
		return err
	}
	n := 0
	if kept > 0 {
		n = 1
	}
	p.orphans = append(p.orphans, p.list[n:]...)
	p.list, p.mapped = p.list[:n], kept
	return nil
}

func (p *pages) dropOrphans() error {
	var refused []error
	left := p.orphans[:0]
	for _, page := range p.orphans {
		if err := p.vm.Drop(page); err != nil {
			refused = append(refused, err)
			left = append(left, page)
		}
	}
	p.orphans = left
	return errors.Join(refused...)
}

// AddPeer implements mem.PeerAdder: present and future pages are mapped for dev, too. Without Config.Virtual there are
// no pages.
func (a *Allocator) AddPeer(dev driver.Device) error {
	if a.pages == nil {
		return nil
	}
	if err := a.pages.vm.Add(dev); err != nil {
		return fmt.Errorf("bfc: AddPeer: %w", err)
	}
	return nil
}

// ExportPages implements mem.PageExporter. Without Config.Virtual there are no pages.
func (a *Allocator) ExportPages(
	p driver.Pointer, size int64,
) (base driver.Pointer, pages []driver.PageFile, err error) {
	if a.pages != nil {
		base, pages, err = a.pages.vm.Export(p, size)
	}
	if err != nil {
		err = fmt.Errorf("bfc: ExportPages: %w", err)
	}
	return base, pages, err
}

// close releases the addresses, none of which is mapped.
func (p *pages) close() error { return p.vm.Release(p.base, p.size) }
