//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// Copies between ordinary memory and the device use page-locked areas, which the device reads and writes by itself. The
// driver has such areas, too, but fills them with one core, at a fifth to a third of the link's speed. Its
// documentation says only that an asynchronous copy from ordinary memory "may" be done with the source when the call
// returns. Here several cores fill and empty areas while the device copies others, and no address of Go memory is used
// after a call.
//
// A device has two pools. Areas (2 MiB) serve long copies: a copy is split into pieces, and each of its workers
// repeatedly takes the next piece and an area for it (pieces.go). Slots (64 KiB) serve short copies: a stream keeps one
// slot open and fills it copy by copy. So many short copies can be queued behind long work, with one driver call each.
//
// An area is idle (its memory is not in use), held (by a copy, or open on a stream) or pending (returned, but the
// device may still use it until an event recorded after that use). Pending areas are not monitored: a caller that takes
// an area checks their events. An area that is pending on the taker's own stream counts as idle, because the stream
// completes that use first. The idle area that was returned last is taken first, because it is most likely in a
// processor's cache.
//
// A copy waits only for its first area, and takes more only if they are idle. So a holder of areas returns them when
// the device has completed the work queued before, and a wait for an area lasts no longer than that. Invariant: idle +
// pending + held = made <= limit.
//
// Waits for events spin, because an interrupt costs a copy of 4 MiB or more 5 to 45 % of its time (H200). Work queued
// before a copy may take long: one thread of the copy waits for it, as in cuStreamSynchronize, and the other workers
// wait only for pieces of the copy.
//
// GB/s until the copy is done, on an NVIDIA H200 with 16 cores and a link of 55 GB/s, and the same with one call of
// libcuda instead:
//
//	                  128 KiB  1 MiB  2 MiB  4 MiB  16 MiB  64 MiB  256 MiB  1 GiB
//	in                    7.1   15.9   13.8   17.6    16.9    32.1     44.1   48.5
//	in, one call          8.0   14.5   16.8   16.2    16.5    17.0     10.6   10.1
//	out                   7.2   16.7   14.8   17.7    22.5    43.4     48.5   47.9
//	out, one call         7.5   12.2   14.6   16.0    17.9    16.3     16.3   18.6
//
// Measure with: go test -tags gpu -run '^$' -bench Copy ./driver/cuda
//
// Locks: a pool's mu is taken after a stream's. libcuda is called with it held, but only for calls that do not wait.
//
// If page-locked memory cannot be allocated, the driver's own method is used (copyInPlace).

// The sizes of the pools, in bytes and in number of areas.
const (
	slotBytes = 64 << 10
	slotLimit = 256
	areaBytes = 2 << 20
	areaLimit = 64
	areaShare = areaLimit / 2 // maximum for one copy, so that others need not wait for it
)

// A staging holds a device's page-locked areas. It is safe for concurrent use. The device's context must be current in
// every call.
type staging struct {
	workers int          // maximum number of goroutines of one copy
	copies  atomic.Int32 // long copies in progress
	slots   pool
	areas   pool
}

// init makes a staging without memory that copies with up to workers goroutines; 0 means as many as are useful.
func (g *staging) init(lib *cu.Lib, workers int) {
	if workers == 0 {
		workers = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
	g.workers = workers
	g.slots.init(lib, slotBytes, slotLimit)
	g.areas.init(lib, areaBytes, areaLimit)
	g.areas.waits = true
}

// close frees the memory. The device must have completed all work, and no copy may be in progress.
func (g *staging) close() cu.Result {
	r := g.slots.close()
	if e := g.areas.close(); r == cu.Success {
		r = e
	}
	return r
}

// An area is page-locked memory. The caller that takes it from its pool owns it until it returns it.
type area struct {
	memory []byte // outside Go's heap
	used   int    // bytes of memory taken by short copies
	lost   bool   // it is unknown how long the device uses it

	start, end int // of its piece, as offsets in the bytes of the copy

	event   cu.Event  // its own event; waits for it spin
	pending bool      // the event was recorded, and was not found done
	on      cu.Stream // the stream of the record
}

// address returns the address of the byte at offset i.
func (a *area) address(i int) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(a.memory))) + uintptr(i)
}

// A pool holds areas of one size.
type pool struct {
	lib   *cu.Lib
	size  int64
	limit int
	waits bool // take waits if all areas are held; slots may be held for as long as a stream lives
	polls int  // number of polls of await

	mu   sync.Mutex
	back sync.Cond // signals that an area was returned or lost
	free []*area   // idle or pending areas, in the order of their return
	made int       // number of areas, without lost ones
	lost []*area
}

func (p *pool) init(lib *cu.Lib, size int64, limit int) {
	p.lib, p.size, p.limit = lib, size, limit
	p.polls = 4 * polls
	p.back.L = &p.mu
}

