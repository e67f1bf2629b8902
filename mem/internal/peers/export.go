package peers

import (
	"errors"
	"fmt"
	"iter"
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
// unmaps the pages, or when each range that was exported there has had its EndExport. The error matches
// driver.ErrUnsupported if other processes cannot open one of the pages.
func (m *Memory) Export(p driver.Pointer, size int64) (base driver.Pointer, files []driver.PageFile, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.behind(p, size) {
		mp := m.mapped[at]
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
		}
		if !slices.Contains(mp.exports, p) {
			mp.exports = append(mp.exports, p)
		}
		m.mapped[at] = mp
		if len(files) == 0 {
			base = at
		}
		files = append(files, driver.PageFile{Size: mp.page.Size, File: mp.file})
	}
	return base, files, nil
}

// EndExport undoes all Exports of [p, p+size). It closes the descriptors of pages that no other exported range has.
func (m *Memory) EndExport(p driver.Pointer, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.behind(p, size) {
		mp := m.mapped[at]
		i := slices.Index(mp.exports, p)
		if i < 0 {
			continue
		}
		if mp.exports = slices.Delete(mp.exports, i, i+1); len(mp.exports) == 0 {
			_ = mp.file.Close()
			mp.file = nil
		}
		m.mapped[at] = mp
	}
}

// behind yields where the pages behind [p, p+size) are mapped, in the order of their addresses.
func (m *Memory) behind(p driver.Pointer, size int64) iter.Seq[driver.Pointer] {
	return func(yield func(driver.Pointer) bool) {
		granule := driver.Pointer(m.dev.Info().Granularity)
		at := p / granule * granule
		for before := granule; before < driver.Pointer(m.largest) && before <= at; before += granule {
			if mp, ok := m.mapped[at-before]; ok {
				if driver.Pointer(mp.page.Size) > before {
					at -= before // the range begins inside this page
				}
				break
			}
		}
		for at < p+driver.Pointer(size) {
			mp, ok := m.mapped[at]
			if !ok {
				at += granule
				continue
			}
			if !yield(at) {
				return
			}
			at += driver.Pointer(mp.page.Size)
		}
	}
}

// Exported reports whether a page behind [p, p+size) has a descriptor for other processes.
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
