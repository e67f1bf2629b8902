// Package peers provides a device's virtual memory, shared with other devices and processes.
package peers

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
)

// A Memory is a device's virtual memory, for one allocator. Its peers may use all pages that it has mapped and will
// map, as PyTorch's expandable segments are mapped for the devices with peer access. It is safe for concurrent use.
type Memory struct {
	driver.VirtualMemory
	dev     driver.Device
	sharing driver.Sharing // nil: other processes cannot use the memory

	mu      sync.Mutex // held while the device works
	mapped  map[driver.Pointer]mappedPage
	largest int64 // size of the largest page that was ever mapped
	peers   []driver.Device
}

// A mappedPage is a page at an address.
type mappedPage struct {
	page    driver.Page
	file    *os.File         // set while it is exported
	exports []driver.Pointer // the starts of the ranges that were exported
}

// Of returns dev's virtual memory, or nil if it has none.
func Of(dev driver.Device) *Memory {
	vm := dev.VirtualMemory()
	if vm == nil {
		return nil
	}
	return &Memory{
		VirtualMemory: vm, dev: Underlying(dev), sharing: dev.Sharing(), mapped: map[driver.Pointer]mappedPage{},
	}
}

// Underlying returns the device, below a layer.LimitedDevice or TenantDevice, that peers need.
func Underlying(dev driver.Device) driver.Device {
	for {
		wrapper, ok := dev.(interface{ Underlying() driver.Device })
		if !ok {
			return dev
		}
		dev = wrapper.Underlying()
	}
}

// Map implements driver.VirtualMemory. If a peer cannot be let use the pages, they are not mapped.
func (m *Memory) Map(p driver.Pointer, pages ...driver.Page) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.VirtualMemory.Map(p, pages...); err != nil {
		return err
	}
	var size int64
	for _, page := range pages {
		size += page.Size
	}
	for _, peer := range slices.Clone(m.peers) {
		if err := m.share(p, size, peer); err != nil {
			return errors.Join(err, m.VirtualMemory.Unmap(p, size))
		}
	}
	for _, page := range pages {
		m.mapped[p] = mappedPage{page: page}
		m.largest = max(m.largest, page.Size)
		p += driver.Pointer(page.Size)
	}
	return nil
}

// Unmap implements driver.VirtualMemory.
func (m *Memory) Unmap(p driver.Pointer, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.VirtualMemory.Unmap(p, size); err != nil {
		return err
	}
	for end := p + driver.Pointer(size); p < end; {
		mp := m.mapped[p]
		if mp.file != nil {
			_ = mp.file.Close() // processes that opened the page have their own descriptors
		}
		delete(m.mapped, p)
		p += driver.Pointer(max(mp.page.Size, 1))
	}
	return nil
}

// Add lets work on dev use all pages that are mapped, and those that will be, until it is closed. Adding it twice, and
// the memory's own device, is a no-op. The error matches driver.ErrUnsupported if the devices are not linked; after an
// error dev may use some of the pages that are mapped, and none that will be.
func (m *Memory) Add(dev driver.Device) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if dev == m.dev || slices.Contains(m.peers, dev) {
		return nil
	}
	if err := linked(dev, m.dev); err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(m.mapped)) {
		if err := m.dev.Peers().Share(p, m.mapped[p].page.Size, dev); err != nil {
			return err
		}
	}
	m.peers = append(m.peers, dev)
	return nil
}

// linked returns an error if work on dev cannot use memory of other.
func linked(dev, other driver.Device) error {
	can := false
	if peers := dev.Peers(); peers != nil && other.Peers() != nil {
		var err error
		if can, err = peers.CanAccess(other); err != nil {
			return err
		}
	}
	if !can {
		return &driver.Error{
			Call: "Peers.Share", Code: driver.ErrUnsupported,
			Detail: fmt.Sprintf("%s %d does not reach the memory of %s %d", dev.Info().Driver, dev.Info().Ordinal,
				other.Info().Driver, other.Info().Ordinal),
		}
	}
	return nil
}

// share lets a peer use mapped memory. It removes a peer that was closed.
func (m *Memory) share(p driver.Pointer, size int64, peer driver.Device) error {
	err := m.dev.Peers().Share(p, size, peer)
	if errors.Is(err, driver.ErrClosed) {
		m.peers = slices.DeleteFunc(m.peers, func(d driver.Device) bool { return d == peer })
		return nil
	}
	return err
}
