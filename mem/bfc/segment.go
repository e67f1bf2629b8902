package bfc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A segment is memory from the device, or all memory mapped into the range of addresses.
type segment struct {
	ptr   driver.Pointer
	size  int64
	first ref   // its first block, which does not change
	kept  int64 // bytes at its front that stay until Close: Config.Initial
}

// backOff is the factor by which a refused segment shrinks. TensorFlow computes in 32 bits.
const backOff = float32(0.9)

// room returns the bytes that the limit leaves for segments.
func (a *Allocator) room() int64 {
	step := a.step()
	return (a.cfg.Limit - a.stats.ReservedBytes.All.Current) / step * step
}

// step returns the multiple that sizes of segments are rounded to.
func (a *Allocator) step() int64 {
	if a.pages != nil {
		return a.pages.granularity
	}
	return unit
}

// addSegment allocates a segment for the request. Sizes of segments double. It returns false if the limit or the device
// has no room.
func (a *Allocator) addSegment(w *request) (bool, error) {
	step, room := a.step(), a.room()
	least := roundUp(w.size, step)
	if least > room {
		return false, nil
	}
	grown := false
	for w.size > a.nextSegment {
		a.nextSegment *= 2
		grown = true
	}
	var ptr driver.Pointer
	var err error
	size := min(roundUp(a.nextSegment, step), room)
	for {
		if ptr, err = a.deviceAlloc(size); err == nil || !errors.Is(err, driver.ErrNoMemory) || size == least {
			break
		}
		smaller := roundUp(int64(float32(size)*backOff), step)
		if smaller >= size {
			smaller = size - step
		}
		size = max(least, smaller)
	}
	if err != nil {
		w.cause = err
		if errors.Is(err, driver.ErrNoMemory) {
			return false, nil
		}
		return false, fmt.Errorf("bfc: a segment of %d bytes: %w", size, err)
	}
	if !grown && a.nextSegment < a.cfg.Limit {
		a.nextSegment *= 2
	}
	a.insertSegment(ptr, size)
	return true, nil
}

// allocInitial allocates the initial segment. On an error it frees the allocator's resources.
func (a *Allocator) allocInitial() error {
	size := a.cfg.Initial
	ptr, err := a.deviceAlloc(size)
	if err != nil {
		if errors.Is(err, driver.ErrNoMemory) {
			err = fmt.Errorf("%w: %w", mem.ErrNoMemory, err)
		}
		if a.pages != nil {
			err = errors.Join(err, a.pages.dropOrphans(), a.pages.close())
		}
		return fmt.Errorf("bfc: an initial segment of %s: %w", bytesize.Exact(size), err)
	}
	a.insertSegment(ptr, size)
	a.segments[0].kept = size
	if !a.cfg.NoGrowth {
		a.nextSegment = 2 * size
	}
	return nil
}

// deviceAlloc allocates memory from the device.
func (a *Allocator) deviceAlloc(size int64) (driver.Pointer, error) {
	if a.pages != nil {
		return a.pages.extend(size)
	}
	return a.dev.Alloc(size)
}

// insertSegment makes a free block of memory from the device.
func (a *Allocator) insertSegment(ptr driver.Pointer, size int64) {
	n := a.newBlock(ptr, size)
	i, _ := slices.BinarySearchFunc(a.segments, ptr, func(s segment, ptr driver.Pointer) int {
		return cmp.Compare(s.ptr, ptr)
	})
	if a.pages != nil && len(a.segments) > 0 {
		seg := &a.segments[0]
		seg.size += size
		last := seg.first
		for a.blocks[last].next != 0 {
			last = a.blocks[last].next
		}
		a.blocks[n].prev, a.blocks[last].next = last, n
		n = a.coalesce(n, false)
	} else {
		a.segments = slices.Insert(a.segments, i, segment{ptr: ptr, size: size, first: n})
	}
	a.addToBin(n)
	a.gate.Wake() // the rest may be enough for a waiting request
	a.countSegment(size, 1)
	a.notify(a.segmentAction(mem.ActionSegmentAlloc), 0, ptr, size)
}

