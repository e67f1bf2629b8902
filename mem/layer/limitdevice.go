package layer

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A LimitedDevice is a device with a limit on its allocated memory. See NewLimitedDevice.
type LimitedDevice struct {
	driver.Device
	limit int64
	name  string

	mu     sync.Mutex // a leaf
	taken  int64      // bytes, including requests in progress
	blocks map[driver.Pointer]int64
	pages  map[uint64]*limitedPage // by ID, until they are dropped and no longer mapped
	mapped map[driver.Pointer]*limitedPage
}

// A limitedPage is a page of virtual memory.
type limitedPage struct {
	id      uint64
	size    int64
	places  int // number of its mappings
	dropped bool
}

// NewLimitedDevice returns dev for allocators that may take at most limit bytes of its memory. Beyond that Alloc and
// Create fail with a *mem.LimitError; Available returns the rest. An allocator then behaves as on a full device: it
// returns cached memory, compacts, and asks again. Its out-of-memory error explains the limit if mem.Open made it. So
// the limit bounds the reserved memory of any allocator; a Limiter bounds live blocks only. Sizes are rounded up to the
// device's alignment; pages count until they are dropped and unmapped.
//
// Errors call the limit name, such as "the engine's MemoryLimit". A limit that is not positive panics. Use the device
// for allocators only, and dev itself for streams, peers and backends. Page-locked host memory does not count. It is
// safe for concurrent use.
func NewLimitedDevice(dev driver.Device, limit int64, name string) *LimitedDevice {
	if limit <= 0 {
		panic(fmt.Sprintf("layer: NewLimitedDevice with %d bytes: want a positive limit", limit))
	}
	return &LimitedDevice{
		Device: dev, limit: limit, name: name, blocks: map[driver.Pointer]int64{}, pages: map[uint64]*limitedPage{},
		mapped: map[driver.Pointer]*limitedPage{},
	}
}

// Underlying returns the device that NewLimitedDevice was given.
func (d *LimitedDevice) Underlying() driver.Device { return d.Device }

// Limit returns the limit in bytes.
func (d *LimitedDevice) Limit() int64 { return d.limit }

// Taken returns the number of bytes that are allocated from the device through d.
func (d *LimitedDevice) Taken() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

// Available implements driver.Device: the free memory is at most the rest of the limit.
func (d *LimitedDevice) Available() (free, total int64, err error) {
	free, total, err = d.Device.Available()
	return min(free, d.limit-d.Taken()), total, err
}

// Alloc implements driver.Device.
func (d *LimitedDevice) Alloc(size int64) (driver.Pointer, error) {
	if size <= 0 {
		return d.Device.Alloc(size) // which panics
	}
	counted := size
	if unit := max(d.Info().Alignment, 1); size <= math.MaxInt64-unit {
		counted = (size + unit - 1) / unit * unit
	}
	if err := d.take(size, counted); err != nil {
		return 0, err
	}
	p, err := d.Device.Alloc(size)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.taken -= counted
		return 0, err
	}
	d.blocks[p] = counted
	return p, nil
}

// take counts bytes, or returns the error of the limit.
func (d *LimitedDevice) take(size, counted int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if counted > d.limit-d.taken {
		return &mem.LimitError{Want: size, Block: counted, Live: d.taken, Limit: d.limit, Name: d.name}
	}
	d.taken += counted
	return nil
}

// Free implements driver.Device.
func (d *LimitedDevice) Free(p driver.Pointer) error {
	d.mu.Lock()
	counted := d.blocks[p]
	delete(d.blocks, p) // first, because the address may be reused as soon as the device has it
	d.mu.Unlock()
	err := d.Device.Free(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.blocks[p] = counted
		return err
	}
	d.taken -= counted
	return nil
}

// VirtualMemory implements driver.Device.
func (d *LimitedDevice) VirtualMemory() driver.VirtualMemory {
	if vm := d.Device.VirtualMemory(); vm != nil {
		return limitedMemory{vm, d}
	}
	return nil
}

