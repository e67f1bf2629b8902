package drivertest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A virtual is a device's virtual memory under test, with its pages of one granule.
type virtual struct {
	driver.VirtualMemory
	t    *testing.T
	d    driver.Device
	s    driver.Stream
	size int64 // a granule
}

// openVirtual returns nil if the device has no virtual memory.
func openVirtual(t *testing.T, open openFunc) *virtual {
	d := open(t)
	vm, size := d.VirtualMemory(), d.Info().Granularity
	if vm == nil {
		if size != 0 {
			t.Errorf("Granularity %d without virtual memory", size)
		}
		return nil
	}
	return &virtual{VirtualMemory: vm, t: t, d: d, s: d.DefaultStream(), size: size}
}

func (v *virtual) reserve(granules int64) driver.Pointer {
	v.t.Helper()
	p, err := v.Reserve(granules * v.size)
	testkit.Must(v.t, err)
	if p == 0 || int64(p)%v.size != 0 {
		v.t.Errorf("Reserve is %#x: want a multiple of %d that is not 0", p, v.size)
	}
	return p
}

func (v *virtual) create(granules int64) driver.Page {
	v.t.Helper()
	page, err := v.Create(granules * v.size)
	testkit.Must(v.t, err)
	if page.Size != granules*v.size {
		v.t.Errorf("Create of %d bytes made a page of %d", granules*v.size, page.Size)
	}
	return page
}

// at is the address n granules after p.
func (v *virtual) at(p driver.Pointer, n int64) driver.Pointer { return p + driver.Pointer(n*v.size) }

// fill sets some bytes at both ends of the granule at p, and holds fails the test unless they are there.
func (v *virtual) fill(p driver.Pointer, pattern byte) {
	v.t.Helper()
	testkit.Must(v.t, v.s.Fill(p, pattern, 100))
	testkit.Must(v.t, v.s.Fill(p+driver.Pointer(v.size-100), pattern+1, 100))
	testkit.Must(v.t, v.s.Sync(context.Background()))
}

func (v *virtual) holds(p driver.Pointer, pattern byte) {
	v.t.Helper()
	wantBytes(v.t, v.s, p, bytes.Repeat([]byte{pattern}, 100))
	wantBytes(v.t, v.s, p+driver.Pointer(v.size-100), bytes.Repeat([]byte{pattern + 1}, 100))
}

// refused fails the test unless f is refused.
func (v *virtual) refused(what string, f func() error) {
	v.t.Helper()
	wantRefused(v.t, what, f)
}

// testVirtualStates takes addresses from none to reserved to mapped, and back.
func testVirtualStates(t *testing.T, open openFunc) {
	v := openVirtual(t, open)
	if v == nil {
		return
	}
	for range 3 {
		p := v.reserve(4)
		pages := []driver.Page{v.create(1), v.create(2), v.create(1)}
		testkit.Must(t, v.Map(p, pages...))
		for i := range int64(4) {
			v.fill(v.at(p, i), byte(10*i+1))
		}
		for i := range int64(4) {
			v.holds(v.at(p, i), byte(10*i+1))
		}
		// One copy may cross the pages.
		across := make([]byte, 200)
		testkit.Must(t, v.s.CopyOut(across, v.at(p, 1)-100))
		if want := append(bytes.Repeat([]byte{2}, 100), bytes.Repeat([]byte{11}, 100)...); !bytes.Equal(across, want) {
			t.Error("other bytes came back from the end of one page and the start of the next")
		}
		testkit.Must(t, v.Unmap(v.at(p, 1), 3*v.size)) // two pages at once
		v.holds(p, 1)
		testkit.Must(t, v.Unmap(p, v.size))
		for _, page := range pages {
			testkit.Must(t, v.Drop(page))
		}
		testkit.Must(t, v.Release(p, 4*v.size))
	}

	// Addresses are not memory: more can be reserved than there is.
	huge := 2 * v.d.Info().TotalMemory
	huge -= huge % v.size
	p, err := v.Reserve(huge)
	testkit.Must(t, err)
	page := v.create(1)
	last := p + driver.Pointer(huge-v.size)
	testkit.Must(t, v.Map(last, page))
	v.fill(last, 77)
	v.holds(last, 77)
	testkit.Must(t, v.Unmap(last, v.size))
	testkit.Must(t, v.Release(p, huge))
	testkit.Must(t, v.Drop(page))
}

