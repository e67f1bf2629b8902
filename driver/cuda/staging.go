//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// Copies between ordinary memory and the device go through page-locked areas, which the device reads and writes by
// itself. The driver has such areas too, but fills them with one core, at a fifth to a third of the link's speed, and
// all it promises of asynchronous copies from ordinary memory is that they "may" be done with the source when they
// return. Here several cores fill and empty areas while the device moves others, and no address of Go's memory outlives
// a call.
//
// There are two pools for a device. Areas (2 MiB) serve long copies: a copy is split into pieces, and its workers take
// each time the next piece and an area for it (pieces.go). Slots (64 KiB) serve short ones: a stream keeps one open and
// fills it copy by copy, so that many short copies can be on their way behind work that takes long, for one driver call
// each.
//
// An area is idle (nothing uses its memory), held (by a copy, or open on a stream) or pending (given back, but the
// device may still use it: an event recorded after that use says until when). Pending areas are not watched: the caller
// that takes some looks which have passed. One that is pending on the taker's own stream is as good as idle, since that
// stream comes to it first. Of the idle ones the one given back last is taken, since it is likeliest to be in a
// processor's cache.
//
// A copy waits for its first area if it must, and then only takes what is there. So the holder of areas gives them back
// once the device has done what was queued before, and waiting for an area waits for no more than that. Invariant:
// idle + pending + held = made <= limit.
//
// Who waits for an event spins, since an interrupt costs a copy of 4 MiB or more 5 to 45 % of its time (H200). What may
// take long is the work queued before a copy: one thread of the copy waits for that, as in cuStreamSynchronize, and its
// other workers wait only for pieces under way.
//
// GB/s on an NVIDIA H200 with 16 cores, whose link does 55, until the copy is done, and with one call of libcuda
// instead:
//
//	                  128 KiB  1 MiB  2 MiB  4 MiB  16 MiB  64 MiB  256 MiB  1 GiB
//	in                    7.1   15.9   13.8   17.6    16.9    32.1     44.1   48.5
//	in, one call          8.0   14.5   16.8   16.2    16.5    17.0     10.6   10.1
//	out                   7.2   16.7   14.8   17.7    22.5    43.4     48.5   47.9
//	out, one call         7.5   12.2   14.6   16.0    17.9    16.3     16.3   18.6
//
// Measure with: go test -tags gpu -run '^$' -bench Copy ./driver/cuda
//
// Locks: a pool's mu comes after a stream's; libcuda is called with it held, but does not wait then.
//
// Where no page-locked memory is to be had, the driver's own way is taken (copyInPlace).

// The sizes of the pools, in bytes and in number.
const (
	slotBytes = 64 << 10
	slotLimit = 256
	areaBytes = 2 << 20
	areaLimit = 32
	areaShare = areaLimit / 2 // for one copy at most, so that another need not wait for it
)

// A staging is a device's page-locked areas. Safe for concurrent use. The device's context must be current in every
// call.
type staging struct {
	workers int // goroutines that copy at once, for one copy
	slots   pool
	areas   pool
}

// init makes a staging without memory, which copies with that many goroutines at once; 0 stands for as many as help.
func (g *staging) init(lib *cu.Lib, workers int) {
	if workers == 0 {
		workers = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
	g.workers = workers
	g.slots.init(lib, slotBytes, slotLimit)
	g.areas.init(lib, areaBytes, areaLimit)
	g.areas.waits = true
}

// close gives the memory back. The device must have done all work, and no copy be under way.
func (g *staging) close() cu.Result {
	r := g.slots.close()
	if e := g.areas.close(); r == cu.Success {
		r = e
	}
	return r
}

// An area is page-locked memory. The caller that took it from its pool owns it until it is given back.
type area struct {
	memory []byte // outside Go's heap
	used   int    // bytes of memory taken by short copies
	lost   bool   // it is unknown until when the device uses it

	start, end int // of the piece in it, as offsets in a copy's bytes

	event   cu.Event  // of its own; waiting for it spins
	pending bool      // the event was recorded, and not seen to be done
	on      cu.Stream // where
}

// address is that of the byte at offset i.
func (a *area) address(i int) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(a.memory))) + uintptr(i)
}

// A pool is areas of one size.
type pool struct {
	lib   *cu.Lib
	size  int64
	limit int
	waits bool // take waits if all areas are held; slots may be held for as long as a stream lives
	polls int  // how often await asks

	mu   sync.Mutex
	back sync.Cond // an area was given back or lost
	free []*area   // idle or pending, the one given back longest ago first
	made int       // areas, but for the lost ones
	lost []*area
}

func (p *pool) init(lib *cu.Lib, size int64, limit int) {
	p.lib, p.size, p.limit = lib, size, limit
	p.polls = 4 * polls
	p.back.L = &p.mu
}

// take returns an area that is idle or pending on s, and waits for one if it must. It returns none if there is no
// page-locked memory, or if all areas are held and the pool does not wait for that.
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

// more returns an idle area, or nil if there is none now.
func (p *pool) more() *area {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle()
}

// idle takes the free area that was given back last of those that are idle, or makes one if there are none; it returns
// nil if it cannot. p.mu is held.
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

// refresh makes areas idle whose copies are done. Most are given back in the order of their streams, so once one is
// pending it does not ask for those behind it on its stream. p.mu is held.
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

// remove takes the i-th free area. p.mu is held.
func (p *pool) remove(i int) *area {
	a := p.free[i]
	p.free = slices.Delete(p.free, i, i+1)
	return a
}

// awaitFirst waits for the free area that was given back longest ago. p.mu is held, but not while it waits.
func (p *pool) awaitFirst() cu.Result {
	a := p.remove(0)
	p.mu.Unlock()
	r := p.await(a)
	p.mu.Lock()
	p.free = slices.Insert(p.free, 0, a)
	p.back.Signal()
	return r
}

// await waits until the device does not use a, which is the caller's. It asks for a while first (80 us on an NVIDIA
// H200): a goroutine in a call that takes longer than some 20 us loses its place on a processor.
func (p *pool) await(a *area) cu.Result {
	r := p.ask(a, p.polls)
	if r == cu.NotReady {
		r = p.lib.EventSynchronize(a.event)
		a.pending = r != cu.Success
	}
	return r
}

// ask asks up to n times whether the device does not use a, which is the caller's, and returns cu.NotReady if it does.
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

// mark makes a, which is the caller's, pending until what was queued on s is done. If its event cannot be recorded,
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

// give takes areas back.
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

// make returns a new area, or nil if there is no memory for one. p.mu is held.
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
