package ashlar

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// Caches are a stack of parts of the device's memory that the session alone uses, inside UseCache.
func TestCaches(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "arena:size=8MiB"}}})
	s, other := session(t, e), session(t, e)
	free := func() int64 { return 8<<20 - onLoan(e.Allocator(0)) }
	must(t, s.ReserveCache(1<<20))
	must(t, s.ReserveCache(2<<20))
	if free() != 5<<20 {
		t.Fatalf("%d bytes left of 8 MiB beside caches of 1 and 2 MiB", free())
	}
	filler, err := other.Place().Alloc(5 << 20) // others leave nothing
	must(t, err)
	if _, err := s.Place().Alloc(512); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("outside of UseCache: %v, want no room", err)
	}
	var x *tensor.Tensor
	must(t, s.UseCache(func() error {
		x = floats(t, s.Place(), 1<<18) // 1 MiB of the 2
		if _, err := s.Place().Alloc(2 << 20); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("more than the cache has left: %v", err)
		}
		if err := s.FreeCache(); err == nil {
			t.Error("FreeCache inside UseCache: no error")
		}
		if _, err := other.Place().Alloc(512); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("another session in the cache: %v", err)
		}
		if err := s.ReserveCache(1 << 10); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("ReserveCache on a device that is full: %v", err)
		}
		return nil
	}))
	if s.UsedMemory() != 1<<20 {
		t.Errorf("used %d bytes, want those in the cache", s.UsedMemory())
	}
	if err := s.FreeCache(); err == nil {
		t.Error("FreeCache of a cache with memory on loan: no error")
	}
	x.Release()
	must(t, s.FreeCache())
	must(t, s.UseCache(func() error { // the other one
		_, err := s.Place().Alloc(2 << 20)
		if !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("more than the first cache: %v", err)
		}
		floats(t, s.Place(), 100)
		return nil
	}))
	filler.Release()
	if free() != 7<<20 {
		t.Errorf("%d bytes left beside a cache of 1 MiB", free())
	}
	must(t, s.Close()) // with the cache, after the tensors in it
	if free() != 8<<20 {
		t.Errorf("%d bytes left at the end, want all", free())
	}
}

// What outlives a session in its cache keeps the cache, until the engine closes.
func TestCacheThatOutlivesItsSession(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "arena:size=8MiB"}}})
	s, err := e.NewSession()
	must(t, err)
	must(t, s.ReserveCache(1<<20))
	var kept *tensor.Tensor
	must(t, s.UseCache(func() error { kept = s.Keep(floats(t, s.Place(), 3)); return nil }))
	if err := s.Close(); err == nil {
		t.Error("Close of a session whose cache has memory on loan: no error")
	}
	if got, err := tensor.ToSlice[float32](kept); err != nil || len(got) != 3 {
		t.Errorf("what was kept is %v, %v", got, err)
	}
	kept.Release()
}

// A cache counts against the device's limit as a whole, and gives that back.
func TestCachesAndTheLimit(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "arena", MemoryLimit: 4 << 20}}})
	s := session(t, e)
	must(t, s.ReserveCache(3<<20))
	if _, err := s.Place().Alloc(2 << 20); !errors.Is(err, mem.ErrNoMemory) || !strings.Contains(err.Error(), "the engine's MemoryLimit") {
		t.Errorf("2 MiB beside a cache of 3 under a limit of 4: %v", err)
	}
	a, err := s.Place().Alloc(1 << 19)
	must(t, err)
	if err := s.ReserveCache(1 << 20); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a cache over the limit: %v", err)
	}
	a.Release()
	must(t, s.FreeCache())
	b, err := s.Place().Alloc(7 << 19)
	must(t, err)
	b.Release()
	if info, err := e.DeviceInfo(0); err != nil || info.Limit != 4<<20 || info.Reserved > info.Limit {
		t.Errorf("limit %d, %d reserved, %v; want 4 MiB", info.Limit, info.Reserved, err)
	}
}

func TestCachesWantAnArena(t *testing.T) {
	e, _ := simulated(t, 1, Config{})
	s := session(t, e)
	if err := s.ReserveCache(512); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("ReserveCache: %v", err)
	}
	if err := e.Freeze(0); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Freeze: %v", err)
	}
	if s.UseCache(func() error { t.Error("called"); return nil }) == nil || s.FreeCache() == nil {
		t.Error("UseCache or FreeCache without a cache: no error")
	}
	mustPanic(t, func() { s.ReserveCache(0) }, "ReserveCache of 0 bytes")
}

// Collect brings blocks together, and Freeze keeps them where they are; tensors follow.
func TestCollectCompacts(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "arena:size=1MiB"}}})
	s := session(t, e)
	first := floats(t, s.Place(), 1<<10)
	x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3})
	must(t, err)
	first.Release()
	must(t, s.Collect(t.Context()))
	snapshot, _ := mem.Find[mem.Snapshotter](e.Allocator(0))
	if blocks := snapshot.Snapshot()[0].Blocks; len(blocks) != 2 || blocks[0].State == mem.Inactive {
		t.Errorf("after Collect the blocks are %+v, want one and then a hole", blocks)
	}
	must(t, e.Freeze(0))
	y, err := tensor.Zeros(s.Place(), dtype.Float32, 3)
	must(t, err)
	for want, z := range map[float32]*tensor.Tensor{2: x, 0: y} {
		if got, err := tensor.ToSlice[float32](z); err != nil || got[1] != want {
			t.Errorf("got %v, %v", got, err)
		}
	}
}
