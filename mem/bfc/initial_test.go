package bfc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

// The assertions of RMM's pool tests, by the numbers of docs/behaviours.md. RMM cuts blocks exactly, as a Fragmentation
// close to 0 does.
const exactly = 1e-9

// RMM refuses a maximum size that is not a multiple of 256; here such a limit is accepted, and its last bytes are not
// used.
func TestBehaviour80_ImpossibleSizesAreRefused(t *testing.T) {
	dev := sim.New(sim.Options{Total: 4 * mib, Granularity: 64 * kib})
	defer dev.Close()
	for spec, words := range map[string][]string{
		"bfc:initial=2MiB,limit=1MiB":               {"initial is 2MiB", "the limit of 1MiB"},
		"bfc:initial=1000,limit=1MiB":               {"initial is 1000 bytes", "a multiple of 256"},
		"bfc:initial=1KiB,limit=1MiB,virtual=on":    {"initial is 1024 bytes", "a multiple of 64KiB"},
		"bfc:initial=64KiB,limit=63KiB,virtual=on":  {"initial is 64KiB", "the limit of 63KiB"},
		"bfc:initial=8MiB":                          {"initial is 8MiB", "the device has 4194304 bytes free"},
		"bfc:limit=255":                             {"a limit of 255 bytes", "at least one block, of 256"},
		"bfc:initial=256,limit=255":                 {"a limit of 255 bytes"},
		"bfc:initial=-256":                          {"initial", "-256"},
		"bfc:limit=200000TiB":                       {"limit"},
		"bfc:initial=1MiB,limit=2MiB,initial=1MiB":  {"initial", "twice"},
		"bfc:initial=4MiB,limit=1MiB,fragmentation": {"fragmentation"},
	} {
		a, err := mem.Open(spec, dev)
		if err == nil {
			t.Errorf("%s was taken: %v", spec, a)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v; want it to say %q", spec, err, word)
			}
		}
	}
	if _, err := bfc.New(dev, bfc.Config{Initial: -256}); err == nil {
		t.Error("a negative initial size was taken")
	}
	for _, virtual := range []bool{false, true} { // possible, but for other memory in use
		taken := drivertest.Alloc(t, dev, 3*mib)
		_, err := bfc.New(dev, bfc.Config{Initial: 2 * mib, Limit: 3 * mib, Virtual: virtual})
		if !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, driver.ErrNoMemory) {
			t.Errorf("virtual %v: no room for the initial segment: %v", virtual, err)
		}
		if err := dev.Free(taken); err != nil {
			t.Fatal(err)
		}
		if free, total, _ := dev.Available(); free != total {
			t.Errorf("virtual %v: %d bytes are left behind", virtual, total-free)
		}
	}
}

