package pinned

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/numa"
	"github.com/ashlar-go/ashlar/mem"
)

// A segment is page-locked memory and its source.
type segment struct {
	mem    []byte
	source source
	detach func() error // from Config.Attach, or nil
}

type source uint8

const (
	allocated  source = iota // by AllocHost
	registered               // pages of our own, by Register
	reserved                 // a part of the reserved segment
)

// A reserve is the segment that New allocated. Blocks are cut from its front and stay with the allocator.
type reserve struct {
	segment
	used  int64 // bytes cut off
	parts int   // number of blocks cut off
}

// partAlignment is the alignment of the parts, as in PyTorch.
const partAlignment = 512

// cut cuts a block off the reserved segment, if it has room and the block would come back. The caller holds mu.
func (a *Allocator) cut(r *request) *piece {
	v, size := &a.reserve, r.rounded
	if size > int64(len(v.mem))-v.used || size > a.cfg.maxCached() {
		return nil
	}
	part := v.mem[v.used : v.used+size : v.used+size]
	v.used = min((v.used+size+partAlignment-1)&^(partAlignment-1), int64(len(v.mem)))
	v.parts++
	return a.newPiece(segment{mem: part, source: reserved}, r.pool)
}

// newPiece makes a piece of a segment. The caller holds mu.
func (a *Allocator) newPiece(seg segment, p *pool) *piece {
	r := &piece{pool: p, segment: seg}
	p.blocks++
	a.insert(r)
	a.countHeld(r, 1)
	return r
}

// grow allocates a block of new memory. If there is none, it waits for frees, empties the cache and tries again, unless
// the request has noRetry.
func (a *Allocator) grow(r *request) (mem.Block, error) {
	seg, err := a.obtain(r.rounded)
	if errors.Is(err, driver.ErrNoMemory) && !r.noRetry {
		failures := a.wait()
		if b, err := a.reuse(r); b.Tag != 0 || err != nil {
			return b, err
		}
		n, failed := a.releaseCached(func() []*pool { return a.trimmable(r.pool) })
		failures = errors.Join(failures, failed)
		if n > 0 {
			seg, err = a.obtain(r.rounded)
		}
		if err != nil && failures != nil {
			err = fmt.Errorf("%w (and freeing the cache failed: %w)", err, failures)
		}
	}
	switch {
	case errors.Is(err, driver.ErrNoMemory):
		return mem.Block{}, fmt.Errorf("pinned: Alloc of %d bytes (a block of %d): %w: %w", r.size, r.rounded,
			mem.ErrNoMemory, err)
	case err != nil:
		return mem.Block{}, fmt.Errorf("pinned: Alloc of %d bytes (a block of %d): %w", r.size, r.rounded, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		a.mu.Unlock()
		_, err := a.release(&seg)
		a.mu.Lock()
		return mem.Block{}, errors.Join(ErrClosed, err)
	}
	return a.markAllocated(a.newPiece(seg, r.pool), r.size), nil
}

// obtain page-locks new memory, and attaches it. The caller holds no lock.
func (a *Allocator) obtain(size int64) (segment, error) {
	start := a.now()
	seg, err := a.pageLock(size)
	took := a.now().Sub(start)
	if err != nil {
		return segment{}, err
	}
	a.mu.Lock()
	a.stats.HostAllocTime.add(took)
	a.mu.Unlock()
	if err := a.attachSegment(&seg); err != nil {
		_, back := a.release(&seg)
		return segment{}, errors.Join(err, back)
	}
	return seg, nil
}

func (a *Allocator) pageLock(size int64) (segment, error) {
	if !a.cfg.HostRegister || !canMap {
		fresh, err := a.pinned.AllocHost(size)
		return segment{mem: fresh, source: allocated}, err
	}
	pages, err := mapPages(size)
	if err != nil {
		return segment{}, err
	}
	if err = a.bindNode(pages); err == nil {
		touch(pages, a.cfg.RegisterThreads)
		err = a.pinned.Register(pages)
	}
	if err != nil {
		return segment{}, errors.Join(err, unmapPages(pages))
	}
	return segment{mem: pages, source: registered}, nil
}

// bindNode binds new pages to the node of the settings. It ignores a system that cannot place memory.
func (a *Allocator) bindNode(pages []byte) error {
	if a.cfg.Node == nil {
		return nil
	}
	if err := numa.Bind(pages, *a.cfg.Node, false); errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("memory of node %d, which does not exist or is denied to this process: %w", *a.cfg.Node, err)
	}
	return nil
}

// release detaches memory, unlocks it and frees it. If lost is false after an error, the memory is unchanged. The
// caller holds no lock.
func (a *Allocator) release(seg *segment) (lost bool, err error) {
	if seg.source == reserved {
		return true, nil
	}
	if err := seg.callDetach(); err != nil {
		return false, err
	}
	start := a.now()
	if err := a.unlock(seg); err != nil {
		if again := a.attachSegment(seg); again != nil { // the segment can neither be used nor freed
			return true, errors.Join(err, again)
		}
		return false, err
	}
	if seg.source == registered {
		err = unmapPages(seg.mem)
	}
	took := a.now().Sub(start)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.HostFreeTime.add(took)
	return true, err
}

