package caching

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// An expandable is a reservation of more addresses than the device has memory. Pages are mapped into it on demand. A
// stream and pool have one, and get another when its addresses are used up. Its blocks cover the whole reservation;
// blocks without memory are unmapped.
type expandable struct {
	base  driver.Pointer
	size  int64         // of the reservation
	page  int64         // bytes of a page: 2 MiB in the small pool, the large segment size in the large
	small bool          // belongs to a small pool
	pages []driver.Page // by position, up to the highest ever mapped; a zero ID where no page is mapped
}

// growExpandable finds or makes a span of free and unmapped memory that is large enough, at the lowest possible
// address, and maps the missing pages. If memory runs out, the pages mapped so far stay cached.
func (a *Allocator) growExpandable(r *request) (blockRef, error) {
	p := r.pool
	slab := &p.sh.slab
	ref := p.findSpan(r.size)
	if ref == 0 {
		if size, class := a.reserveSize(p); r.size > size {
			r.addresses, r.class = size, class
			return 0, mem.ErrNoMemory
		}
		var err error
		if ref, err = a.reserve(p); err != nil {
			return 0, err
		}
	}
	blk := slab.at(ref)
	if blk.state == stateUnmapped {
		if err := a.mapSpan(p, ref, min(blk.size(), r.size)); err != nil {
			return 0, err
		}
	}
	for blk.size() < r.size {
		// The next block is unmapped, because ref starts a run that is long enough. Mapping merges ref into it.
		next := blk.next
		nextBlk := slab.at(next)
		if err := a.mapSpan(p, next, min(r.size-blk.size(), nextBlk.size())); err != nil {
			return 0, err
		}
		ref, blk = next, nextBlk
	}
	p.free.remove(blk.size(), uint64(blk.ptr))
	return ref, nil
}

// findSpan returns the first block of the lowest run of free and unmapped blocks that has at least size bytes and an
// unmapped block, or 0 if there is none.
func (p *shardPool) findSpan(size int64) blockRef {
	slab := &p.sh.slab
	vacant := func(ref blockRef) bool {
		return ref != 0 && (slab.at(ref).state == stateFree || slab.at(ref).state == stateUnmapped)
	}
	for _, ref := range p.unmapped {
		if prev := slab.at(ref).prev; vacant(prev) {
			ref = prev
		}
		var bytes int64
		for r := ref; bytes < size && vacant(r); r = slab.at(r).next {
			bytes += slab.at(r).size()
		}
		if bytes >= size {
			return ref
		}
	}
	return 0
}

func (c *Config) pageSize(p *shardPool) int64 {
	if p.small() {
		return smallBuffer
	}
	return c.LargeSegmentSize
}

// reserve makes a new expandable segment, all of it unmapped.
func (a *Allocator) reserve(p *shardPool) (blockRef, error) {
	page := a.cfg.pageSize(p)
	size, _ := a.reserveSize(p)
	base, err := a.vm.Reserve(size)
	if err != nil {
		return 0, err
	}
	sh := p.sh
	ex := &expandable{base: base, size: size, page: page, small: p.small()}
	i := slices.Index(sh.expandables, nil)
	if i < 0 {
		i = len(sh.expandables)
		sh.expandables = append(sh.expandables, nil)
	}
	sh.expandables[i] = ex
	ref, blk := sh.slab.newBlock()
	blk.init(base, size, 0, 0, p.index)
	sh.slab.inSegment(ref, uint32(i))
	p.addUnmapped(ref, blk)
	return ref, nil
}

// mapSpan maps pages to the first size bytes of an unmapped block, rounded up to whole pages, and makes them a free
// block.
func (a *Allocator) mapSpan(p *shardPool, ref blockRef, size int64) error {
	slab := &p.sh.slab
	blk := slab.at(ref)
	segment := slab.coldAt(ref).segment
	ex := p.sh.expandables[segment]
	mapped, err := a.mapPages(ex, blk.ptr, size)
	if err != nil {
		return err
	}
	ptr := blk.ptr
	p.dropUnmapped(ref)
	blk.state = stateFree
	if mapped < blk.size() {
		restRef, rest := slab.newBlock()
		rest.init(blk.ptr+driver.Pointer(mapped), blk.size()-mapped, ref, blk.next, blk.pool)
		slab.inSegment(restRef, segment)
		if rest.next != 0 {
			slab.at(rest.next).prev = restRef
		}
		blk.next = restRef
		blk.setSize(mapped)
		p.addUnmapped(restRef, rest)
	}
	p.mergeNeighbors(ref, blk, stateFree)
	p.putFree(ref, blk)
	a.reserved += mapped
	p.blockPool.reserved += mapped
	p.blockPool.addReserved(mapped)
	p.sh.stats.markChanged()
	p.stats.add(reservedBytes, mapped)
	a.totals.numDeviceAlloc++
	a.observe(mem.ActionSegmentMap, p, ptr, mapped)
	return nil
}

// mapPages creates the pages of [ptr, ptr+size) and maps them, all or none.
func (a *Allocator) mapPages(ex *expandable, ptr driver.Pointer, size int64) (int64, error) {
	first := int64(ptr-ex.base) / ex.page
	n := (size + ex.page - 1) / ex.page
	if more := first + n - int64(len(ex.pages)); more > 0 {
		ex.pages = append(ex.pages, make([]driver.Page, more)...)
	}
	pages := ex.pages[first : first+n]
	undo := func(created int64) {
		for i := range created {
			if err := a.vm.Drop(pages[i]); err != nil {
				a.orphans = append(a.orphans, pages[i])
			}
			pages[i] = driver.Page{}
		}
	}
	for i := range n {
		page, err := a.vm.Create(ex.page)
		if err != nil {
			undo(i)
			return 0, err
		}
		pages[i] = page
	}
	if err := a.vm.Map(ptr, pages...); err != nil {
		undo(n)
		return 0, err
	}
	return n * ex.page, nil
}

