package caching_test

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

func TestWhatCannotBeRestoredIsLeftAsItIs(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		simulated := drivertest.OpenSim(t, gib)
		b := newGraphBench(t, simulated, simulated)
		b.Allocator = newAllocator(t, b.dev, settings)
		id, main, side := mem.PoolID{0, 1}, b.s[0], b.s[1]
		in := func(f func()) {
			b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
			f()
			b.EndAllocateToPool(id)
		}
		refused := func(what string, state *caching.PoolState, want error) {
			t.Helper()
			before, stats := b.Snapshot(), b.Stats()
			d, err := b.Restore(state)
			if !errors.Is(err, want) || d != nil {
				t.Errorf("%q, %s: %+v, error %v; want one that matches %v", settings, what, d, err, want)
			}
			if !reflect.DeepEqual(b.Snapshot(), before) || b.Stats() != stats {
				t.Errorf("%q, %s: the restore failed and changed something", settings, what)
			}
			b.ok(b.Check())
		}
		if _, err := b.Checkpoint(id); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a checkpoint of no pool: %v", err)
		}
		var small, large mem.Block
		in(func() { small, large = b.alloc(main, 512), b.alloc(main, 3*mib) })
		state := b.checkpoint(id)

		b.BeginAllocateToPool(id, func(driver.Stream) bool { return false })
		refused("requests are going to the pool", state, driver.ErrInvalid)
		b.EndAllocateToPool(id)

		release := b.hold(side)
		b.ok(side.Fill(large.Ptr, 1, 1))
		b.Free(large, side)
		refused("a block is pending", state, driver.ErrNotReady)
		if _, err := b.Checkpoint(id); !errors.Is(err, driver.ErrNotReady) {
			t.Errorf("a checkpoint of a pool with a pending block: %v", err)
		}
		release()
		b.sync(side)
		d := b.restore(state)
		small, large = b.at(d, small), b.at(d, large)

		elsewhere := newAllocator(t, b.dev, settings)
		testkit.Contains(t, testkit.Panic(t, func() { elsewhere.Restore(state) }), "another allocator")

		// The large segment goes; the pool stays for the sake of its small one, and is used again.
		b.Free(large)
		b.ReleasePool(id)
		b.ReleasePool(id)
		refused("the pool was released", state, driver.ErrInvalid)
		b.ok(b.EmptyCache())
		in(func() {})
		refused("a segment is gone", state, driver.ErrInvalid)
		b.Free(small)
		b.ReleasePool(id)
		b.ok(b.EmptyCache())
		refused("the pool is gone", state, driver.ErrInvalid)

		// The addresses serve others now.
		for _, now := range []struct {
			what  string
			pool  mem.PoolID
			s     driver.Stream
			sizes []int64
		}{
			{"the memory is another pool's", mem.PoolID{0, 2}, main, []int64{512, 3 * mib}},
			{"the memory is another stream's", id, side, []int64{512, 3 * mib}},
			{"a segment has another size", id, main, []int64{512, 30 * mib}},
			{"segments are of another kind", id, main, []int64{3 * mib, 512}},
		} {
			if settings != "" && now.what == "a segment has another size" {
				continue // the pages are all there
			}
			in(func() {}) // the pool exists
			var blocks []mem.Block
			b.BeginAllocateToPool(now.pool, func(driver.Stream) bool { return true })
			for _, size := range now.sizes {
				blocks = append(blocks, b.alloc(now.s, size))
			}
			b.EndAllocateToPool(now.pool)
			if blocks[0].Ptr != small.Ptr && blocks[1].Ptr != large.Ptr {
				t.Errorf("%q, %s: no block is where one was", settings, now.what)
			}
			refused(now.what, state, driver.ErrInvalid)
			for _, block := range blocks {
				b.Free(block)
			}
			b.ReleasePool(id)
			b.ReleasePool(now.pool)
			b.ok(b.EmptyCache())
		}

		// A state of a small segment alone, where a large one is now.
		in(func() { small = b.alloc(main, 512) })
		state = b.checkpoint(id)
		b.Free(small)
		b.ReleasePool(id)
		b.ok(b.EmptyCache())
		in(func() { large = b.alloc(main, 3*mib) })
		testkit.Equal(t, "the address of the large block", large.Ptr, small.Ptr)
		refused("a small segment is a large one now", state, driver.ErrInvalid)
		b.Free(large)
		b.ReleasePool(id)
		b.finish(nil, nil)
		if _, err := b.Checkpoint(id); !errors.Is(err, caching.ErrClosed) {
			t.Errorf("a checkpoint after Close: %v", err)
		}
		if _, err := b.Restore(state); !errors.Is(err, caching.ErrClosed) {
			t.Errorf("a restore after Close: %v", err)
		}
	}
}

