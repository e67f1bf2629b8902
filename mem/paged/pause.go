package paged

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// ErrPaused is matched by the error of a request for paused memory: see Allocator.Pause.
var ErrPaused = errors.New("paged: the memory is paused: call Resume first")

// PauseOptions are the options of Pause. The zero value keeps all contents in host memory.
type PauseOptions struct {
	// Discard gives up the contents: after Resume the blocks have undefined contents. If Pause fails, the contents may
	// be lost too.
	Discard bool
	// Host allocates the host memory for the contents: as many bytes as the pages that live blocks touch. Nil is an
	// allocator for this pause alone, whose memory Resume frees. Page-locking takes longer than the copies, so a
	// program that pauses often should pass one: it keeps the memory for the next Pause, until its EmptyCache.
	Host *pinned.Allocator
	// HostLimit bounds the host memory of this pause, in bytes. 0 is no limit.
	HostLimit int64
	// Used are streams whose queued work uses the blocks, besides those for which the allocator allocated or freed
	// memory.
	Used []driver.Stream
}

// A pause describes paused memory: pages that were given back to the driver, or are about to be.
type pause struct {
	spaces  []*space // of the pages
	host    hostMemory
	at      map[pref]int64 // the paused pages, and where their contents are in the host memory
	discard bool
	moving  bool // Pause is under way
}

// Pause gives all memory back to the driver, except that of private pools that graphs use. Addresses stay reserved, and
// live blocks stay live: Resume maps new memory to the same addresses, so captured graphs stay valid, and copies the
// contents back.
//
// First Pause waits for the work queued on all streams that it knows (PauseOptions.Used), so none of them may capture.
// Until Resume returns, no other work may use the blocks: on a GPU it would fail with an illegal address, and end the
// context. Requests return an error that matches ErrPaused. Blocks may be freed. While it copies, Pause holds the
// allocator's lock.
//
// If Pause fails, everything is as before, and the allocator is not paused. The error matches mem.ErrNoMemory if there
// is not enough host memory, and driver.ErrUnsupported if the device cannot copy from page-locked memory, or if other
// processes have opened pages. If the memory that was given back cannot be had again then, the allocator is paused in
// spite of the error (see Paused), and Resume may be called at any later time. Pausing what is paused is an error.
func (a *Allocator) Pause(o PauseOptions) error {
	a.observing.Lock()
	defer a.observing.Unlock()
	if err := a.pause(a.pausableSpaces(), o); err != nil {
		return fmt.Errorf("paged: Pause: %w", err)
	}
	return nil
}

// pause pauses spaces. The caller holds observing.
func (a *Allocator) pause(spaces []*space, o PauseOptions) error {
	ps := &pause{spaces: spaces, at: map[pref]int64{}, discard: o.Discard, moving: true}
	if err := a.freeHostMemory(); err != nil {
		return err
	}
	if err := a.refuseRequests(ps); err != nil {
		return err
	}
	if spaces[0] == &a.main { // caches have no blocks of private pools
		a.caches.suspend(forPause, true)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.verify()
	a.flushCaches()
	err := a.leavePagesInUse(ps, o)
	if err == nil {
		err = a.getHostMemory(ps, o)
	}
	if err == nil {
		err = a.giveBack(ps)
	}
	ps.moving = false
	if err == nil {
		return nil
	}
	if again := a.takeBack(ps); again != nil {
		return fmt.Errorf("%w; and the memory is still paused, because getting it back failed: %w", err, again)
	}
	return errors.Join(err, a.endPause(ps))
}

// refuseRequests makes requests to the spaces fail from now on.
func (a *Allocator) refuseRequests(ps *pause) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return closedError("Pause")
	}
	for _, sp := range ps.spaces {
		switch {
		case sp.paused != nil:
			return ErrPaused
		case sp.owner != nil && sp.owner.gone:
			return ErrPoolClosed
		case sp.owner != nil && sp.owner.inGraphs():
			return &driver.Error{
				Call: "Pause", Code: driver.ErrUnsupported, Detail: "captured graphs use the pool, also its free memory",
			}
		}
	}
	for _, sp := range ps.spaces {
		sp.paused = ps
	}
	return nil
}

