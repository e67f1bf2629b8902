//go:build linux

package ipc

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// memory is the memory of a block: a page mapped at reserved addresses, or an allocation, own or imported. It records
// the resources that are left to free, so that a failed call can be repeated.
type memory struct {
	ptr      driver.Pointer
	size     int64
	page     driver.Page // zero: dropped, or an allocation
	mapped   bool
	reserved bool
	release  func() error // of an allocation: Free or Forget; nil once it is done
}

// mapPage maps a page at addresses of its own. The memory owns the page in any case.
func (m *memory) mapPage(vm driver.VirtualMemory, page driver.Page) error {
	m.page, m.size = page, page.Size
	var err error
	if m.ptr, err = vm.Reserve(page.Size); err != nil {
		return fmt.Errorf("reserve addresses: %w", err)
	}
	m.reserved = true
	if err := vm.Map(m.ptr, page); err != nil {
		return fmt.Errorf("map the page: %w", err)
	}
	m.mapped = true
	return nil
}

// isPage reports whether the memory is a page, which stays valid for other processes after it is freed here.
func (m *memory) isPage() bool { return m.page != (driver.Page{}) || m.reserved }

// giveBack returns the remaining resources to the device, step by step. No work may use the memory.
func (m *memory) giveBack(vm driver.VirtualMemory) error {
	if m.mapped {
		if err := vm.Unmap(m.ptr, m.size); err != nil {
			return fmt.Errorf("unmap the page: %w", err)
		}
		m.mapped = false
	}
	if m.page != (driver.Page{}) {
		if err := vm.Drop(m.page); err != nil {
			return fmt.Errorf("drop the page: %w", err)
		}
		m.page = driver.Page{}
	}
	if m.reserved {
		if err := vm.Release(m.ptr, m.size); err != nil {
			return fmt.Errorf("release addresses: %w", err)
		}
		m.reserved = false
	}
	if m.release != nil {
		if err := m.release(); err != nil {
			return fmt.Errorf("give memory back: %w", err)
		}
		m.release = nil
	}
	return nil
}

// syncAll waits for the work queued on streams. A closed stream has done its work.
func syncAll(streams []driver.Stream) error {
	for _, s := range streams {
		if err := s.Sync(context.Background()); err != nil && !errors.Is(err, driver.ErrClosed) {
			return fmt.Errorf("wait for stream %d: %w", s.ID(), err)
		}
	}
	return nil
}
