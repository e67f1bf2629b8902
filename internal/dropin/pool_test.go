package dropin

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// call does a pool call, which must succeed.
func call(t *testing.T, p *Process, id mem.PoolID, c PoolCall) int {
	t.Helper()
	users, err := p.Pool(0, id, c)
	testkit.Must(t, err)
	return users
}

// A program captures with memory of a pool, goes back to an earlier state, and frees by address.
func TestPoolsOfThePaged(t *testing.T) {
	p, _ := newProcess(t, "")
	id := mem.PoolID{1, 0}
	testkit.Equal(t, "users", call(t, p, id, PoolRetain), 1)
	testkit.Equal(t, "users", call(t, p, id, PoolBegin), 2)
	kept, err := p.AllocInPool(0, 7, 3*mib, id)
	testkit.Must(t, err)
	small, err := p.AllocInPool(0, 7, 100, id)
	testkit.Must(t, err)
	call(t, p, id, PoolEnd)
	state, err := p.Checkpoint(0, id)
	testkit.Must(t, err)
	later, err := p.AllocInPool(0, 7, 2*mib, id)
	testkit.Must(t, err)
	testkit.Must(t, p.Free(small))
	outside := alloc(t, p, 7, mib)
	d, err := p.Restore(0, state)
	testkit.Must(t, err)
	if len(d.Live) != 2 || len(d.Freed) != 1 || d.Freed[0].Ptr != later {
		t.Errorf("after Restore: %+v", d)
	}
	if same, err := p.CheckPoolLive(0, id, []driver.Pointer{kept, small}); err != nil || !same {
		t.Errorf("the blocks of the checkpoint are live: %v, %v", same, err)
	}
	if same, err := p.CheckPoolLive(0, id, []driver.Pointer{kept, outside}); err != nil || same {
		t.Errorf("other blocks are live: %v, %v", same, err)
	}
	if err := p.Free(later); !errors.Is(err, ErrUnknown) {
		t.Errorf("Free of a block that Restore took: %v", err)
	}
	for _, at := range []driver.Pointer{kept, small, outside} {
		testkit.Must(t, p.Free(at))
	}
	p.DropCheckpoint(state)
	if _, err := p.Restore(0, state); !errors.Is(err, ErrInvalid) {
		t.Errorf("Restore of a dropped checkpoint: %v", err)
	}
	call(t, p, id, PoolRelease)
	testkit.Equal(t, "users", call(t, p, id, PoolRelease), 0)
	testkit.Must(t, p.EmptyCache(0))
	stats, err := p.Stats(0)
	testkit.Must(t, err)
	testkit.Equal(t, "reserved", stats.ReservedBytes.All.Current, 0)
}

func TestPoolsNeedThePagedBackend(t *testing.T) {
	p, _ := newProcess(t, "backend:caching")
	if _, err := p.Pool(0, mem.PoolID{1, 0}, PoolBegin); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a pool of caching: %v", err)
	}
	p, _ = newProcess(t, "")
	if _, err := p.AllocInPool(0, 7, 1, mem.PoolID{9, 9}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a request to a pool that does not exist: %v", err)
	}
}

// Calls for pools that are not as the program takes them to be are errors, and change nothing.
func TestWrongPoolCallsAreErrors(t *testing.T) {
	p, _ := newProcess(t, "")
	id, other := mem.PoolID{1, 0}, mem.PoolID{0, 5}
	wrong := func(what string, id mem.PoolID, calls ...PoolCall) {
		t.Helper()
		for _, c := range calls {
			before, err := p.Pool(0, id, PoolUsers)
			testkit.Must(t, err)
			if _, err := p.Pool(0, id, c); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: pool call %d: error %v", what, c, err)
			}
			testkit.Equal(t, what+": users", call(t, p, id, PoolUsers), before)
		}
	}
	wrong("the default pool", mem.PoolID{}, PoolRetain, PoolBegin, PoolEnd, PoolRelease)
	wrong("no pool", other, PoolEnd, PoolRelease, PoolUseOnOOM, PoolNotOnOOM, PoolNoSplit)
	call(t, p, id, PoolBegin)
	wrong("a pool in use", id, PoolBegin, PoolRelease)
	at, err := p.AllocInPool(0, 7, mib, id)
	testkit.Must(t, err)
	wrong("a pool with memory", id, PoolNoSplit)
	call(t, p, id, PoolEnd)
	wrong("a pool that is not in use", id, PoolEnd)
	call(t, p, id, PoolRelease)
	wrong("a pool without users", id, PoolRelease)
	testkit.Must(t, p.Free(at))
}

