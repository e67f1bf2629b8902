package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/trace"
)

// Caches form a stack. Each is a part of the device's memory for one session, used inside UseCache.
func TestCaches(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "arena:size=8MiB"}}})
	s, other := session(t, e), session(t, e)
	free := func() int64 { return 8<<20 - liveBytes(e.Allocator(0)) }
	testkit.Must(t, s.ReserveCache(1<<20))
	testkit.Must(t, s.ReserveCache(2<<20))
	if free() != 5<<20 {
		t.Fatalf("%d bytes left of 8 MiB beside caches of 1 and 2 MiB", free())
	}
	filler, err := other.Place().Alloc(5 << 20) // others leave nothing
	testkit.Must(t, err)
	if _, err := s.Place().Alloc(512); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("outside of UseCache: %v, want no room", err)
	}
	var x *tensor.Tensor
	testkit.Must(t, s.UseCache(func() error {
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
		t.Error("FreeCache of a cache with memory allocated: no error")
	}
	x.Release()
	testkit.Must(t, s.FreeCache())
	testkit.Must(t, s.UseCache(func() error { // the other one
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
	testkit.Must(t, s.Close()) // with the cache, after the tensors in it
	if free() != 8<<20 {
		t.Errorf("%d bytes left at the end, want all", free())
	}
}

// allocators lists every allocator that a device may have.
var allocators = []string{"caching", "caching:expandable_segments:True", "bfc", "bfc:virtual=on", "paged", "direct", "direct:session=on", "arena", "arena:page=2MiB"}

// If a cache has live blocks when its session is closed, it is freed with the last of them, on every allocator, and not
// only with the engine.
func TestDefect17_ACacheGoesWithItsLastBlock(t *testing.T) {
	for _, allocator := range allocators {
		t.Run(allocator, func(t *testing.T) {
			e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: allocator}}})
			before := liveBytes(e.Allocator(0))
			s, err := e.NewSession()
			testkit.Must(t, err)
			testkit.Must(t, s.ReserveCache(1<<20))
			testkit.Must(t, s.ReserveCache(2<<20))
			var kept []*tensor.Tensor
			testkit.Must(t, s.UseCache(func() error {
				kept = append(kept, s.Keep(floats(t, s.Place(), 3)), s.Keep(floats(t, s.Place(), 4)))
				return nil
			}))
			if err := s.FreeCache(); err == nil || !strings.Contains(err.Error(), "2 live blocks") {
				t.Errorf("FreeCache of a cache with memory allocated: %v", err)
			}
			testkit.Must(t, s.Close())
			if n := liveBytes(e.Allocator(0)) - before; n != 2<<20 {
				t.Errorf("%d bytes allocated, want the cache that has blocks", n)
			}
			if got, err := tensor.ToSlice[float32](kept[0]); err != nil || len(got) != 3 {
				t.Errorf("what was kept is %v, %v", got, err)
			}
			kept[0].Release()
			elsewhere(kept[1].Release)
			if n := liveBytes(e.Allocator(0)) - before; n != 0 {
				t.Errorf("%d bytes allocated when all is released", n)
			}
		})
	}
}

// Layers on the allocator also apply to caches: a session cannot read, through its cache, data that another session
// left in the memory.
func TestDefect17_CachesGoThroughWrap(t *testing.T) {
	for _, allocator := range allocators {
		t.Run(allocator, func(t *testing.T) {
			var tracker *layer.LeakTracker
			e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: allocator, Wrap: func(a mem.Allocator) mem.Allocator {
				tracker = layer.NewLeakTracker(layer.NewZeroer(a), layer.LeakTrackerOptions{})
				return tracker
			}}}})
			secret := slices.Repeat([]float32{7}, 1<<17)
			read := func(s *Session) {
				t.Helper()
				x, err := tensor.Empty(s.Place().Unscoped(), dtype.Float32, len(secret))
				testkit.Must(t, err)
				defer x.Release()
				got, err := tensor.ToSlice[float32](x)
				testkit.Must(t, err)
				if slices.Contains(got, 7) {
					t.Error("a session reads what another wrote")
				}
				if live := tracker.Live(); len(live) != 1 || live[0].Requested != 1<<19 {
					t.Errorf("the tracker sees %v, want the tensor", live)
				}
			}
			for range 2 {
				a := session(t, e)
				testkit.Must(t, a.ReserveCache(1<<20))
				testkit.Must(t, a.UseCache(func() error {
					read(a)
					x, err := tensor.FromSlice(a.Place().Unscoped(), secret)
					testkit.Must(t, err)
					x.Release()
					read(a)
					_, err = tensor.FromSlice(a.Place(), secret)
					return err
				}))
				testkit.Must(t, a.Close())
				b := session(t, e)
				read(b)
				testkit.Must(t, b.Close())
			}
		})
	}
}

