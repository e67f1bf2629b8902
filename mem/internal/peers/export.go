package peers

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// Create implements driver.VirtualMemory: with pages that other processes can open, as those of PyTorch's expandable
// segments are. If the device cannot make such a page, for example for lack of a file descriptor, it makes an ordinary
// one.
func (m *Memory) Create(size int64) (driver.Page, error) {
	if m.sharing != nil {
		page, err := m.sharing.CreateShared(size)
		if err == nil || errors.Is(err, driver.ErrNoMemory) {
			return page, err
		}
	}
	return m.VirtualMemory.Create(size)
}

// Export returns the descriptors of the pages behind [p, p+size), in the order of their addresses, and where the first
// is mapped. It returns no pages if none is mapped there. The Memory owns the descriptors and closes them when it
// unmaps the pages. The error matches driver.ErrUnsupported if other processes cannot open one of the pages.
func (m *Memory) Export(p driver.Pointer, size int64) (base driver.Pointer, files []driver.PageFile, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range slices.Sorted(maps.Keys(m.mapped)) {
		mp := m.mapped[at]
		if at+driver.Pointer(mp.page.Size) <= p || p+driver.Pointer(size) <= at {
			continue
		}
		if m.sharing == nil {
			return 0, nil, &driver.Error{
				Call: "Sharing.ExportPage", Code: driver.ErrUnsupported, Detail: "other processes cannot use this " +
					"device's memory",
			}
		}
		if mp.file == nil {
			if mp.file, err = m.sharing.ExportPage(mp.page); err != nil {
				return 0, nil, fmt.Errorf("a page that other processes cannot open: %w: %w", err, driver.ErrUnsupported)
			}
			m.mapped[at] = mp
		}
		if len(files) == 0 {
			base = at
		}
		files = append(files, driver.PageFile{Size: mp.page.Size, File: mp.file})
	}
	return base, files, nil
}

// Exported reports whether a page behind [p, p+size) was exported since it was mapped.
func (m *Memory) Exported(p driver.Pointer, size int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, mp := range m.mapped {
		if mp.file != nil && at < p+driver.Pointer(size) && p < at+driver.Pointer(mp.page.Size) {
			return true
		}
	}
	return false
}