// Sharing implements driver.Device.
func (d *LimitedDevice) Sharing() driver.Sharing {
	if s := d.Device.Sharing(); s != nil {
		return limitedSharing{s, d}
	}
	return nil
}

type limitedSharing struct {
	driver.Sharing
	d *LimitedDevice
}

func (s limitedSharing) CreateShared(size int64) (driver.Page, error) {
	return s.d.create(size, s.Sharing.CreateShared)
}

type limitedMemory struct {
	driver.VirtualMemory
	d *LimitedDevice
}

func (m limitedMemory) Create(size int64) (driver.Page, error) {
	return m.d.create(size, m.VirtualMemory.Create)
}

func (d *LimitedDevice) create(size int64, create func(int64) (driver.Page, error)) (driver.Page, error) {
	if err := d.take(size, size); err != nil {
		return driver.Page{}, err
	}
	page, err := create(size)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.taken -= size
		return driver.Page{}, err
	}
	d.pages[page.ID] = &limitedPage{id: page.ID, size: size}
	return page, nil
}

func (m limitedMemory) Drop(page driver.Page) error {
	if err := m.VirtualMemory.Drop(page); err != nil {
		return err
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if p := m.d.pages[page.ID]; p != nil {
		p.dropped = true
		m.d.reclaim(p)
	}
	return nil
}

// reclaim ends the count of a page that the device has freed. The caller holds mu.
func (d *LimitedDevice) reclaim(p *limitedPage) {
	if p.dropped && p.places == 0 {
		delete(d.pages, p.id)
		d.taken -= p.size
	}
}

func (m limitedMemory) Map(at driver.Pointer, pages ...driver.Page) error {
	if err := m.VirtualMemory.Map(at, pages...); err != nil {
		return err
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	for _, page := range pages {
		if p := m.d.pages[page.ID]; p != nil {
			p.places++
			m.d.mapped[at] = p
		}
		at += driver.Pointer(page.Size)
	}
	return nil
}

func (m limitedMemory) Unmap(at driver.Pointer, size int64) error {
	if err := m.VirtualMemory.Unmap(at, size); err != nil {
		return err
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	for end := at + driver.Pointer(size); at < end; {
		p := m.d.mapped[at]
		if p == nil { // imported from another process
			break
		}
		delete(m.d.mapped, at)
		at += driver.Pointer(p.size)
		p.places--
		m.d.reclaim(p)
	}
	return nil
}

// explain completes an allocator's out-of-memory error, which describes the device as the limit presents it. It adds
// the free memory of the device itself, and the limit, if it caused the failure and not only the allocator's own limit.
func (d *LimitedDevice) explain(err error) error {
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) || oom.TooLarge {
		return err
	}
	if free, _, unknown := d.Device.Available(); unknown == nil {
		oom.Free = free
	}
	needed := oom.Needed // by the allocator's own limit
	if needed == 0 {
		needed = d.Taken() + oom.Segment
		if refused := (*mem.LimitError)(nil); errors.As(oom.Cause, &refused) {
			needed = max(needed, refused.Live+refused.Block)
		}
	}
	if needed > d.limit {
		oom.Allowed, oom.LimitName, oom.Needed = d.limit, d.name, needed
	}
	return err
}

// Over returns an allocator over a, an allocator of the device's memory, whose out-of-memory errors explain the limit.
// mem.Open calls it.
func (d *LimitedDevice) Over(a mem.Allocator) mem.Allocator { return &deviceLimited{Pass{a}, d} }

// deviceLimited is an allocator over a LimitedDevice.
type deviceLimited struct {
	Pass
	dev *LimitedDevice
}

// Alloc implements mem.Allocator.
func (l *deviceLimited) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := l.Below.Alloc(s, size)
	if err != nil {
		return mem.Block{}, l.dev.explain(err)
	}
	return b, nil
}

// AllocWith implements mem.OptionsAllocator.
func (l *deviceLimited) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(l.Below, s, size, o)
	if err != nil {
		return mem.Block{}, l.dev.explain(err)
	}
	return b, nil
}

// Limit returns the device's limit: see LimitOf.
func (l *deviceLimited) Limit() int64 { return l.dev.limit }