// A recorder of an engine's memory records the blocks in caches, including moved ones, but not the block of a cache
// itself. The recording looks like that of a single allocator, and its final state is the allocated blocks.
func TestDefect17_ARecorderSeesCaches(t *testing.T) {
	for _, allocator := range allocators {
		t.Run(allocator, func(t *testing.T) {
			r := trace.NewRecorder(trace.RecorderOptions{Context: trace.ContextAll})
			e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: allocator, Wrap: r.Attach}}})
			s := session(t, e)
			sizes := func() (on []int64) {
				t.Helper()
				p, err := trace.ToProgram(r.Trace(), trace.ProgramOptions{})
				testkit.Must(t, err)
				if p.Anomalies.Count > 0 {
					t.Fatalf("anomalies: %v", p.Anomalies.First)
				}
				live := map[driver.Pointer]int64{}
				for _, ev := range r.Trace().Events {
					switch ev.Action {
					case mem.ActionAlloc:
						live[ev.Ptr] = ev.Size
					case mem.ActionFreeCompleted:
						delete(live, ev.Ptr)
					}
				}
				for _, n := range live {
					on = append(on, n)
				}
				slices.Sort(on)
				return on
			}
			outside := floats(t, s.Place(), 500)
			testkit.Must(t, s.ReserveCache(1<<20))
			var gap, kept *tensor.Tensor
			testkit.Must(t, s.UseCache(func() error {
				gap, kept = floats(t, s.Place(), 1000), s.Keep(floats(t, s.Place(), 3000))
				if _, err := s.Place().Alloc(1 << 20); !errors.Is(err, mem.ErrNoMemory) {
					t.Errorf("more than the cache: %v", err)
				}
				return nil
			}))
			if got := sizes(); !slices.Equal(got, []int64{2000, 4000, 12000}) {
				t.Errorf("allocated by the recording are %v", got)
			}
			gap.Release()
			testkit.Must(t, s.Collect(t.Context()))
			if got := sizes(); !slices.Equal(got, []int64{2000, 12000}) {
				t.Errorf("when blocks have moved: %v", got)
			}
			snap, err := snapshot.Of(e.Allocator(0), snapshot.Live{Recorder: r})
			testkit.Must(t, err)
			var on []int64
			for _, seg := range snap.Segments {
				at := seg.Ptr
				for _, b := range seg.Blocks {
					if b.Ptr != at {
						t.Errorf("a block at %#x, where %#x is next", b.Ptr, at)
					}
					at += driver.Pointer(b.Size)
					if b.State != mem.Inactive {
						on = append(on, b.RequestedSize)
						if len(snap.Stacks.At(b.Stack)) == 0 {
							t.Errorf("a block of %d bytes without a stack", b.RequestedSize)
						}
					}
				}
				if at != seg.Ptr+driver.Pointer(seg.TotalSize) {
					t.Errorf("the blocks of a segment end at %#x", at)
				}
			}
			if slices.Sort(on); !slices.Equal(on, []int64{2000, 12000}) {
				t.Errorf("the snapshot has %v allocated", on)
			}
			outside.Release()
			testkit.Must(t, s.Close())
			kept.Release()
			if got := sizes(); len(got) != 0 {
				t.Errorf("allocated at the end: %v", got)
			}
			after := floats(t, e.Place(0), 200000) // perhaps where the cache was
			if got := sizes(); !slices.Equal(got, []int64{800000}) {
				t.Errorf("after the cache: %v", got)
			}
			after.Release()
		})
	}
}

// A pin of the engine or of the session keeps blocks in its caches from moving, including later caches. A pin of
// another session does not. Collect compacts them once it is released.
func TestDefect17_HoldsReachCachesAndCollectCompactsThem(t *testing.T) {
	for _, allocator := range allocators {
		t.Run(allocator, func(t *testing.T) {
			e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: allocator}}})
			s, other := session(t, e), session(t, e)
			for what, hold := range map[string]func() (*Hold, error){
				"engine":          func() (*Hold, error) { return e.Pin(0) },
				"session":         func() (*Hold, error) { return s.Pin() },
				"another session": other.Pin,
			} {
				for _, before := range []bool{false, true} { // the cache is there
					var h *Hold
					var err error
					take := func() { h, err = hold(); testkit.Must(t, err) }
					if !before {
						take()
					}
					testkit.Must(t, s.ReserveCache(1<<20))
					if before {
						take()
					}
					holds := what != "another session"
					testkit.Must(t, s.UseCache(func() error {
						low, high := floats(t, s.Place(), 1<<17), floats(t, s.Place(), 1000)
						defer high.Release()
						low.Release()
						x, err := s.Place().Alloc(1<<20 - 8<<10)
						if (err != nil) != holds {
							t.Errorf("held by the %s: a block that wants room made: %v", what, err)
						}
						if err == nil {
							x.Release()
							return nil
						}
						if err := s.Collect(t.Context()); !errors.Is(err, arena.ErrPinned) {
							t.Errorf("held by the %s: Collect: %v", what, err)
						}
						return nil
					}))
					h.Release()
					h.Release()
					k := s.currentDevice().caches[0]
					testkit.Must(t, s.UseCache(func() error {
						low, high := floats(t, s.Place(), 1000), floats(t, s.Place(), 1000)
						low.Release()
						testkit.Must(t, s.Collect(t.Context()))
						if b := k.Snapshot()[0].Blocks; b[0].State == mem.Inactive {
							t.Errorf("after Collect the cache begins with a hole: %+v", b)
						}
						high.Release()
						return nil
					}))
					testkit.Must(t, s.Close())
					s = session(t, e)
				}
			}
		})
	}
}

