package drivertest

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// testVirtualMapRefused asks for mappings that cannot be: nothing is mapped, and what was stays.
func testVirtualMapRefused(t *testing.T, open openFunc) {
	v := openVirtual(t, open)
	if v == nil {
		return
	}
	p := v.reserve(4)
	a, b, wide, gone := v.create(1), v.create(1), v.create(2), v.create(1)
	testkit.Must(t, v.Drop(gone))
	testkit.Must(t, v.Map(v.at(p, 2), a))
	v.fill(v.at(p, 2), 5)
	block := Alloc(t, v.d, 2*v.size)
	inBlock := (block + driver.Pointer(v.size-1)) &^ driver.Pointer(v.size-1)

	for _, c := range []struct {
		what  string
		at    driver.Pointer
		pages []driver.Page
	}{
		{"over a mapped page", v.at(p, 2), []driver.Page{b}},
		{"over the same page", v.at(p, 2), []driver.Page{a}},
		{"with the last page over a mapped one", p, []driver.Page{b, a, b}},
		{"with half of a page over a mapped one", v.at(p, 1), []driver.Page{wide}},
		{"beyond the reservation's end", v.at(p, 3), []driver.Page{b, b}},
		{"with half of a page beyond the reservation's end", v.at(p, 3), []driver.Page{wide}},
		{"of addresses that are not reserved", inBlock, []driver.Page{b}},
		{"between granules", p + driver.Pointer(v.size/2), []driver.Page{b}},
		{"of a page that was dropped", p, []driver.Page{gone}},
		{"with the last page dropped", p, []driver.Page{b, gone}},
		{"of a page that never was", p, []driver.Page{b, {ID: 1 << 60, Size: v.size}}},
	} {
		v.refused("Map "+c.what, func() error { return v.Map(c.at, c.pages...) })
		v.holds(v.at(p, 2), 5)
	}
	// Had one of them left a page behind, these would be refused.
	testkit.Must(t, v.Map(p, wide))
	testkit.Must(t, v.Map(v.at(p, 3), b))
	v.fill(v.at(p, 3), 6)
	v.holds(v.at(p, 2), 5)
	v.holds(v.at(p, 3), 6)
	testkit.Must(t, v.Unmap(p, 4*v.size))
	testkit.Must(t, errors.Join(v.Drop(a), v.Drop(b), v.Drop(wide), v.Release(p, 4*v.size), v.d.Free(block)))
}

func testVirtualMisuse(t *testing.T, open openFunc) {
	v := openVirtual(t, open)
	if v == nil {
		return
	}
	p, q := v.reserve(4), v.reserve(2)
	wide, a := v.create(2), v.create(1)
	testkit.Must(t, v.Map(p, wide, a))
	v.fill(p, 1)
	v.fill(v.at(p, 1), 2)
	v.fill(v.at(p, 2), 3)

	v.refused("Release of a reservation with pages mapped", func() error { return v.Release(p, 4*v.size) })
	v.refused("Release of part of a reservation", func() error { return v.Release(q, v.size) })
	v.refused("Release inside a reservation", func() error { return v.Release(v.at(q, 1), v.size) })
	v.refused("Unmap of half a page", func() error { return v.Unmap(p, v.size) })
	v.refused("Unmap from the middle of a page", func() error { return v.Unmap(v.at(p, 1), 2*v.size) })
	v.refused("Unmap of addresses that are only reserved", func() error { return v.Unmap(q, v.size) })
	v.refused("Unmap between granules", func() error { return v.Unmap(p+1, v.size) })
	v.refused("Map of no pages", func() error { return v.Map(q) })
	v.refused("Map of a page of another size", func() error { return v.Map(q, driver.Page{ID: a.ID, Size: 2 * a.Size}) })
	v.refused("Unmap of nothing", func() error { return v.Unmap(p, 0) })
	v.refused("Unmap beyond the reservation", func() error { return v.Unmap(p, 8*v.size) })
	v.refused("Release of nothing", func() error { return v.Release(q, 0) })
	v.refused("Drop of a page that never was", func() error { return v.Drop(driver.Page{ID: 1 << 60, Size: v.size}) })
	v.refused("Free of a reserved address", func() error { return v.d.Free(q) })
	v.refused("Free of a mapped address", func() error { return v.d.Free(p) })
	v.refused("Reserve of half a granule", func() error { _, err := v.Reserve(v.size / 2); return err })
	v.refused("Reserve of nothing", func() error { _, err := v.Reserve(0); return err })
	v.refused("Create of half a granule", func() error { _, err := v.Create(v.size / 2); return err })
	v.refused("Create of nothing", func() error { _, err := v.Create(0); return err })
	wantPanic(t, "Reserve(-1)", func() error { _, err := v.Reserve(-v.size); return err })
	wantPanic(t, "Create(-1)", func() error { _, err := v.Create(-v.size); return err })

	v.holds(p, 1)
	v.holds(v.at(p, 1), 2)
	v.holds(v.at(p, 2), 3)
	testkit.Must(t, v.Unmap(p, 3*v.size))
	v.refused("Unmap twice", func() error { return v.Unmap(p, 3*v.size) })
	testkit.Must(t, v.Release(p, 4*v.size))
	v.refused("Release twice", func() error { return v.Release(p, 4*v.size) })
	v.refused("Map at released addresses", func() error { return v.Map(p, a) })
	testkit.Must(t, v.Drop(a))
	v.refused("Drop twice", func() error { return v.Drop(a) })
	testkit.Must(t, errors.Join(v.Drop(wide), v.Release(q, 2*v.size)))
}
