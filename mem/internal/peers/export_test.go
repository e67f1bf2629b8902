//go:build linux

package peers

import (
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A rig is virtual memory with pages of 1, 2 and 1 granules at consecutive addresses.
type rig struct {
	*Memory
	base    driver.Pointer
	granule int64
}

func newRig(t *testing.T) rig {
	dev, err := driver.Open("host:total=64MiB")
	testkit.Must(t, err)
	m := Of(dev)
	granule := dev.Info().Granularity
	base, err := m.Reserve(8 * granule)
	testkit.Must(t, err)
	var pages []driver.Page
	for _, n := range []int64{1, 2, 1} {
		page, err := m.Create(n * granule)
		testkit.Must(t, err)
		pages = append(pages, page)
	}
	testkit.Must(t, m.Map(base, pages...))
	t.Cleanup(func() {
		testkit.Must(t, m.Unmap(base, 4*granule))
		for _, page := range pages {
			testkit.Must(t, m.Drop(page))
		}
		testkit.Must(t, m.Release(base, 8*granule))
		testkit.Must(t, dev.Close())
	})
	return rig{m, base, granule}
}

// export exports a range, given in granules, and returns the place of the first page and the sizes of all, in granules.
func (r rig) export(t *testing.T, from, n int64) (first int64, sizes []int64) {
	t.Helper()
	base, files, err := r.Export(r.at(from), n*r.granule)
	testkit.Must(t, err)
	for _, f := range files {
		sizes = append(sizes, f.Size/r.granule)
	}
	if files == nil {
		return -1, nil
	}
	return int64(base-r.base) / r.granule, sizes
}

func (r rig) at(granule int64) driver.Pointer { return r.base + driver.Pointer(granule*r.granule) }

func TestExportFindsThePagesBehindARange(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		from, n, first int64
		sizes          []int64
	}{
		{0, 1, 0, []int64{1}},
		{0, 4, 0, []int64{1, 2, 1}},
		{1, 1, 1, []int64{2}},
		{2, 1, 1, []int64{2}}, // from the middle of a page
		{2, 2, 1, []int64{2, 1}},
		{3, 5, 3, []int64{1}}, // beyond the last page
		{4, 2, -1, nil},
		{5, 1, -1, nil}, // two granules after a page of one
	} {
		if first, sizes := r.export(t, c.from, c.n); first != c.first || !slices.Equal(sizes, c.sizes) {
			t.Errorf("%d granules at %d: pages of %v granules at %d, want %v at %d", c.n, c.from, sizes, first, c.sizes,
				c.first)
		}
	}
}

// A descriptor is open until each range that was exported there has ended.
func TestEndExportClosesDescriptors(t *testing.T) {
	r := newRig(t)
	open := func(granule int64) bool { return r.Exported(r.at(granule), 1) }
	r.export(t, 0, 2)
	r.export(t, 0, 2)
	r.export(t, 2, 2)
	r.EndExport(r.at(0), 2*r.granule)
	if open(0) || !open(1) || !open(3) {
		t.Errorf("after the first range ended: descriptors %v, %v, %v", open(0), open(1), open(3))
	}
	r.EndExport(r.at(0), 2*r.granule) // again
	r.EndExport(r.at(5), 2*r.granule) // never exported
	if !open(1) {
		t.Error("the second range lost its descriptor")
	}
	r.EndExport(r.at(2), 2*r.granule)
	if open(1) || open(3) {
		t.Errorf("after both: descriptors %v, %v", open(1), open(3))
	}
	r.export(t, 1, 1)
	if !open(1) {
		t.Error("no descriptor after another export")
	}
}