// Whichever driver call fails, a restore either restores the state or returns an error.
func TestRestoreWhenCallsFail(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		restored := 0
		for n := int64(1); ; n++ {
			dev := fault.Wrap(drivertest.OpenSim(t, gib))
			a := newAllocator(t, dev, settings)
			main, id := dev.DefaultStream(), mem.PoolID{1, 0}
			side := drivertest.NewStream(t, dev)
			dev.SetRules(fault.Rule{Nth: n})
			live := map[mem.Block]bool{}
			alloc := func(sizes ...int64) {
				a.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
				for _, size := range sizes {
					if block, err := a.Alloc(main, size); err == nil {
						live[block] = true
					}
				}
				a.EndAllocateToPool(id)
			}
			free := func(used ...driver.Stream) {
				sorted := slices.SortedFunc(maps.Keys(live), func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) })
				for _, block := range sorted[:len(sorted)/2] {
					a.Free(block, used...)
					delete(live, block)
				}
			}
			alloc(512, 3*mib, 700, 12*mib)
			free(side)
			state, err := a.Checkpoint(id)
			if err != nil && !errors.Is(err, driver.ErrNotReady) {
				t.Errorf("%q, call %d: %v", settings, n, err)
			}
			if err == nil {
				want := segmentsOf(a, id)
				alloc(5*mib, 40*mib)
				free(side)
				switch d, err := a.Restore(state); {
				case err == nil:
					restored++
					clear(live)
					for _, block := range d.Live {
						live[block] = true
					}
					if got := liveIn(segmentsOf(a, id)); got != liveIn(want) {
						t.Errorf("%q, call %d: %d blocks are live, want %d", settings, n, got, liveIn(want))
					}
				case !errors.Is(err, driver.ErrNotReady):
					t.Errorf("%q, call %d: %v", settings, n, err)
				}
			}
			failed := dev.Failed()
			if err := a.Check(); err != nil {
				t.Errorf("%q, call %d: %v", settings, n, err)
			}
			dev.SetRules()
			for block := range live {
				a.Free(block)
			}
			if err := a.Close(); err != nil {
				t.Errorf("%q, call %d: %v", settings, n, err)
			}
			if failed == 0 {
				break
			}
		}
		if restored < 3 {
			t.Errorf("%q: only %d restores went through", settings, restored)
		}
	}
}

func TestRestoreWhileOthersAllocate(t *testing.T) {
	dev := drivertest.OpenDevice(t, "host:total=1GiB")
	a := newAllocator(t, dev, "")
	id := mem.PoolID{0, 1}
	streams := []driver.Stream{dev.DefaultStream()}
	for range 2 {
		s := drivertest.NewStream(t, dev)
		streams = append(streams, s)
	}
	a.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	for i := range 60 {
		block, err := a.Alloc(streams[i%3], int64(1+i%5*300_000))
		if err != nil {
			t.Fatal(err)
		}
		if i%4 == 1 {
			a.Free(block)
		}
	}
	a.EndAllocateToPool(id)
	state, err := a.Checkpoint(id)
	if err != nil {
		t.Fatal(err)
	}
	want := segmentsOf(a, id)

	stop := make(chan struct{})
	var others sync.WaitGroup
	for i := range 4 {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				block, err := a.Alloc(streams[(i+n)%3], int64(1+n%9*200_000))
				if err != nil {
					t.Error(err)
					return
				}
				switch {
				case n%50 == 49:
					a.Free(block, streams[n%3])
				case n%300 == 299 && i == 0:
					a.Free(block)
					if err := a.EmptyCache(); err != nil {
						t.Error(err)
					}
				default:
					a.Free(block)
				}
			}
		})
	}
	for i := range 150 {
		d, err := a.Restore(state)
		if err != nil {
			t.Fatal(err)
		}
		if got := segmentsOf(a, id); !reflect.DeepEqual(got, want) {
			t.Fatalf("restore %d: %+v, want %+v", i, got, want)
		}
		for n, block := range d.Live {
			if n%3 == i%3 {
				a.Free(block)
			}
		}
	}
	close(stop)
	others.Wait()
	if d, err := a.Restore(state); err != nil {
		t.Error(err)
	} else {
		for _, block := range d.Live {
			a.Free(block)
		}
	}
	a.ReleasePool(id)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
