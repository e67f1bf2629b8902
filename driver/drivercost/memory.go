package drivercost

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// upTo returns the sizes that are at most limit.
func upTo(limit int64, sizes ...int64) []int64 {
	return slices.DeleteFunc(sizes, func(size int64) bool { return size > limit })
}

// memory measures Available, and Alloc and Free by size. Below 2 MiB, drivers cut blocks from a larger allocation, so
// another block of the same size stays allocated during the measurement.
func (m *meter) memory() error {
	available := m.figure("Available", 0, 0)
	err := m.measure(func() error {
		return available.time(10, func() error {
			return repeat(10, func(int) error { _, _, err := m.d.Available(); return err })
		})
	}, available)
	if err != nil {
		return err
	}
	for _, size := range upTo(m.free/2, 64*kib, mib, 2*mib, 20*mib, 256*mib, 2*gib) {
		neighbour, err := driver.Pointer(0), error(nil)
		if size < 2*mib {
			if neighbour, err = m.d.Alloc(size); err != nil {
				return err
			}
		}
		alloc, free := m.figure("Alloc", size, 0), m.figure("Free", size, 0)
		err = m.measure(func() error {
			var p driver.Pointer
			if err := alloc.time(1, func() (err error) { p, err = m.d.Alloc(size); return err }); err != nil {
				return err
			}
			return free.time(1, func() error { return m.d.Free(p) })
		}, alloc, free)
		if err != nil {
			return err
		}
		if neighbour != 0 {
			if err := m.d.Free(neighbour); err != nil {
				return err
			}
		}
	}
	return nil
}

// pagesBySize measures the calls of a page from Reserve to Release, by size, and Reserve of large ranges.
func (m *meter) pagesBySize() error {
	vm, granule := m.d.VirtualMemory(), m.d.Info().Granularity
	if vm == nil {
		m.report.Absent = append(m.report.Absent, "VirtualMemory: the device has none")
		return nil
	}
	sizes := upTo(m.free/2, 2*mib, 20*mib, 256*mib, 2*gib)
	for i, size := range sizes {
		sizes[i] = (size + granule - 1) / granule * granule
	}
	sizes = slices.Compact(sizes)
	for _, size := range append(sizes, 64*gib/granule*granule) {
		reserve, release := m.figure("VirtualMemory.Reserve", size, 0), m.figure("VirtualMemory.Release", size, 0)
		create, drop := m.figure("VirtualMemory.Create", size, 0), m.figure("VirtualMemory.Drop", size, 0)
		mapping, unmap := m.figure("VirtualMemory.Map", size, 1), m.figure("VirtualMemory.Unmap", size, 1)
		figures := []*figure{reserve, create, mapping, unmap, drop, release}
		if !slices.Contains(sizes, size) {
			figures = []*figure{reserve, release} // addresses alone
		}
		err := m.measure(func() error {
			var p driver.Pointer
			if err := reserve.time(1, func() (err error) { p, err = vm.Reserve(size); return err }); err != nil {
				return err
			}
			if len(figures) > 2 {
				var page driver.Page
				if err := create.time(1, func() (err error) { page, err = vm.Create(size); return err }); err != nil {
					return err
				}
				if err := mapping.time(1, func() error { return vm.Map(p, page) }); err != nil {
					return err
				}
				if err := unmap.time(1, func() error { return vm.Unmap(p, size) }); err != nil {
					return err
				}
				if err := drop.time(1, func() error { return vm.Drop(page) }); err != nil {
					return err
				}
			}
			return release.time(1, func() error { return vm.Release(p, size) })
		}, figures...)
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	mostPages = 512 // maximum number mapped by one call
	elsewhere = "mapped elsewhere too"
)

// pagesByCount measures Map and Unmap of several pages of one granule each in one call, and of pages that are already
// mapped elsewhere.
func (m *meter) pagesByCount() (err error) {
	vm, granule := m.d.VirtualMemory(), m.d.Info().Granularity
	if vm == nil {
		return nil
	}
	pages := make([]driver.Page, min(mostPages, m.free/2/granule))
	if len(pages) == 0 {
		return nil
	}
	whole := int64(len(pages)) * granule
	for i := range pages {
		if pages[i], err = vm.Create(granule); err != nil {
			return err
		}
	}
	p, err := vm.Reserve(2 * whole)
	if err != nil {
		return err
	}
	bothWays := func(at driver.Pointer, n int, note string) error {
		mapping, unmap := m.figure("VirtualMemory.Map", granule, n), m.figure("VirtualMemory.Unmap", granule, n)
		mapping.Note, unmap.Note = note, note
		return m.measure(func() error {
			if err := mapping.time(1, func() error { return vm.Map(at, pages[:n]...) }); err != nil {
				return err
			}
			return unmap.time(1, func() error { return vm.Unmap(at, int64(n)*granule) })
		}, mapping, unmap)
	}
	for n := 2; n < 4*len(pages); n *= 4 {
		if err := bothWays(p, min(n, len(pages)), ""); err != nil {
			return err
		}
	}
	if err := vm.Map(p, pages...); err != nil {
		return err
	}
	if err := bothWays(p+driver.Pointer(whole), len(pages), elsewhere); err != nil {
		return err
	}
	if err := vm.Unmap(p, whole); err != nil {
		return err
	}
	for _, page := range pages {
		if err := vm.Drop(page); err != nil {
			return err
		}
	}
	return vm.Release(p, 2*whole)
}
