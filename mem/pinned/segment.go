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

// A segment is page-locked memory, and how it came to be.
type segment struct {
	mem []byte
	way way
}

type way uint8

const (
	allocated  way = iota // by AllocHost
	registered            // pages of our own, by Register
	carved                // a part of the reserved segment
)

// reserve is the segment that New set aside. Small blocks are cut off its front and stay with the allocator.
type reserve struct {
	segment
	used  int64 // bytes cut off
	parts int   // blocks that this made
}

// partAlignment is PyTorch's.
const partAlignment = 512

// carve cuts a block off the reserved segment, if it has room and the block would come back. The caller holds mu.
func (a *Allocator) carve(size int64) *record {
	v := &a.reserve
	if size > int64(len(v.mem))-v.used || size > a.cfg.maxCached() {
		return nil
	}
	part := v.mem[v.used : v.used+size : v.used+size]
	v.used = min((v.used+size+partAlignment-1)&^(partAlignment-1), int64(len(v.mem)))
	v.parts++
	return a.enter(segment{part, carved})
}

// enter makes a record of a segment. The caller holds mu.
func (a *Allocator) enter(seg segment) *record {
	r := &record{owner: a, segment: seg}
	a.attach(r)
	a.countHeld(r, 1)
	return r
}

// grow lends a block of new memory. If there is none, it waits for frees, gives the cache back and tries again, unless
// it is hasty.
func (a *Allocator) grow(rounded, size int64, hasty bool) (Block, error) {
	seg, err := a.obtain(rounded)
	if errors.Is(err, driver.ErrNoMemory) && !hasty {
		failures := a.wait()
		if b, err := a.reuse(rounded, size); b.rec != nil || err != nil {
			return b, err
		}
		n, failed := a.releaseCached()
		failures = errors.Join(failures, failed)
		if n > 0 {
			seg, err = a.obtain(rounded)
		}
		if err != nil && failures != nil {
			err = fmt.Errorf("%w (and giving back what is cached failed: %w)", err, failures)
		}
	}
	switch {
	case errors.Is(err, driver.ErrNoMemory):
		return Block{}, fmt.Errorf("pinned: Alloc of %d bytes (a block of %d): %w: %w", size, rounded, mem.ErrNoMemory, err)
	case err != nil:
		return Block{}, fmt.Errorf("pinned: Alloc of %d bytes (a block of %d): %w", size, rounded, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		a.mu.Unlock()
		_, err := a.release(seg)
		a.mu.Lock()
		return Block{}, errors.Join(ErrClosed, err)
	}
	return a.lend(a.enter(seg), size), nil
}

// obtain page-locks new memory. The caller holds no lock.
func (a *Allocator) obtain(size int64) (segment, error) {
	start := a.now()
	seg, err := a.pageLock(size)
	took := a.now().Sub(start)
	if err != nil {
		return segment{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.HostAllocTime.add(took)
	return seg, nil
}

func (a *Allocator) pageLock(size int64) (segment, error) {
	if !a.cfg.HostRegister || !canMap {
		fresh, err := a.pinned.AllocHost(size)
		return segment{fresh, allocated}, err
	}
	pages, err := mapPages(size)
	if err != nil {
		return segment{}, err
	}
	if err = a.place(pages); err == nil {
		touch(pages, a.cfg.RegisterThreads)
		err = a.pinned.Register(pages)
	}
	if err != nil {
		return segment{}, errors.Join(err, unmapPages(pages))
	}
	return segment{pages, registered}, nil
}

// place has fresh pages taken from the node that the settings name. A system that places nothing is let be.
func (a *Allocator) place(pages []byte) error {
	if a.cfg.Node == nil {
		return nil
	}
	if err := numa.Bind(pages, *a.cfg.Node, false); errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("memory of node %d, which is not there or is kept from this process: %w", *a.cfg.Node, err)
	}
	return nil
}

// release unlocks memory and gives it back. If lost is false, the memory is as it was. The caller holds no lock.
func (a *Allocator) release(seg segment) (lost bool, err error) {
	start := a.now()
	switch seg.way {
	case carved:
		return true, nil
	case allocated:
		err = a.pinned.FreeHost(seg.mem)
	case registered:
		err = a.pinned.Unregister(seg.mem)
	}
	if err != nil && !errors.Is(err, driver.ErrClosed) { // a closed device has given back everything
		return false, err
	}
	err = nil
	if seg.way == registered {
		err = unmapPages(seg.mem)
	}
	took := a.now().Sub(start)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.HostFreeTime.add(took)
	return true, err
}

// giveBack returns a record that leaves to the driver. On an error it is cached again. The caller holds no lock.
func (a *Allocator) giveBack(r *record) error {
	lost, err := a.release(r.segment)
	a.mu.Lock()
	defer a.mu.Unlock()
	if lost {
		r.state = gone
		a.countHeld(r, -1)
	} else {
		a.attach(r)
		a.cache(r)
	}
	a.verify()
	if err != nil {
		return fmt.Errorf("pinned: give back %d bytes: %w", r.size(), err)
	}
	return nil
}

// EmptyCache gives every cached block back to the device. It does not wait for frees that other streams hold up, but
// the device does for all its work. Blocks that were cut from the reserved segment stay cached, unless all of it is
// unused; then it is cut anew. What cannot be given back stays cached, and the error says why.
func (a *Allocator) EmptyCache() error {
	a.settle()
	_, err := a.releaseCached()
	return err
}

// releaseCached gives the cached blocks back, and returns how many that were.
func (a *Allocator) releaseCached() (n int, err error) {
	a.mu.Lock()
	parts := 0
	for _, list := range a.shelves {
		for _, r := range list {
			if r.way == carved {
				parts++
			}
		}
	}
	anew := parts == a.reserve.parts
	if anew {
		a.reserve.used, a.reserve.parts = 0, 0
	}
	var leave []*record
	for i := range a.shelves {
		a.shelves[i] = slices.DeleteFunc(a.shelves[i], func(r *record) bool {
			if r.way == carved && !anew {
				return false
			}
			r.state = leaving
			leave = append(leave, r)
			return true
		})
	}
	a.byAddress = slices.DeleteFunc(a.byAddress, func(r *record) bool { return r.state == leaving })
	a.mu.Unlock()
	var failures []error
	for _, r := range leave {
		if err := a.giveBack(r); err != nil {
			failures = append(failures, err)
		}
	}
	return len(leave) - len(failures), errors.Join(failures...)
}

// Close waits for frees, then gives everything back. It fails, and the allocator stays open, while blocks are on loan
// or kept, or if the device fails. Closing twice is not an error.
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
	a.closed = true
	a.mu.Unlock()
	_, err := a.releaseCached()
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

// releaseReserve gives the reserved segment back, which has no blocks any more.
func (a *Allocator) releaseReserve() error {
	a.mu.Lock()
	seg := a.reserve.segment
	a.mu.Unlock()
	if seg.mem == nil {
		return nil
	}
	lost, err := a.release(seg)
	if lost {
		a.mu.Lock()
		a.reserve = reserve{}
		a.mu.Unlock()
	}
	return err
}

// now reads the clock of the settings. Without one it is always the same time.
func (a *Allocator) now() time.Time {
	if a.cfg.Clock == nil {
		return time.Time{}
	}
	return a.cfg.Clock()
}