// A session's cache serves and counts requests on the streams that the session borrows, and on the program's streams
// that its places use. It does not serve another session's streams, or a later stream with the same ID.
func TestDefect17_CachesServeAllStreamsOfASession(t *testing.T) {
	for _, allocator := range allocators {
		t.Run(allocator, func(t *testing.T) {
			e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: allocator}}})
			s, other := session(t, e), session(t, e)
			early, err := s.BorrowStream()
			testkit.Must(t, err)
			dev := s.Place().Device()
			own := drivertest.NewStream(t, dev)
			s.Place().On(own)
			s.Place().On(other.Place().Stream())
			s.Place().On(dev.DefaultStream())
			testkit.Must(t, s.ReserveCache(1<<20))
			k := s.currentDevice().caches[0]
			testkit.Must(t, s.UseCache(func() error {
				late, err := s.BorrowStream()
				testkit.Must(t, err)
				for i, stream := range []driver.Stream{s.Place().Stream(), early, late, own} {
					x := floats(t, s.Place().On(stream), 1000)
					if n := k.live.Load(); n != int64(i)+1 {
						t.Errorf("%d blocks allocated from the cache, want %d", n, i+1)
					}
					if x.Place().Stream() != stream {
						t.Error("a tensor on another stream")
					}
				}
				floats(t, other.Place(), 1000)
				floats(t, other.Place().On(own), 1000).Release()
				floats(t, e.Place(0), 1000).Release()
				if n := k.live.Load(); n != 4 {
					t.Errorf("another session has a block of the cache: %d", n)
				}
				testkit.Must(t, own.Sync(t.Context()))
				testkit.Must(t, own.Close())
				next := drivertest.NewStream(t, dev)
				if next.ID() != own.ID() {
					t.Fatalf("stream %d follows stream %d", next.ID(), own.ID())
				}
				b, err := e.Allocator(0).Alloc(next, 1000)
				testkit.Must(t, err)
				if n := k.live.Load(); n != 4 {
					t.Errorf("a later stream has a block of the cache: %d", n)
				}
				e.Allocator(0).Free(b)
				return next.Close()
			}))
			if s.UsedMemory() != 16000 || other.UsedMemory() != 4000 {
				t.Errorf("%d and %d bytes used", s.UsedMemory(), other.UsedMemory())
			}
			floats(t, s.Place().On(early), 1000)
			if n := k.live.Load(); n != 4 {
				t.Errorf("%d blocks allocated from the cache when it is not in use", n)
			}
			testkit.Contains(t, testkit.Panic(t, func() { s.ReturnStream(other.Place().Stream()) }),
				"ReturnStream at sessioncache_test.go:", "this session did not borrow")
		})
	}
}

// A cache counts against the device's limit as a whole, until it is freed.
func TestCachesAndTheLimit(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "arena", MemoryLimit: 4 << 20}}})
	s := session(t, e)
	testkit.Must(t, s.ReserveCache(3<<20))
	if _, err := s.Place().Alloc(2 << 20); !errors.Is(err, mem.ErrNoMemory) || !strings.Contains(err.Error(), "the engine's MemoryLimit") {
		t.Errorf("2 MiB beside a cache of 3 under a limit of 4: %v", err)
	}
	a, err := s.Place().Alloc(1 << 19)
	testkit.Must(t, err)
	if err := s.ReserveCache(1 << 20); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a cache over the limit: %v", err)
	}
	a.Release()
	testkit.Must(t, s.FreeCache())
	b, err := s.Place().Alloc(7 << 19)
	testkit.Must(t, err)
	b.Release()
	if info, err := e.DeviceInfo(0); err != nil || info.Limit != 4<<20 || info.Reserved > info.Limit {
		t.Errorf("limit %d, %d reserved, %v; want 4 MiB", info.Limit, info.Reserved, err)
	}
}

