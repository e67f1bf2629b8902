// Package direct is the allocator without a policy: each block is one allocation of the device. It is for programs that
// allocate once, for memory checkers that know only the driver's allocations, and as the simplest correct allocator,
// for comparison with others. BMEngine's DirectMemoryAllocator and KuiperLLama's device allocators are such allocators.
//
// Make an allocator with New; ParseConfig reads its settings from text. An Allocator is safe for concurrent use. Sizes
// are bytes. Free waits for all work that is queued on the device, which may take as long as the longest kernel, unless
// Config.Session defers it to FreeSession. Errors begin with "direct:"; a request for which there is no room returns a
// *mem.OutOfMemory.
package direct

// # Structure
//
// A table holds the live blocks, found by their tags. A queue holds the blocks that were freed and not yet returned to
// the device, oldest first.
//
// Without Config.Session, Free returns the block to the device, and queues it only if the device refuses. With
// Config.Session, Free queues the block without a call of the device, and FreeSession returns all queued blocks at the
// end of a session. In both cases EmptyCache and Close return the queued blocks, and so does a request that finds no
// room before its second attempt. A queued block is never allocated again.
//
// # Invariant
//
// Reserved bytes = allocated bytes + queued bytes. Each block is a segment of the requested size; the device itself
// rounds sizes. (BMEngine rounds to 512 bytes, but only sizes above 4096.)
//
// # Streams
//
// driver.Device.Free waits for all work that is queued on the device. So a block needs no marks: all work, including
// that of its own stream and of the streams passed to Free, is done before the device gets the memory back. That wait
// is the cost of this allocator.
//
// # Locks
//
// One lock guards all state and is held during calls of the device. So reports and the order of events are exact. In a
// session, Free waits for a FreeSession in progress.
//
// # Limits
//
// The allocator keeps no memory for reuse, moves nothing, and rounds nothing. While a stream captures, a device may
// refuse to take memory back: the block is then queued.

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/internal/slots"
	"github.com/ashlar-go/ashlar/mem"
)

// An Allocator allocates every block from a device. It is safe for concurrent use.
type Allocator struct {
	dev driver.Device
	cfg Config

	mu       sync.Mutex
	live     slots.Table[block] // by tag
	queue    []block            // freed, not returned to the device; oldest first
	stats    mem.Stats
	observer mem.Observer
	closed   bool
}

// A block is a live or queued block.
type block struct {
	ptr    driver.Pointer
	size   int64
	stream driver.StreamID
}

// ErrClosed is returned by calls on a closed allocator.
var ErrClosed = errors.New("direct: the allocator is closed")

// New makes an allocator of a device's memory. A negative limit panics.
func New(dev driver.Device, cfg Config) *Allocator {
	if cfg.Limit < 0 {
		panic(fmt.Sprintf("direct: New with a limit of %d bytes: it must not be negative", cfg.Limit))
	}
	a := &Allocator{dev: dev, cfg: cfg}
	a.stats.MaxSplitSize = -1 // no size is oversize
	return a
}