// unusedBytes returns how many bytes of a segment can be released: none while a block is live.
func (a *Allocator) unusedBytes(s *segment) int64 {
	for n := s.first; n != 0; n = a.blocks[n].next {
		if a.blocks[n].state == live {
			return 0
		}
	}
	return s.size - s.kept
}

// collect releases all unused segments, if they and the limit's remainder suffice for the request. It reports whether
// it released any.
func (a *Allocator) collect(w *request) bool {
	if a.cfg.NoCollect {
		return false
	}
	bytes := int64(0)
	for i := range a.segments {
		bytes += a.unusedBytes(&a.segments[i])
	}
	if bytes == 0 || w.size > a.room()+bytes {
		return false
	}
	before := a.stats.ReservedBytes.All.Current
	if err := a.releaseUnused(); err != nil {
		w.cause = err
	}
	if a.stats.ReservedBytes.All.Current == before {
		return false
	}
	a.stats.NumAllocRetries++
	return true
}

// releaseUnused frees every segment without a live block, except the parts that are kept. Segments that the device
// refuses stay.
func (a *Allocator) releaseUnused() error {
	var refused []error
	var left segment // the kept part of the range of addresses
	var stamp uint64
	a.segments = slices.DeleteFunc(a.segments, func(s segment) bool {
		spare := a.unusedBytes(&s)
		if spare == 0 {
			return false
		}
		if err := a.releaseSegment(&s); err != nil {
			refused = append(refused, err)
			return false
		}
		for n := s.first; n != 0; {
			next := a.blocks[n].next
			a.removeFromBin(n)
			n = next
		}
		for n := s.first; n != 0; {
			next := a.blocks[n].next
			stamp = max(stamp, a.blocks[n].freedAt)
			a.deleteBlock(n)
			n = next
		}
		a.countSegment(spare, -1)
		a.notify(a.segmentAction(mem.ActionSegmentFree), 0, s.ptr+driver.Pointer(s.kept), spare)
		left = segment{ptr: s.ptr, size: s.kept, kept: s.kept}
		return true
	})
	if left.kept > 0 {
		left.first = a.newBlock(left.ptr, left.kept)
		a.blocks[left.first].freedAt = stamp
		a.segments = append(a.segments, left)
		a.addToBin(left.first)
		a.queue(left.first)
	}
	if a.pages != nil {
		refused = append(refused, a.pages.dropOrphans())
	}
	return errors.Join(refused...)
}

// releaseSegment frees the part of a segment that is not kept, after the work queued on it.
func (a *Allocator) releaseSegment(s *segment) error {
	if a.pages == nil {
		return a.dev.Free(s.ptr)
	}
	var users reuse.Set
	for n := s.first; n != 0; n = a.blocks[n].next {
		users = a.streams.Union(users, a.blocks[n].deps.Users)
	}
	if err := a.streams.Sync(users); err != nil {
		return err
	}
	return a.pages.unmap(s.kept)
}

// EmptyCache implements mem.Trimmer. Config.Initial stays. It waits for the work queued on the memory that it frees.
// The error lists the memory that the device refused, which stays cached.
func (a *Allocator) EmptyCache() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	err := a.releaseUnused()
	a.gate.Wake()
	a.verify()
	if err != nil {
		return fmt.Errorf("bfc: give segments back: %w", err)
	}
	return nil
}

// Close frees all memory. Live blocks are an error; then nothing has changed. If the device refuses memory, that is an
// error, and the next Close tries again. Requests that wait, and later ones, fail. Closing a closed allocator is a
// no-op. Close does not close the device.
func (a *Allocator) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if n := a.stats.Allocation.All.Current; n > 0 {
		return fmt.Errorf("bfc: Close with %d live blocks, of %d bytes in total; "+
			"layer.NewLeakTracker shows where they were allocated", n, a.stats.AllocatedBytes.All.Current)
	}
	for i := range a.segments {
		a.segments[i].kept = 0
	}
	err := a.releaseUnused()
	a.gate.Wake()
	if err == nil && a.pages != nil {
		err = a.pages.close()
	}
	a.verify()
	if err != nil {
		return fmt.Errorf("bfc: Close: %w", err)
	}
	a.closed = true
	return nil
}
