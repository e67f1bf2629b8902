package drivertest

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// testCloseAbilities: what a device's abilities made does not outlive it, and later calls say so.
func testCloseAbilities(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	p := Alloc(t, d, 4096)
	late := map[string]func() error{}

	if pinned := d.Pinned(); pinned != nil {
		b := mustPin(t, pinned, 4096)
		testkit.Must(t, pinned.CopyOutAsync(s, b, p))
		late["AllocHost"] = func() error { _, err := pinned.AllocHost(1); return err }
		late["FreeHost"] = func() error { return pinned.FreeHost(b) }
		late["Register"] = func() error { return pinned.Register(outside[:4096]) }
	}
	if vm, size := d.VirtualMemory(), d.Info().Granularity; vm != nil {
		at, err := vm.Reserve(2 * size)
		testkit.Must(t, err)
		page, err := vm.Create(size)
		testkit.Must(t, err)
		testkit.Must(t, vm.Map(at, page))
		late["Map"] = func() error { return vm.Map(at+driver.Pointer(size), page) }
		late["Unmap"] = func() error { return vm.Unmap(at, size) }
		late["Drop"] = func() error { return vm.Drop(page) }
		late["Release"] = func() error { return vm.Release(at, 2*size) }
	}
	if timing := d.Timing(); timing != nil {
		mustStamp(t, timing, s)
		late["Stamp"] = func() error { _, err := timing.Stamp(s); return err }
	}
	if graphs := d.Graphs(); graphs != nil {
		testkit.Must(t, graphs.Begin(s))
		testkit.Must(t, s.Fill(p, 1, 4096))
		g, err := graphs.End(s)
		testkit.Must(t, err)
		testkit.Must(t, g.Launch(s))
		half, err := d.NewStream(driver.StreamOptions{}) // closed in the middle of a capture
		testkit.Must(t, err)
		testkit.Must(t, graphs.Begin(half))
		testkit.Must(t, half.Fill(p, 2, 4096))
		late["Begin"] = func() error { return graphs.Begin(s) }
		late["Ordered"] = func() error { _, err := graphs.Ordered(s, driver.Mark{Stream: s.ID()}, s); return err }
		late["End"] = func() error { _, err := graphs.End(half); return err }
		late["Graph.Launch"] = func() error { return g.Launch(s) }
	}
	if sharing := d.Sharing(); sharing != nil {
		late["Export"] = func() error { _, err := sharing.Export(p); return err }
		if size := d.Info().Granularity; size != 0 {
			late["CreateShared"] = func() error { _, err := sharing.CreateShared(size); return err }
		}
		late["NewEvent"] = func() error { _, err := sharing.NewEvent(); return err }
		if e, err := sharing.NewEvent(); !errors.Is(err, driver.ErrUnsupported) {
			testkit.Must(t, err)
			testkit.Must(t, e.Record(s))
			testkit.Must(t, e.Wait(d.DefaultStream()))
			late["SharedEvent.Record"] = func() error { return e.Record(s) }
			late["SharedEvent.Wait"] = func() error { return e.Wait(s) }
			late["SharedEvent.Reached"] = func() error { _, err := e.Reached(); return err }
			defer func() { testkit.Must(t, e.Close()) }()
		}
	}
	testkit.Must(t, d.Close())
	for what, call := range late {
		WantErr(t, what+" after Close", call(), driver.ErrClosed)
	}
}