func TestUseOfNoCache(t *testing.T) {
	e, _ := simulated(t, 1, Config{})
	s := session(t, e)
	if s.UseCache(func() error { t.Error("called"); return nil }) == nil || s.FreeCache() == nil {
		t.Error("UseCache or FreeCache without a cache: no error")
	}
	testkit.Contains(t, testkit.Panic(t, func() { s.ReserveCache(0) }), "ReserveCache of 0 bytes")
}

// Every allocator supports caches. Some support Freeze, and the error of the others names those.
func TestDefect18_EveryAllocatorReservesAndFreezesIfItCan(t *testing.T) {
	freezes := map[string]bool{"arena": true}
	for _, allocator := range append(mem.Allocators("sim"), allocators...) {
		name, _, _ := strings.Cut(allocator, ":")
		if name == "pinned" { // the host's memory
			continue
		}
		e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: allocator}}})
		s := session(t, e)
		testkit.Must(t, s.ReserveCache(1<<20))
		testkit.Must(t, s.UseCache(func() error {
			x, err := s.Place().Alloc(1 << 20)
			if err == nil {
				x.Release()
			}
			return err
		}))
		if err := s.ReserveCache(1 << 40); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("%s: a cache of a TiB: %v", allocator, err)
		}
		switch err := e.Freeze(0); {
		case freezes[name]:
			testkit.Must(t, err)
		case !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), `"arena" does`):
			t.Errorf("%s: Freeze: %v", allocator, err)
		}
	}
}

// A single request can be rounded up, on any allocator and under any layers, as with BMEngine's round_up_bytes: the
// block has the rounded size, and the session counts the requested bytes.
func TestDefect20_RequestsRoundUp(t *testing.T) {
	for _, allocator := range allocators {
		e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: allocator, Wrap: func(a mem.Allocator) mem.Allocator {
			return layer.NewLeakTracker(layer.NewAligner(a, 4096, layer.AlignerOptions{}), layer.LeakTrackerOptions{})
		}}}})
		s := session(t, e)
		for _, c := range []struct{ asked, unit, least int64 }{{1000, 1024, 1024}, {1, 5 << 20, 5 << 20}, {5 << 20, 5 << 20, 5 << 20}} {
			b, err := mem.AllocWith(e.Allocator(0), s.Place().Stream(), c.asked, mem.AllocOptions{RoundUp: c.unit})
			testkit.Must(t, err)
			if b.Size < c.least || s.UsedMemory() > c.least {
				t.Errorf("%s: %d bytes, rounded up to a multiple of %d: %d, and %d used", allocator, c.asked, c.unit, b.Size, s.UsedMemory())
			}
			e.Allocator(0).Free(b)
		}
	}
}

// With "direct:session=on", freed memory returns to the device when a session or a task of EachDevice ends.
func TestDefect18_DirectFreesAtTheSessionsEnd(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "direct:session=on"}}})
	reserved := func() int64 {
		info, err := e.DeviceInfo(0)
		testkit.Must(t, err)
		return info.Reserved
	}
	s, err := e.NewSession()
	testkit.Must(t, err)
	floats(t, s.Place(), 1000).Release()
	kept := s.Keep(floats(t, s.Place(), 2000))
	if got := reserved(); got != 12000 {
		t.Errorf("%d bytes reserved in the session, want what was freed too", got)
	}
	testkit.Must(t, s.Close())
	if got := reserved(); got != 8000 {
		t.Errorf("%d bytes reserved after it, want what is allocated", got)
	}
	testkit.Must(t, e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
		floats(t, s.Place(), 1000)
		return nil
	}))
	if got := reserved(); got != 8000 {
		t.Errorf("%d bytes reserved after a task", got)
	}
	kept.Release()
}

// Collect compacts blocks, and Freeze keeps them in place. Tensors follow moved blocks.
func TestCollectCompacts(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "arena:size=1MiB"}}})
	s := session(t, e)
	first := floats(t, s.Place(), 1<<10)
	x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3})
	testkit.Must(t, err)
	first.Release()
	testkit.Must(t, s.Collect(t.Context()))
	snapshot, _ := mem.Find[mem.Snapshotter](e.Allocator(0))
	if blocks := snapshot.Snapshot()[0].Blocks; len(blocks) != 2 || blocks[0].State == mem.Inactive {
		t.Errorf("after Collect the blocks are %+v, want one and then a hole", blocks)
	}
	testkit.Must(t, e.Freeze(0))
	y, err := tensor.Zeros(s.Place(), dtype.Float32, 3)
	testkit.Must(t, err)
	for want, z := range map[float32]*tensor.Tensor{2: x, 0: y} {
		if got, err := tensor.ToSlice[float32](z); err != nil || got[1] != want {
			t.Errorf("got %v, %v", got, err)
		}
	}
}
