package drivertest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// The part of sharing that one process can test. The rest is in package multiprocess.

// testSharedPages: a page that can be shared is a page like others, and one made of its descriptor shows the same
// bytes.
func testSharedPages(t *testing.T, open openFunc) {
	v := openVirtual(t, open)
	if v == nil {
		return
	}
	sharing := v.d.Sharing()
	if sharing == nil {
		return
	}
	page, err := sharing.CreateShared(2 * v.size)
	if errors.Is(err, driver.ErrUnsupported) {
		return
	}
	testkit.Must(t, err)
	if page.Size != 2*v.size {
		t.Errorf("CreateShared of %d bytes made a page of %d", 2*v.size, page.Size)
	}
	plain := v.create(1)
	p := v.reserve(6)
	testkit.Must(t, v.Map(p, page, plain, page)) // twice, and beside one that cannot be shared
	v.fill(p, 1)
	v.holds(v.at(p, 3), 1)
	v.fill(v.at(p, 4), 5)
	v.holds(v.at(p, 1), 5)

	f, err := sharing.ExportPage(page)
	testkit.Must(t, err)
	again, err := sharing.ImportPage(f, 2*v.size)
	testkit.Must(t, err)
	testkit.Must(t, f.Close()) // a page keeps what it needs
	testkit.Must(t, errors.Join(v.Unmap(p, 5*v.size), v.Drop(page), v.Drop(plain)))
	if again == page {
		t.Error("an imported page has the name of the one that was exported")
	}
	testkit.Must(t, v.Map(v.at(p, 4), again))
	v.holds(v.at(p, 4), 1)
	v.holds(v.at(p, 5), 5)
	testkit.Must(t, errors.Join(v.Drop(again), v.Unmap(v.at(p, 4), 2*v.size), v.Release(p, 6*v.size)))
	v.refused("ExportPage of a page that was dropped", func() error { _, err := sharing.ExportPage(page); return err })
}

func testSharingMisuse(t *testing.T, open openFunc) {
	d := open(t)
	sharing := d.Sharing()
	if sharing == nil {
		return
	}
	block := Alloc(t, d, 4096)
	want := Noise(12, 4096)
	testkit.Must(t, d.DefaultStream().CopyIn(block, want))
	handle, err := sharing.Export(block)
	if errors.Is(err, driver.ErrUnsupported) {
		handle = nil
	} else {
		testkit.Must(t, err)
		again, err := sharing.Export(block)
		testkit.Must(t, err)
		if !bytes.Equal(handle, again) {
			t.Error("two exports of one block gave two handles")
		}
		_, _, err = sharing.Import(handle)
		WantErr(t, "Import by the exporter itself", err, driver.ErrInvalid)
		_, err = sharing.Export(block + 2048)
		WantErr(t, "Export inside a block", err, driver.ErrInvalid)
		testkit.Must(t, d.DefaultStream().Fill(block, 1, 10)) // it works on as before
		copy(want, bytes.Repeat([]byte{1}, 10))
	}
	for what, bad := range map[string][]byte{
		"nothing": nil, "other bytes": Noise(13, 64), "half a handle": handle[:len(handle)/2],
		"a handle and more": append(bytes.Clone(handle), 0), "zeros": make([]byte, max(64, len(handle))),
	} {
		_, _, err := sharing.Import(bad)
		WantErr(t, "Import of "+what, err, driver.ErrInvalid)
	}
	WantErr(t, "Forget of what Alloc returned", sharing.Forget(block), driver.ErrInvalid)
	WantErr(t, "Forget of nothing", sharing.Forget(0), driver.ErrInvalid)

	if vm, size := d.VirtualMemory(), d.Info().Granularity; vm != nil {
		page, err := vm.Create(size)
		testkit.Must(t, err)
		if size > 1 {
			wantRefused(t, "CreateShared of half a granule", func() error {
				_, err := sharing.CreateShared(size / 2)
				return err
			})
		}
		wantRefused(t, "CreateShared of nothing", func() error { _, err := sharing.CreateShared(0); return err })
		wantPanic(t, "CreateShared(-1)", func() error { _, err := sharing.CreateShared(-size); return err })
		_, err = sharing.CreateShared(1 << 62)
		WantErr(t, "CreateShared of 4 EiB", err, driver.ErrNoMemory)
		wantRefused(t, "ExportPage of an ordinary page", func() error {
			_, err := sharing.ExportPage(page)
			return err
		})
		testkit.Must(t, vm.Drop(page))

		file, err := os.Create(filepath.Join(t.TempDir(), "file"))
		testkit.Must(t, err)
		testkit.Must(t, file.Truncate(size))
		reader, writer, err := os.Pipe()
		testkit.Must(t, err)
		for what, f := range map[string]*os.File{"no file": nil, "a file of the disk": file, "a pipe": reader} {
			_, err := sharing.ImportPage(f, size)
			WantErr(t, "ImportPage of "+what, err, driver.ErrInvalid)
		}
		testkit.Must(t, errors.Join(file.Close(), reader.Close(), writer.Close()))
		_, err = sharing.ImportPage(file, size)
		WantErr(t, "ImportPage of a file that was closed", err, driver.ErrInvalid)

		if shared, err := sharing.CreateShared(size); err == nil {
			f, err := sharing.ExportPage(shared)
			testkit.Must(t, err)
			_, err = sharing.ImportPage(f, 2*size)
			WantErr(t, "ImportPage of a page that is shorter", err, driver.ErrInvalid)
			testkit.Must(t, errors.Join(f.Close(), vm.Drop(shared)))
		} else {
			WantErr(t, "CreateShared", err, driver.ErrUnsupported)
		}
	}
	wantBytes(t, d.DefaultStream(), block, want)
	testkit.Must(t, d.DefaultStream().Sync(context.Background()))
	testkit.Must(t, d.Free(block))
}