// A program's pools and the memory of a tag are apart, whatever the IDs of the pools are: PyTorch numbers its MemPools
// (0, 1), (0, 2) and so on.
func TestPoolsAreNotThoseOfTags(t *testing.T) {
	p, _ := newProcess(t, "")
	weights := allocTagged(t, p, "weights", 3*mib)
	last := mem.NewPoolID()
	for n := uint64(1); n <= last[1]; n++ {
		testkit.Equal(t, "users of a new pool", call(t, p, mem.PoolID{0, n}, PoolRetain), 1)
	}
	testkit.Must(t, p.Pause(0, "weights", true))
	testkit.Must(t, p.Resume(0, "weights", false))
	testkit.Must(t, p.Free(weights))
}

// A restore ends what was noted for the blocks that it frees: another block at the address is free of it.
func TestRestoreForgetsPinsAndExternalStreams(t *testing.T) {
	p, dev := newProcess(t, "")
	id := mem.PoolID{1, 0}
	call(t, p, id, PoolRetain)
	kept, err := p.AllocInPool(0, 7, mib, id)
	testkit.Must(t, err)
	state, err := p.Checkpoint(0, id)
	testkit.Must(t, err)
	later, err := p.AllocInPool(0, 7, 2*mib, id)
	testkit.Must(t, err)
	testkit.Must(t, errors.Join(p.Pin(later), p.RecordStream(later, 9, true)))
	testkit.Must(t, errors.Join(p.Pin(kept), p.Free(kept))) // it stays until its Unpin
	_, err = p.Restore(0, state)
	testkit.Must(t, err)
	dev.gone = 9
	testkit.Must(t, p.Unpin(kept))
	if _, err := p.Block(kept); err != nil {
		t.Errorf("the block that a restore made live again was freed by its Unpin: %v", err)
	}
	again, err := p.AllocInPool(0, 7, 2*mib, id)
	testkit.Must(t, err)
	testkit.Equal(t, "address", again, later)
	testkit.Must(t, p.Free(again))
	if _, err := p.Block(again); !errors.Is(err, ErrUnknown) {
		t.Errorf("a block at the address of one that was pinned: after Free %v", err)
	}
	testkit.Must(t, p.Free(kept))
}

// Threads allocate, record and free while another captures with a pool, releases it and empties the cache.
func TestPoolsBesideOtherThreads(t *testing.T) {
	p, _ := newProcess(t, "")
	for handle := range uintptr(4) {
		testkit.Must(t, p.Free(alloc(t, p, 16*handle, mib)))
	}
	var stop atomic.Bool
	var threads sync.WaitGroup
	for n := range uintptr(2) {
		threads.Go(func() {
			var held []driver.Pointer
			for i := uint64(0); !stop.Load(); i++ {
				at, err := p.Alloc(0, 32+16*n, 1+(i*7919)%(4*mib))
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					testkit.Must(t, p.RecordStream(at, 16, false))
				}
				if held = append(held, at); len(held) > 5 {
					testkit.Must(t, p.Free(held[0]))
					held = held[1:]
				}
			}
			for _, at := range held {
				testkit.Must(t, p.Free(at))
			}
		})
	}
	for i := range uint64(300) {
		id := mem.PoolID{1 + i, 0}
		testkit.Must(t, p.EmptyCache(-1))
		call(t, p, id, PoolBegin)
		testkit.Must(t, p.BeginCapture(0))
		x, err := p.AllocInPool(0, 16, 4*mib, id)
		testkit.Must(t, err)
		y, err := p.AllocInPool(0, 16, 4*mib, id)
		testkit.Must(t, err)
		testkit.Must(t, p.Free(x))
		testkit.Must(t, p.EndCapture(0))
		call(t, p, id, PoolEnd)
		testkit.Must(t, p.Free(y))
		call(t, p, id, PoolRelease)
	}
	stop.Store(true)
	threads.Wait()
}
