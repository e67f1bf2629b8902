package memtest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// checkPeers lets another device use the allocator's memory: blocks from before that and later ones.
func checkPeers(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	if other := w.secondDevice(t); other.Peers() != nil {
		w.checkPeer(t, other)
	}
	testkit.Must(t, w.finish())
}

func (w *model) checkPeer(t testing.TB, other driver.Device) {
	t.Helper()
	blocks := []*block{w.mustAlloc(t, 0, 512), w.mustAlloc(t, 0, w.cfg.MaxBlock)}
	err := mem.EnablePeer(other, w.dev, w.a)
	if errors.Is(err, driver.ErrUnsupported) {
		return // the devices are not linked
	}
	testkit.Must(t, err)
	testkit.Must(t, mem.EnablePeer(other, w.dev, w.a)) // changes nothing
	for _, size := range []int64{512, w.cfg.MaxBlock, w.cfg.MaxBlock} {
		blocks = append(blocks, w.mustAlloc(t, 0, size))
	}
	testkit.Must(t, w.sync())
	for _, b := range blocks {
		if got := contents(t, other, b.Ptr, b.Size); !bytes.Equal(got, contents(t, w.dev, b.Ptr, b.Size)) {
			t.Errorf("another device reads other bytes of %v", b)
		}
	}
}

// checkPages opens the pages of blocks on another device, as another process would: they are those behind the block, in
// the order of their addresses.
func checkPages(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	other := w.secondDevice(t)
	if exporter, ok := mem.Find[mem.PageExporter](w.a); ok {
		for _, size := range []int64{512, cfg.MaxBlock, cfg.MaxBlock} {
			w.checkPagesOf(t, exporter, w.mustAlloc(t, 0, size), other)
		}
	}
	testkit.Must(t, w.finish())
}

func (w *model) checkPagesOf(t testing.TB, exporter mem.PageExporter, b *block, other driver.Device) {
	t.Helper()
	base, pages, err := exporter.ExportPages(b.Ptr, b.Size)
	if errors.Is(err, driver.ErrUnsupported) || err == nil && len(pages) == 0 {
		return // other processes cannot open them, or there are none
	}
	testkit.Must(t, err)
	var size int64
	for _, p := range pages {
		size += p.Size
	}
	if base > b.Ptr || base+driver.Pointer(size) < b.end() || pages[0].Size <= int64(b.Ptr-base) {
		t.Fatalf("%v: pages of %d bytes from %#x on", b, size, uint64(base))
	}
	vm := other.VirtualMemory()
	at, err := vm.Reserve(size)
	testkit.Must(t, err)
	for to := at; len(pages) > 0; pages = pages[1:] {
		page, err := other.Sharing().ImportPage(pages[0].File, pages[0].Size)
		testkit.Must(t, err)
		testkit.Must(t, vm.Map(to, page))
		to += driver.Pointer(page.Size)
		defer func() { testkit.Must(t, vm.Drop(page)) }()
	}
	// Each half has a byte of its own, so that the order of the pages shows.
	s, half := w.streams[0], b.Size/2
	testkit.Must(t, s.Fill(b.Ptr, b.pattern+1, half))
	if got := contents(t, w.dev, b.Ptr, b.Size); !bytes.Equal(got, contents(t, other, at+b.Ptr-base, b.Size)) {
		t.Errorf("%v: its pages have other bytes", b)
	}
	testkit.Must(t, s.Fill(b.Ptr, b.pattern, half))
	testkit.Must(t, vm.Unmap(at, size))
	testkit.Must(t, vm.Release(at, size))
}

// secondDevice opens another device, which is closed when the test ends.
func (w *model) secondDevice(t testing.TB) driver.Device {
	t.Helper()
	dev := w.cfg.Device(t)
	t.Cleanup(func() { testkit.Must(t, dev.Close()) })
	return dev
}

// contents reads memory in the device's default stream.
func contents(t testing.TB, dev driver.Device, p driver.Pointer, size int64) []byte {
	t.Helper()
	b := make([]byte, size)
	testkit.Must(t, dev.DefaultStream().CopyOut(b, p))
	return b
}