// Alloc implements mem.Allocator. The block is an allocation of the device, of exactly the requested size. The error is
// a *mem.OutOfMemory, matches ErrClosed, or is an error of the device.
func (a *Allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry no queued block is returned to the device to make room.
func (a *Allocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("direct: Alloc", s)
	stream := s.ID()
	size, o = o.Rounded(size)
	switch {
	case size < 0:
		panic(fmt.Sprintf("direct: Alloc of %d bytes", size))
	case size == 0:
		return mem.Block{}, nil
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return mem.Block{}, ErrClosed
	}
	if size >= tooLarge {
		a.mu.Unlock()
		return mem.Block{}, &mem.OutOfMemory{Requested: size, TooLarge: true}
	}
	ptr, err := a.request(size, o.NoRetry)
	if err != nil {
		var oom *mem.OutOfMemory
		refused := errors.Is(err, mem.ErrNoMemory) || errors.Is(err, driver.ErrNoMemory)
		if refused && !o.Tentative {
			oom = a.outOfMemory(stream, size, err)
		}
		a.mu.Unlock()
		if refused && o.Tentative {
			return mem.Block{}, fmt.Errorf("direct: no room for %s: %w", mem.FormatSize(size), mem.ErrNoMemory)
		}
		if oom != nil {
			oom.AddProcesses(a.dev)
			return mem.Block{}, oom
		}
		return mem.Block{}, fmt.Errorf("direct: Alloc of %d bytes: %w", size, err)
	}
	defer a.mu.Unlock()
	tag, r := a.live.Add()
	*r = block{ptr, size, stream}
	a.countAlloc(size)
	a.observe(mem.ActionSegmentAlloc, r)
	a.observe(mem.ActionAlloc, r)
	return mem.Block{Ptr: ptr, Size: size, Tag: tag}, nil
}

// tooLarge is 1 EiB, more than any device has: see mem.OutOfMemory.TooLarge.
const tooLarge = 1 << 60

// request allocates memory of the device, if necessary after the queued frees, unless it is hasty. The caller
// holds mu.
func (a *Allocator) request(size int64, hasty bool) (driver.Pointer, error) {
	ptr, err := a.ask(size)
	if err == nil || hasty || len(a.queue) == 0 || !errors.Is(err, driver.ErrNoMemory) && !errors.Is(err, errLimit) {
		return ptr, err
	}
	a.stats.NumAllocRetries++
	refused := a.giveBack()
	if ptr, err = a.ask(size); err != nil && refused != nil {
		err = errors.Join(err, refused)
	}
	return ptr, err
}

// errLimit is the error of a request that the limit refused, without a call of the device.
var errLimit = fmt.Errorf("direct: over the limit: %w", mem.ErrNoMemory)

func (a *Allocator) ask(size int64) (driver.Pointer, error) {
	if a.cfg.Limit > 0 && size > a.cfg.Limit-a.stats.ReservedBytes.All.Current {
		return 0, errLimit
	}
	return a.dev.Alloc(size)
}

// Free implements mem.Allocator. Without Config.Session it waits for all work that is queued on the device. If the
// device does not take the block back, the block is queued. A double free always panics.
func (a *Allocator) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	check.Used("direct: Free", used)
	a.mu.Lock()
	defer a.mu.Unlock()
	entry := a.live.Get(b.Tag)
	if entry == nil || entry.ptr != b.Ptr || entry.size != b.Size {
		panicForeign(b)
	}
	r := *entry
	a.live.Remove(b.Tag)
	a.countFree(r.size)
	a.observe(mem.ActionFreeRequested, &r)
	a.observe(mem.ActionFreeCompleted, &r)
	if a.cfg.Session || a.release(&r) != nil {
		a.queue = append(a.queue, r)
	}
}

func panicForeign(b mem.Block) {
	panic(fmt.Sprintf("direct: Free of a block that is not live (address %#x, %d bytes): "+
		"it was freed already, changed since Alloc, or another allocator made it", uint64(b.Ptr), b.Size))
}

// release returns a block to the device. The caller holds mu.
func (a *Allocator) release(r *block) error {
	if err := a.dev.Free(r.ptr); err != nil {
		return err
	}
	a.countSegment(r.size, -1)
	a.stats.NumDeviceFree++
	a.observe(mem.ActionSegmentFree, r)
	return nil
}

// giveBack returns the queued blocks to the device. Blocks that the device refuses stay queued. The caller holds mu.
func (a *Allocator) giveBack() error {
	var refused []error
	left := a.queue[:0]
	for _, r := range a.queue {
		if err := a.release(&r); err != nil {
			refused = append(refused, err)
			left = append(left, r)
		}
	}
	a.queue = left
	return errors.Join(refused...)
}

// FreeSession ends a session. It waits for all work that is queued on the device, and returns to the device the blocks
// that were freed since the last session ended. Live blocks stay live in the next session. Blocks that the device
// refuses stay queued, and the error lists the refusals.
func (a *Allocator) FreeSession() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrClosed
	}
	if err := a.giveBack(); err != nil {
		return fmt.Errorf("direct: return freed blocks to the device: %w", err)
	}
	return nil
}

// EmptyCache implements mem.Trimmer: it is FreeSession.
func (a *Allocator) EmptyCache() error { return a.FreeSession() }

// Close returns the queued blocks to the device. Live blocks are an error; then nothing is returned. Blocks that the
// device refuses are an error too; Close again to try again. After a Close that succeeded, Alloc and FreeSession fail
// with ErrClosed. It does not close the device.
func (a *Allocator) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if n := a.stats.Allocation.All.Current; n > 0 {
		return fmt.Errorf("direct: Close: %d blocks of %d bytes are still live; "+
			"layer.NewLeakTracker shows where they were allocated", n, a.stats.AllocatedBytes.All.Current)
	}
	if err := a.giveBack(); err != nil {
		return fmt.Errorf("direct: Close: return freed blocks to the device: %w", err)
	}
	a.closed = true
	return nil
}