// Within 6000 bytes, whether they are the limit or all that the device has, three blocks fit and a fourth does not.
func TestBehaviour80_LargestSize(t *testing.T) {
	for name, c := range map[string]struct {
		total int64
		cfg   bfc.Config
	}{
		"limit":             {4 * mib, bfc.Config{Limit: 6000, Fragmentation: exactly}},
		"limit and initial": {4 * mib, bfc.Config{Limit: 6000, Initial: 5888, Fragmentation: exactly}},
		"device":            {6000, bfc.Config{Fragmentation: exactly}},
		"less than asked":   {6000, bfc.Config{Limit: 8192, Fragmentation: exactly}},
	} {
		dev := sim.New(sim.Options{Total: c.total, Alignment: 256})
		a := newAllocator(t, dev, c.cfg)
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
		if n := a.Stats().ReservedBytes.All.Peak; n > 6000 {
			t.Errorf("%s: %d bytes were reserved", name, n)
		}
		for _, b := range blocks {
			a.Free(b)
		}
		if err := errors.Join(a.Close(), dev.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pool that may grow to 8192 bytes on a device with 6000: requests within the initial segment fit; a request that
// needs growth does not, though the limit allows it.
func TestBehaviour80_InitialSizeOnAFullDevice(t *testing.T) {
	dev := sim.New(sim.Options{Total: 6000, Alignment: 256})
	a := newAllocator(t, dev, bfc.Config{Initial: 4096, Limit: 8192, Fragmentation: exactly})
	var blocks []mem.Block
	for _, c := range []struct {
		size int64
		fits bool
	}{{1000, true}, {4000, false}, {500, true}, {2000, true}} {
		b, err := a.Alloc(dev.DefaultStream(), c.size)
		if (err == nil) != c.fits || err != nil && !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("%d bytes: %+v, %v", c.size, b, err)
		}
		blocks = append(blocks, b)
	}
	if n := a.Stats().ReservedBytes.All.Current; n != 4096 {
		t.Errorf("%d bytes reserved, want the initial ones", n)
	}
	for _, b := range blocks {
		a.Free(b)
	}
	if err := errors.Join(a.Close(), dev.Close()); err != nil {
		t.Error(err)
	}
}

// The initial segment is there before the first request and stays until Close, whatever else comes and goes.
func TestBehaviour80_InitialSizeStays(t *testing.T) {
	for _, cfg := range []bfc.Config{
		{Initial: 4 * mib, Limit: 32 * mib},
		{Initial: 4 * mib, Limit: 32 * mib, NoGrowth: true},
		{Initial: 4 * mib, Limit: 32 * mib, Virtual: true},
		{Initial: 32 * mib, Limit: 32 * mib, Virtual: true},
	} {
		inner := drivertest.OpenSim(t, 64*mib)
		dev := fault.Wrap(inner)
		a := newAllocator(t, dev, cfg)
		s := dev.DefaultStream()
		held := func(when string, want int64) {
			t.Helper()
			free, total, err := dev.Available()
			if n := a.Stats().ReservedBytes.All.Current; err != nil || n != want || total-free != want {
				t.Fatalf("%+v, %s: %d bytes reserved, %d held of the device, %v; want %d", cfg, when, n, total-free, err, want)
			}
		}
		alloc := func(size int64) mem.Block {
			t.Helper()
			b, err := a.Alloc(s, size)
			if err != nil {
				t.Fatalf("%+v: %v", cfg, err)
			}
			if err := s.Fill(b.Ptr, 1, b.Size); err != nil {
				t.Fatal(err)
			}
			return b
		}
		held("at first", cfg.Initial)
		first := alloc(4 * mib)
		held("its memory in use", cfg.Initial)
		if cfg.Initial < cfg.Limit {
			a.Free(alloc(8 * mib)) // the next segment is twice as large, or all that is left
			grown := int64(12 * mib)
			if cfg.NoGrowth {
				grown = 32 * mib
			}
			held("grown", grown)
			a.Free(alloc(20 * mib)) // in the place of that, if need be
		}
		a.Free(first)
		if err := a.EmptyCache(); err != nil {
			t.Fatal(err)
		}
		held("emptied", cfg.Initial)
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		if again := alloc(4 * mib); again.Ptr != first.Ptr {
			t.Errorf("%+v: at %#x, at first %#x", cfg, uint64(again.Ptr), uint64(first.Ptr))
		} else {
			a.Free(again)
		}
		kind := intercept.Free
		if cfg.Virtual {
			kind = intercept.Unmap
		}
		dev.SetRules(fault.Rule{Kind: kind, Nth: 1, Code: driver.ErrInvalid})
		if err := a.Close(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: Close: %v", cfg, err)
		}
		dev.SetRules()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if free, total, err := dev.Available(); err != nil || free != total {
			t.Errorf("%+v: closed, with %d bytes left behind: %v", cfg, total-free, err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The rest of an address range has the stamp of the block freed last in it: no request gets it too early.
func TestInitialSegmentKeepsItsStamp(t *testing.T) {
	dev := fault.Wrap(sim.New(sim.Options{Total: 64 * mib, Unchecked: true}))
	defer dev.Close()
	a := newAllocator(t, dev, bfc.Config{Initial: 2 * mib, Virtual: true, Counter: &bfc.Counter{}})
	s := dev.DefaultStream()
	var blocks []mem.Block
	for range 2 { // the second is not of the initial segment
		b, err := a.Alloc(s, 2*mib)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	a.Free(blocks[0]) // 1
	a.Free(blocks[1]) // 2
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	dev.SetRules(fault.Rule{Kind: intercept.Create, Code: driver.ErrNoMemory})
	fits := func(bound uint64) bool {
		b, err := a.Request(t.Context(), s, 2*mib, bfc.Options{FreedBefore: func() uint64 { return bound }})
		a.Free(b)
		return err == nil
	}
	if fits(1) {
		t.Error("memory was allocated that was freed after the bound")
	}
	a.SetSafeFrontier(3)
	if !fits(1) {
		t.Error("memory below the safe frontier was not allocated")
	}
	dev.SetRules()
}

// What EmptyCache gives back of an address range is behind its initial part, and its event says so.
func TestTheEventOfGivingBackBehindTheInitialPart(t *testing.T) {
	dev := sim.New(sim.Options{Total: 64 * mib, Unchecked: true})
	defer dev.Close()
	a := newAllocator(t, dev, bfc.Config{Initial: 2 * mib, Virtual: true})
	initial, err := a.Alloc(dev.DefaultStream(), 2*mib)
	if err != nil {
		t.Fatal(err)
	}
	more, err := a.Alloc(dev.DefaultStream(), 2*mib)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(initial)
	a.Free(more)
	var unmapped []mem.Event
	a.Observe(func(e mem.Event) {
		if e.Action == mem.ActionSegmentUnmap {
			unmapped = append(unmapped, e)
		}
	})
	grown := a.Stats().ReservedBytes.All.Current - 2*mib
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	at := initial.Ptr + driver.Pointer(2*mib)
	if len(unmapped) != 1 || unmapped[0].Ptr != at || unmapped[0].Size != grown {
		t.Errorf("unmapped: %+v, want %d bytes at %#x", unmapped, grown, uint64(at))
	}
}