// leavePagesInUse waits for queued work and frees idle pages. It fails if the rest cannot be paused.
func (a *Allocator) leavePagesInUse(ps *pause, o PauseOptions) error {
	if err := a.awaitUsers(o.Used); err != nil {
		return err
	}
	a.retryDrops()
	for _, sp := range ps.spaces {
		if sp.owner != nil {
			sp.owner.launched = false // awaitUsers has waited for launches
		}
		if err := a.dropIdle(sp); err != nil {
			return err
		}
	}
	if a.undropped > 0 {
		return a.undroppedError()
	}
	if err := a.unmapAliases(func(sp *space) bool { return sp.paused == ps }); err != nil {
		return err
	}
	return a.pausable(ps, o)
}

// getHostMemory gets host memory for the contents. It unlocks mu while it page-locks, which is slow.
func (a *Allocator) getHostMemory(ps *pause, o PauseOptions) (err error) {
	if o.Discard {
		return nil
	}
	need := a.sizeOf(a.runs(ps)) // frees may make it less
	a.mu.Unlock()
	host, err := newHostMemory(a.dev, o.Host, need)
	a.mu.Lock()
	ps.host = host
	return err
}

// pausable returns the error for memory that cannot be paused.
func (a *Allocator) pausable(ps *pause, o PauseOptions) error {
	for _, rg := range a.regions {
		if rg == nil || rg.space.paused != ps || !a.vm.Exported(rg.base, rg.size) {
			continue
		}
		return &driver.Error{
			Call: "Pause", Code: driver.ErrUnsupported, Detail: "other processes may have opened pages of the memory",
		}
	}
	if o.Discard {
		return nil
	}
	if a.dev.Pinned() == nil {
		return &driver.Error{
			Call: "Pause", Code: driver.ErrUnsupported, Detail: "the device cannot copy from page-locked host memory",
		}
	}
	if n := a.sizeOf(a.runs(ps)); o.HostLimit > 0 && n > o.HostLimit {
		return fmt.Errorf("the contents are %s and the limit of host memory is %s: %w", bytesize.Format(n),
			bytesize.Format(o.HostLimit), driver.ErrNoMemory)
	}
	return nil
}

// awaitUsers waits for the work queued on the streams that the allocator knows, and on others.
func (a *Allocator) awaitUsers(others []driver.Stream) error {
	for _, s := range others {
		a.streams.Register(s)
	}
	for s := range a.streams.Registered() {
		if err := a.streams.NotCapturing(s); err != nil {
			return err
		}
	}
	if err := a.sync(); err != nil {
		return fmt.Errorf("wait for queued work: %w", err)
	}
	return nil
}

// endPause makes requests succeed again, and frees the host memory. The caller holds observing and mu, which endPause
// unlocks and locks again.
func (a *Allocator) endPause(ps *pause) error {
	a.forgetPause(ps)
	paused := a.main.paused != nil
	a.mu.Unlock()
	a.caches.suspend(forPause, paused)
	err := a.freeHostMemory()
	a.mu.Lock()
	return err
}

// forgetPause ends a pause, and leaves its host memory to freeHostMemory.
func (a *Allocator) forgetPause(ps *pause) {
	for _, sp := range ps.spaces {
		sp.paused = nil
	}
	a.unfreed = append(a.unfreed, ps.host)
}