// unmapSpan waits for the stream's work and unmaps the whole pages inside a free block.
func (a *Allocator) unmapSpan(p *shardPool, ref blockRef) error {
	sh := p.sh
	slab := &sh.slab
	blk := slab.at(ref)
	segment := slab.coldAt(ref).segment
	ex := sh.expandables[segment]
	start := (int64(blk.ptr-ex.base) + ex.page - 1) / ex.page
	end := (int64(blk.ptr-ex.base) + blk.size()) / ex.page
	if start >= end {
		return nil
	}
	ptr, size := ex.base+driver.Pointer(start*ex.page), (end-start)*ex.page
	if err := sh.stream.Sync(context.Background()); err != nil && !errors.Is(err, driver.ErrClosed) {
		return fmt.Errorf("caching: wait for stream %d: %w", sh.stream.ID(), err)
	}
	if err := a.vm.Unmap(ptr, size); err != nil {
		return fmt.Errorf("caching: unmap %d bytes at %#x: %w", size, ptr, err)
	}
	for i := start; i < end; i++ {
		if err := a.vm.Drop(ex.pages[i]); err != nil {
			a.orphans = append(a.orphans, ex.pages[i])
		}
		ex.pages[i] = driver.Page{}
	}

	p.free.remove(blk.size(), uint64(blk.ptr))
	if before := int64(ptr - blk.ptr); before > 0 {
		bRef, b := slab.newBlock()
		b.init(blk.ptr, before, blk.prev, ref, blk.pool)
		slab.inSegment(bRef, segment)
		if b.prev != 0 {
			slab.at(b.prev).next = bRef
		}
		blk.prev = bRef
		p.putFree(bRef, b)
	}
	if after := int64(blk.ptr) + blk.size() - int64(ptr) - size; after > 0 {
		aRef, b := slab.newBlock()
		b.init(ptr+driver.Pointer(size), after, ref, blk.next, blk.pool)
		slab.inSegment(aRef, segment)
		if b.next != 0 {
			slab.at(b.next).prev = aRef
		}
		blk.next = aRef
		p.putFree(aRef, b)
	}
	blk.ptr = ptr
	blk.setSize(size)
	blk.state = stateUnmapped
	p.mergeNeighbors(ref, blk, stateUnmapped)
	p.addUnmapped(ref, blk)

	a.reserved -= size
	p.sh.stats.markChanged()
	p.stats.sub(reservedBytes, size)
	p.blockPool.reserved -= size
	p.blockPool.subReserved(size)
	a.totals.numDeviceFree++
	a.observe(mem.ActionSegmentUnmap, p, ptr, size)
	return nil
}

// releaseReservations releases the addresses of expandable segments without mapped pages.
func (a *Allocator) releaseReservations(p *shardPool) error {
	sh := p.sh
	var failures []error
	for i := 0; i < len(p.unmapped); {
		ref := p.unmapped[i]
		blk := sh.slab.at(ref)
		if blk.isSplit() {
			i++
			continue
		}
		segment := sh.slab.coldAt(ref).segment
		ex := sh.expandables[segment]
		if err := a.vm.Release(ex.base, ex.size); err != nil {
			failures = append(failures, fmt.Errorf("caching: release %d bytes of addresses at %#x: %w", ex.size,
				ex.base, err))
			i++
			continue
		}
		sh.expandables[segment] = nil
		p.dropUnmapped(ref)
		sh.slab.freeBlock(ref)
	}
	return errors.Join(failures...)
}

// AddPeer implements mem.PeerAdder: present and future expandable segments are mapped for dev, too. Without virtual
// memory there are none.
func (a *Allocator) AddPeer(dev driver.Device) error {
	if a.vm == nil {
		return nil
	}
	if err := a.vm.Add(dev); err != nil {
		return fmt.Errorf("caching: AddPeer: %w", err)
	}
	return nil
}

// ExportPages implements mem.PageExporter, for blocks of expandable segments (PyTorch's shareIpcHandle).
func (a *Allocator) ExportPages(
	p driver.Pointer, size int64,
) (base driver.Pointer, pages []driver.PageFile, err error) {
	if a.vm != nil {
		base, pages, err = a.vm.Export(p, size)
	}
	if err != nil {
		err = fmt.Errorf("caching: ExportPages: %w", err)
	}
	return base, pages, err
}

func (p *shardPool) addUnmapped(ref blockRef, blk *block) {
	blk.state = stateUnmapped
	i, _ := p.searchUnmapped(blk.ptr)
	p.unmapped = slices.Insert(p.unmapped, i, ref)
}

func (p *shardPool) dropUnmapped(ref blockRef) {
	i, _ := p.searchUnmapped(p.sh.slab.at(ref).ptr)
	p.unmapped = slices.Delete(p.unmapped, i, i+1)
}

func (p *shardPool) searchUnmapped(ptr driver.Pointer) (int, bool) {
	return slices.BinarySearchFunc(p.unmapped, ptr, func(ref blockRef, ptr driver.Pointer) int {
		switch at := p.sh.slab.at(ref).ptr; {
		case at < ptr:
			return -1
		case at > ptr:
			return 1
		}
		return 0
	})
}