// take returns an area that is idle or pending on s, and waits for one if necessary. It returns nil if page-locked
// memory cannot be allocated, or if all areas are held and the pool does not wait.
func (p *pool) take(s cu.Stream) (*area, cu.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if a := p.idle(); a != nil {
			return a, cu.Success
		}
		mine := slices.IndexFunc(p.free, func(a *area) bool { return a.on == s })
		switch {
		case mine >= 0:
			return p.remove(mine), cu.Success
		case len(p.free) > 0: // pending on other streams
			if r := p.awaitFirst(); r != cu.Success {
				return nil, r
			}
		case p.made == 0 || !p.waits:
			return nil, cu.Success
		default:
			p.back.Wait()
		}
	}
}

// more returns an idle area, or nil if there is none.
func (p *pool) more() *area {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle()
}

// idle takes the idle area that was returned last. If there is none it makes one, or returns nil if that fails. p.mu is
// held.
func (p *pool) idle() *area {
	p.refresh()
	for i, a := range slices.Backward(p.free) {
		if !a.pending {
			return p.remove(i)
		}
	}
	if p.made == p.limit {
		return nil
	}
	return p.make()
}

// refresh makes areas idle whose copies are done. Most areas are returned in the order of their streams, so after a
// pending area it does not query later areas of the same stream. p.mu is held.
func (p *pool) refresh() {
	var busy []cu.Stream
	for _, a := range p.free {
		if !a.pending || slices.Contains(busy, a.on) {
			continue
		}
		if p.lib.EventQuery(a.event) == cu.Success {
			a.pending = false
		} else {
			busy = append(busy, a.on)
		}
	}
}

// remove removes the i-th free area. p.mu is held.
func (p *pool) remove(i int) *area {
	a := p.free[i]
	p.free = slices.Delete(p.free, i, i+1)
	return a
}

// awaitFirst waits for the free area that was returned first. p.mu is held, except during the wait.
func (p *pool) awaitFirst() cu.Result {
	a := p.remove(0)
	p.mu.Unlock()
	r := p.await(a)
	p.mu.Lock()
	p.free = slices.Insert(p.free, 0, a)
	p.back.Signal()
	return r
}

// await waits until the device no longer uses a, which the caller owns. It polls for a while first (80 us on an NVIDIA
// H200), because a goroutine in a call of more than some 20 us loses its processor.
func (p *pool) await(a *area) cu.Result {
	r := p.ask(a, p.polls)
	if r == cu.NotReady {
		r = p.lib.EventSynchronize(a.event)
		a.pending = r != cu.Success
	}
	return r
}

// ask polls up to n times whether the device has finished with a, which the caller owns, and returns cu.NotReady if it
// has not.
func (p *pool) ask(a *area, n int) cu.Result {
	for i := 0; a.pending; i++ {
		if i == n {
			return cu.NotReady
		}
		switch r := p.lib.EventQuery(a.event); r {
		case cu.NotReady:
		case cu.Success:
			a.pending = false
		default:
			return r
		}
	}
	return cu.Success
}

// mark makes a, which the caller owns, pending until the work queued on s is done. If its event cannot be recorded,
// mark waits for s instead.
func (p *pool) mark(a *area, s cu.Stream) cu.Result {
	a.pending, a.on = true, s
	if p.lib.EventRecord(a.event, s) == cu.Success {
		return cu.Success
	}
	a.pending = false
	r := p.lib.StreamSynchronize(s)
	a.lost = r != cu.Success
	return r
}

// give returns areas to the pool.
func (p *pool) give(areas ...*area) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range areas {
		a.used = 0
		if a.lost {
			p.made--
			p.lost = append(p.lost, a)
		} else {
			p.free = append(p.free, a)
		}
	}
	p.back.Broadcast()
}

// make returns a new area, or nil if memory cannot be allocated. p.mu is held.
func (p *pool) make() *area {
	event, r := p.lib.EventCreate(cu.EventDisableTiming)
	if r != cu.Success {
		return nil
	}
	address, r := p.lib.MemHostAlloc(p.size, cu.HostPortable)
	if r != cu.Success {
		_ = p.lib.EventDestroy(event)
		return nil
	}
	p.made++
	return &area{memory: hostBytes(address, p.size), event: event}
}

func (p *pool) close() cu.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := cu.Success
	for _, a := range slices.Concat(p.free, p.lost) {
		for _, failed := range []cu.Result{p.lib.MemFreeHost(a.address(0)), p.lib.EventDestroy(a.event)} {
			if r == cu.Success {
				r = failed
			}
		}
	}
	p.free, p.lost, p.made = nil, nil, 0
	return r
}