// freeHostMemory frees the host memory of pauses that have ended. What the device fails to free is left to the next
// call. The caller holds observing.
func (a *Allocator) freeHostMemory() error {
	a.mu.Lock()
	unfreed := a.unfreed
	a.unfreed = nil
	a.mu.Unlock()
	var err error
	if len(unfreed) > 0 && a.waits.copier != nil {
		err = a.syncCopies() // otherwise copies may be under way
	}
	for len(unfreed) > 0 && err == nil {
		if err = unfreed[0].free(); err == nil {
			unfreed = unfreed[1:]
		}
	}
	a.mu.Lock()
	a.unfreed = append(a.unfreed, unfreed...)
	a.mu.Unlock()
	return err
}

// Resume undoes Pause: it gets memory for the live blocks, copies their contents back, waits for the copies, and frees
// the host memory. If there is not enough memory, the error is a *mem.OutOfMemory; after that and any other error of
// the device the allocator is still paused, nothing is lost, and Resume may be called again. Only if Paused is false
// after an error has Resume done everything except to free the host memory. Resuming an allocator that is not paused is
// a no-op.
func (a *Allocator) Resume() error {
	a.observing.Lock()
	defer a.observing.Unlock()
	if err := a.resume(&a.main); err != nil {
		return fmt.Errorf("paged: Resume: %w", err)
	}
	return nil
}

// resume ends the pause of a space, if there is one. The caller holds observing.
func (a *Allocator) resume(sp *space) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.verify()
	ps := sp.paused
	switch {
	case ps == nil:
		return nil
	case ps.spaces[0] != sp:
		return fmt.Errorf("the whole allocator was paused: %w", ErrPaused)
	}
	a.flushCaches() // recreate takes idle pages of the default pool
	err := a.takeBack(ps)
	var short *shortage
	if errors.As(err, &short) {
		r := request{stream: a.dev.DefaultStream(), space: sp, requested: a.missingFor(ps) * a.granule}
		r.units = uint32(r.requested / unit)
		return a.outOfMemory(&r, short)
	}
	if err != nil {
		return err
	}
	return a.endPause(ps)
}

// Paused reports whether the allocator is paused, or Pause is under way.
func (a *Allocator) Paused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.main.paused != nil
}

// anyPaused reports whether the allocator or one of its pools is paused.
func (a *Allocator) anyPaused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for sp := range a.eachSpace {
		if sp.paused != nil {
			return true
		}
	}
	return false
}

// missingFor returns the granules of the pages of a pause that have no memory.
func (a *Allocator) missingFor(ps *pause) (n int64) {
	for i := range ps.at {
		if p := &a.pages[i]; p.givenBack() {
			n += p.granules()
		}
	}
	return n
}

// pausedSizes returns the bytes of paused pages without memory, and of host memory for their contents.
func (a *Allocator) pausedSizes() (paused, host int64) {
	for sp := range a.eachSpace {
		if ps := sp.paused; ps != nil && ps.spaces[0] == sp {
			paused, host = paused+a.missingFor(ps)*a.granule, host+ps.host.size()
		}
	}
	return paused, host
}

// pausedLive returns the bytes of live blocks in pages without memory.
func (a *Allocator) pausedLive() (n int64) {
	for _, rg := range a.regions {
		if rg == nil {
			continue
		}
		for at := rg.first; at != 0; {
			r := a.spans.at(at)
			at = r.next
			if (r.state == block || r.state == slabSpan) && a.pages[a.mappings[r.mapping].page].givenBack() {
				n += r.size()
			}
		}
	}
	return n
}

// freePaused ends a paused page that no block touches any more.
func (a *Allocator) freePaused(i pref) {
	p := &a.pages[i]
	delete(p.space.paused.at, i)
	p.paused = false
	if p.counted != 0 { // Resume failed after it had got memory for the page
		a.toIdle(i, false)
		return
	}
	a.removeMapping(p.first)
	if p.handle != (driver.Page{}) {
		a.discard(i)
		return
	}
	*p = page{}
	a.unusedPages = append(a.unusedPages, i)
}

// syncCopies waits for the copies of Pause and Resume.
func (a *Allocator) syncCopies() error { return a.waits.copier.Sync(context.Background()) }
