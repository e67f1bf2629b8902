package layer

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/spans"
	"github.com/ashlar-go/ashlar/mem/internal/owners"
)

// A TenantDevice is a device that records which tenant used each byte of its memory last. See NewTenantDevice.
type TenantDevice struct {
	driver.Device
	tenants atomic.Uint64 // so far

	mu       sync.Mutex                     // a leaf
	places   spans.Table[*owners.Memory]    // blocks and mapped pages by address; a page may be at several
	pages    map[driver.Page]*owners.Memory // that are not dropped
	unclosed []driver.Stream                // whose Close failed, after wipes in captures
}

// NewTenantDevice returns dev for an allocator whose memory several tenants share: see NewIsolatedQuotas. It records
// the tenant that used each byte last, also where an allocator maps one page at several addresses, or moves it to
// another address. Memory that the device has just allocated has no known user: a driver may return memory that this
// process freed before, with its contents.
//
// Use the device for allocators only, and dev itself for streams, peers and backends. Each request of a tenant takes
// its lock, which is common to all tenants, for less than 100 ns; for blocks beyond 2 MiB a little more than 1 ns for
// each MiB is added. It is safe for concurrent use.
func NewTenantDevice(dev driver.Device) *TenantDevice {
	return &TenantDevice{Device: dev, pages: map[driver.Page]*owners.Memory{}}
}

// Underlying returns the device that NewTenantDevice was given.
func (d *TenantDevice) Underlying() driver.Device { return d.Device }

// newOwner returns the ID of a new tenant. IDs are not reused.
func (d *TenantDevice) newOwner() owners.ID { return owners.First + owners.ID(d.tenants.Add(1)-1) }

// Alloc implements driver.Device.
func (d *TenantDevice) Alloc(size int64) (driver.Pointer, error) {
	p, err := d.Device.Alloc(size)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.put(p, size, owners.New(size, owners.Fresh))
	}
	return p, err
}

// Free implements driver.Device.
func (d *TenantDevice) Free(p driver.Pointer) error {
	d.mu.Lock()
	block, found := d.takeBlock(p) // first, because the address may be reused as soon as the device has it
	d.mu.Unlock()
	err := d.Device.Free(p)
	if err != nil && found {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.put(p, block.Size, block.Value)
	}
	return err
}

// put records memory at an address. The caller holds mu.
func (d *TenantDevice) put(p driver.Pointer, size int64, m *owners.Memory) {
	d.remove(p, size)
	d.places.Insert(spans.Entry[*owners.Memory]{At: p, Size: size, Value: m})
}

// remove forgets the memory at [p, p+size). The caller holds mu.
func (d *TenantDevice) remove(p driver.Pointer, size int64) {
	from := d.places.After(p)
	to := from
	for to < len(d.places) && d.places[to].At < p+driver.Pointer(size) {
		to++
	}
	d.places.Remove(from, to)
}

// takeBlock forgets the block at p and returns it. The caller holds mu.
func (d *TenantDevice) takeBlock(p driver.Pointer) (e spans.Entry[*owners.Memory], found bool) {
	i := d.places.Starting(p)
	if i < 0 {
		return e, false
	}
	e = d.places[i]
	d.places.Remove(i, i+1)
	return e, true
}

// VirtualMemory implements driver.Device.
func (d *TenantDevice) VirtualMemory() driver.VirtualMemory {
	if vm := d.Device.VirtualMemory(); vm != nil {
		return tenantMemory{vm, d}
	}
	return nil
}

// tenantMemory is the virtual memory of a TenantDevice. A page that it has not created, such as one that another
// process shares, has no known user each time it is mapped.
type tenantMemory struct {
	driver.VirtualMemory
	d *TenantDevice
}

func (m tenantMemory) Create(size int64) (driver.Page, error) {
	return m.d.create(size, m.VirtualMemory.Create)
}

func (d *TenantDevice) create(size int64, create func(int64) (driver.Page, error)) (driver.Page, error) {
	page, err := create(size)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.pages[page] = owners.New(size, owners.Fresh)
	}
	return page, err
}

// Sharing implements driver.Device.
func (d *TenantDevice) Sharing() driver.Sharing {
	if s := d.Device.Sharing(); s != nil {
		return tenantSharing{s, d}
	}
	return nil
}

type tenantSharing struct {
	driver.Sharing
	d *TenantDevice
}

func (s tenantSharing) CreateShared(size int64) (driver.Page, error) {
	return s.d.create(size, s.Sharing.CreateShared)
}

func (m tenantMemory) Drop(page driver.Page) error {
	err := m.VirtualMemory.Drop(page)
	if err == nil {
		m.d.mu.Lock()
		defer m.d.mu.Unlock()
		delete(m.d.pages, page) // where it is mapped it stays known
	}
	return err
}

func (m tenantMemory) Map(at driver.Pointer, pages ...driver.Page) error {
	if err := m.VirtualMemory.Map(at, pages...); err != nil {
		return err
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	for _, page := range pages {
		memory := m.d.pages[page]
		if memory == nil {
			memory = owners.New(page.Size, owners.Unknown)
		}
		m.d.put(at, page.Size, memory)
		at += driver.Pointer(page.Size)
	}
	return nil
}

func (m tenantMemory) Unmap(at driver.Pointer, size int64) error {
	err := m.VirtualMemory.Unmap(at, size)
	if err == nil {
		m.d.mu.Lock()
		defer m.d.mu.Unlock()
		m.d.remove(at, size)
	}
	return err
}