// unlock frees a segment to the device. A closed device has freed everything already.
func (a *Allocator) unlock(seg *segment) (err error) {
	if seg.source == registered {
		err = a.pinned.Unregister(seg.mem)
	} else {
		err = a.pinned.FreeHost(seg.mem)
	}
	if errors.Is(err, driver.ErrClosed) {
		return nil
	}
	return err
}

// giveBack frees a returning piece to the driver. After an error it is cached again. The caller holds no lock.
func (a *Allocator) giveBack(r *piece) error {
	lost, err := a.release(&r.segment)
	a.mu.Lock()
	defer a.mu.Unlock()
	if lost {
		r.state = returned
		a.countHeld(r, -1)
		r.pool.blocks--
		a.forget(r.pool)
	} else {
		a.insert(r)
		a.cache(r)
	}
	a.checkInvariants()
	if err != nil {
		return fmt.Errorf("pinned: free %d bytes to the device: %w", r.size(), err)
	}
	return nil
}

// EmptyCache frees the cached blocks to the device, except those of private pools with users. It does not wait for
// pending frees, but the device waits for all its work. Blocks of the reserved segment stay cached, unless all of them
// are unused; then the segment is cut anew. Blocks that the device fails to free stay cached, and EmptyCache returns
// the error.
func (a *Allocator) EmptyCache() error {
	a.reclaimFinished()
	_, err := a.releaseCached(func() []*pool { return a.trimmable(nil) })
	return err
}

// releaseCached frees the cached blocks of the pools that which, called under mu, returns. It returns their number.
func (a *Allocator) releaseCached(which func() []*pool) (n int, err error) {
	leave := a.takeCached(which)
	var failures []error
	for _, r := range leave {
		if err := a.giveBack(r); err != nil {
			failures = append(failures, err)
		}
	}
	return len(leave) - len(failures), errors.Join(failures...)
}

// takeCached removes the cached blocks that can be freed from the lists of pools. Parts of the reserved segment that
// stay move to the default pool.
func (a *Allocator) takeCached(which func() []*pool) (leave []*piece) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pools := which()
	parts := 0
	for _, p := range pools {
		for _, list := range p.buckets {
			for _, r := range list {
				if r.source == reserved {
					parts++
				}
			}
		}
	}
	anew := parts == a.reserve.parts
	if anew {
		a.reserve.used, a.reserve.parts = 0, 0
	}
	for _, p := range pools {
		for i := range p.buckets {
			p.buckets[i] = slices.DeleteFunc(p.buckets[i], func(r *piece) bool {
				if r.source == reserved && !anew {
					return p != &a.defaultPool && a.toDefaultPool(r)
				}
				r.state = returning
				delete(a.byStart, address(r.mem))
				leave = append(leave, r)
				return true
			})
		}
		a.forget(p)
	}
	a.byAddress = slices.DeleteFunc(a.byAddress, func(r *piece) bool { return r.state == returning })
	return leave
}

// toDefaultPool moves a cached piece of a private pool, which is in no list, to the default pool. The caller holds mu.
func (a *Allocator) toDefaultPool(r *piece) bool {
	r.pool.blocks--
	r.pool = &a.defaultPool
	r.pool.blocks++
	a.cache(r)
	return true
}

// Close waits for pending frees, then frees all memory and closes all pools. It fails, and the allocator stays open,
// while blocks are live or kept, while scopes of private pools are open, or if the device fails. Closing twice is a
// no-op.
func (a *Allocator) Close() error {
	a.closing.Lock()
	defer a.closing.Unlock()
	a.mu.Lock()
	closed := a.closed
	a.mu.Unlock()
	if closed {
		return nil
	}
	waited := a.wait()
	a.mu.Lock()
	if active := a.stats.ActiveRequests.Current; active > 0 {
		bytes := a.stats.ActiveBytes.Current
		a.mu.Unlock()
		busy := fmt.Errorf("pinned: Close: %d blocks of %d bytes are live, kept or waited for", active, bytes)
		return errors.Join(busy, waited)
	}
	if n := len(a.scopes); n > 0 {
		to := a.scopes[n-1].Pool.id
		a.mu.Unlock()
		return errors.Join(fmt.Errorf("pinned: Close while requests go to pool %v: end that first", to), waited)
	}
	a.closed = true
	for _, p := range a.private {
		p.useCount, p.own, p.closed = 0, 0, true
	}
	a.mu.Unlock()
	_, err := a.releaseCached(func() []*pool { return a.trimmable(nil) })
	if err == nil {
		err = a.releaseReserve()
	}
	if err != nil {
		a.mu.Lock()
		a.closed = false
		a.mu.Unlock()
		return err
	}
	close(a.stop)
	a.poller.Wait()
	return nil
}

// releaseReserve frees the reserved segment, which has no live blocks.
func (a *Allocator) releaseReserve() error {
	if a.reserve.mem == nil {
		return nil
	}
	lost, err := a.release(&a.reserve.segment)
	if lost {
		a.mu.Lock()
		a.reserve = reserve{}
		a.mu.Unlock()
	}
	return err
}

// now reads Config.Clock. Without a clock it always returns the same time.
func (a *Allocator) now() time.Time {
	if a.cfg.Clock == nil {
		return time.Time{}
	}
	return a.cfg.Clock()
}