// testVirtualAliases maps one page at several addresses: they show the same bytes.
func testVirtualAliases(t *testing.T, open openFunc) {
	v := openVirtual(t, open)
	if v == nil {
		return
	}
	p, q := v.reserve(4), v.reserve(2)
	page, other := v.create(1), v.create(1)
	testkit.Must(t, v.Map(p, page, other, page))
	testkit.Must(t, v.Map(q, page))
	v.fill(v.at(p, 1), 100)
	for i, from := range []driver.Pointer{p, v.at(p, 2), q} {
		v.fill(from, byte(i+1))
		for _, to := range []driver.Pointer{p, v.at(p, 2), q} {
			v.holds(to, byte(i+1))
		}
	}
	v.holds(v.at(p, 1), 100)
	testkit.Must(t, v.Drop(page)) // it lives while it is mapped
	testkit.Must(t, v.Unmap(p, v.size))
	testkit.Must(t, v.Unmap(v.at(p, 2), v.size))
	v.holds(q, 3)
	v.refused("Map of a page that was dropped, though it is mapped elsewhere", func() error { return v.Map(p, page) })
	testkit.Must(t, v.Unmap(q, v.size))
	testkit.Must(t, v.Unmap(v.at(p, 1), v.size))
	testkit.Must(t, v.Drop(other))
	testkit.Must(t, v.Release(p, 4*v.size))
	testkit.Must(t, v.Release(q, 2*v.size))
}

// testVirtualRemap moves pages to other addresses: their contents go with them.
func testVirtualRemap(t *testing.T, open openFunc) {
	v := openVirtual(t, open)
	if v == nil {
		return
	}
	p, q := v.reserve(3), v.reserve(3)
	a, b := v.create(1), v.create(1)
	testkit.Must(t, v.Map(p, a, b))
	v.fill(p, 1)
	v.fill(v.at(p, 1), 2)
	testkit.Must(t, v.Unmap(p, 2*v.size))
	testkit.Must(t, v.Map(v.at(p, 1), a))
	testkit.Must(t, v.Map(q, b, a))
	v.holds(v.at(p, 1), 1)
	v.holds(q, 2)
	v.holds(v.at(q, 1), 1)
	testkit.Must(t, v.Unmap(q, 2*v.size))
	testkit.Must(t, v.Unmap(v.at(p, 1), v.size))
	testkit.Must(t, v.Release(p, 3*v.size)) // the pages outlive the addresses
	p = v.reserve(1)
	testkit.Must(t, v.Map(p, b))
	v.holds(p, 2)
	testkit.Must(t, v.Unmap(p, v.size))
	testkit.Must(t, errors.Join(v.Drop(a), v.Drop(b), v.Release(p, v.size), v.Release(q, 3*v.size)))
}

func testVirtualExhaustion(t *testing.T, open openFunc) {
	v := openVirtual(t, open)
	if v == nil {
		return
	}
	p := v.reserve(1)
	keep := v.create(1)
	testkit.Must(t, v.Map(p, keep))
	v.fill(p, 9)
	total := v.d.Info().TotalMemory
	big := total / 8
	big -= big % v.size
	if big == 0 {
		t.Fatalf("an eighth of %d bytes is less than a granule", total)
	}
	_, err := v.Create(1 << 62)
	WantErr(t, "Create of 4 EiB", err, driver.ErrNoMemory)
	for range 2 { // what was dropped can be had again
		var pages []driver.Page
		for {
			page, err := v.Create(big)
			if err != nil {
				WantErr(t, "Create on a full device", err, driver.ErrNoMemory)
				break
			}
			if pages = append(pages, page); int64(len(pages))*big > total {
				t.Fatalf("%d pages of %d bytes, of a total of %d", len(pages), big, total)
			}
		}
		if len(pages) == 0 {
			t.Fatal("no room for an eighth of the total")
		}
		// Pages and Alloc draw on the same memory.
		_, err := v.d.Alloc(total / 2)
		WantErr(t, "Alloc on a device full of pages", err, driver.ErrNoMemory)
		v.holds(p, 9)
		for _, page := range pages {
			testkit.Must(t, v.Drop(page))
		}
	}
	block := Alloc(t, v.d, total/2)
	testkit.Must(t, errors.Join(v.d.Free(block), v.Unmap(p, v.size), v.Drop(keep), v.Release(p, v.size)))
}
