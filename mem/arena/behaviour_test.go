package arena_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// The assertions of RMM's pool tests, by the numbers of docs/behaviours.md. The region of an arena is a pool whose
// initial size is its maximum or, with pages, a pool that begins empty.

func TestBehaviour80_ImpossibleSizesAreRefused(t *testing.T) {
	dev := closeDevice(t, sim.New(sim.Options{Total: 4 << 20, Granularity: 64 * kib}))
	for spec, word := range map[string]string{
		"arena:size=511":                  "want at least one block, of 512",
		"arena:size=1KiB,round=2KiB":      "want at least one block, of 2KiB",
		"arena:round=1000":                "want a multiple of 512",
		"arena:size=1MiB,page=100KiB":     "page",
		"arena:size=200000TiB":            "want 0 to 65536TiB",
		"arena:size=8MiB":                 "out of memory",
		"arena:size=1MiB,limit=-1":        "limit",
		"arena:size=1MiB,size=2MiB":       "twice",
		"arena:size=1MiB,bounce=200000TB": "bounce is",
	} {
		a, err := mem.Open(spec, dev)
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, %v; want an error with %q", spec, a, err, word)
		}
	}
	if free, total, err := dev.Available(); err != nil || free != total {
		t.Errorf("%d bytes are left behind: %v", total-free, err)
	}
}

// In 6000 bytes, or in pages of a device that has no more, three blocks fit and a fourth does not.
func TestBehaviour80_LargestSize(t *testing.T) {
	for name, c := range map[string]struct {
		total int64
		cfg   arena.Config
	}{
		"region": {1 << 20, arena.Config{Size: 6000, NoCompact: true}},
		"limit":  {1 << 20, arena.Config{Size: 64 * kib, Limit: 6000, NoCompact: true}},
		"pages":  {1 << 20, arena.Config{Size: 6144, Page: 512, NoCompact: true}},
		"device": {6000, arena.Config{Size: 8192, Page: 512, NoCompact: true}},
	} {
		dev := closeDevice(t, sim.New(sim.Options{Total: c.total, Granularity: 512}))
		a := newArena(t, dev, c.cfg)
		var blocks []mem.Block
		for _, size := range []int64{1000, 4000, 500} {
			b, err := a.Alloc(dev.DefaultStream(), size)
			if err != nil {
				t.Fatalf("%s: %d bytes: %v", name, size, err)
			}
			blocks = append(blocks, b)
		}
		if b, err := a.Alloc(dev.DefaultStream(), 2000); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("%s: 2000 bytes more: %+v, %v", name, b, err)
		}
		for _, b := range blocks {
			a.Free(b)
		}
		if err := a.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A region exists from before the first request until Close, and does not grow; with pages it grows as it is filled.
func TestBehaviour80_InitialSizeStays(t *testing.T) {
	for _, c := range []struct {
		cfg               arena.Config
		first, used, last int64 // bytes of the device
	}{
		{arena.Config{Size: 1 << 20, NoCompact: true}, 1 << 20, 1 << 20, 1 << 20},
		{arena.Config{Size: 1 << 20, Page: 64 * kib, NoCompact: true}, 0, 448 * kib, 0},
	} {
		dev := closeDevice(t, sim.New(sim.Options{Total: 16 << 20, Granularity: 64 * kib}))
		a := newArena(t, dev, c.cfg)
		held := func(when string, want int64) {
			t.Helper()
			free, total, err := dev.Available()
			if n := a.Stats().ReservedBytes.All.Current; err != nil || n != want || total-free != want {
				t.Errorf("%+v, %s: %d bytes reserved, %d held of the device, %v; want %d", c.cfg, when, n, total-free, err, want)
			}
		}
		held("at first", c.first)
		b, err := a.Alloc(dev.DefaultStream(), 400*kib)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Alloc(dev.DefaultStream(), 1<<20); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("%+v: more than the region: %v", c.cfg, err)
		}
		held("in use", c.used)
		a.Free(b)
		if err := a.EmptyCache(); err != nil {
			t.Fatal(err)
		}
		held("emptied", c.last)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		held("closed", 0)
	}
}
