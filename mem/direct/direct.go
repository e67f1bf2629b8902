// Package direct is the allocator without a policy: each block is one allocation of the device's. It is BMEngine's
// DirectMemoryAllocator, and what KuiperLLama's device allocators are: the plainest thing that is right, to hold others
// against, for programs that allocate once, and for memory checkers that know only what the driver allocated.
//
// # Structure
//
// A slab of records, found from a block's tag: the block, its stream, and a count that is odd while the block is on
// loan. Records of blocks that were freed but not given back wait in a queue, oldest first. A record is
//
//	unused   no memory; in the list of unused records
//	live  the borrower has the block
//	queued   freed, and still the device's to take back; in the queue
//
// Without Config.Session a block goes back to the device in Free, and is queued only if the device does not take it.
// With it, Free queues and calls nothing; what was freed goes back together, at the end of a session: in FreeSession.
// In both, EmptyCache and Close give back what is queued, and so does a request that finds no room, which then asks
// once more. A queued block is never allocated again.
//
// # Invariant
//
// Reserved bytes = allocated bytes + bytes queued; each block is a segment of its own, and no more than was asked for:
// the device rounds by itself. (BMEngine rounds to 512 bytes, but only sizes above 4096.)
//
// # Streams
//
// driver.Device.Free waits for all work that is queued on the device, so a block that goes back needs no marks: the
// work of its own stream and of the streams that Free was told of is done before the device has the memory, and so is
// everybody else's. That wait is what this allocator costs: Free may take as long as the longest kernel.
//
// # Locks
//
// One, over everything, held while the device works: what reports see, and the order of events, are exact, and there is
// no warm request that could be kept waiting. So in a session Free waits for a FreeSession under way.
//
// # What it does not do
//
// It keeps no memory for reuse, moves nothing, and rounds nothing. While a stream captures, a device may refuse to take
// memory back: the block is queued then.
package direct

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// An Allocator asks a device for every block. Safe for concurrent use.
type Allocator struct {
	dev driver.Device
	cfg Config

	mu       sync.Mutex
	slab     []block  // slab[i] is that of tags with i in the low half
	unused   []uint32 // places in slab
	queue    []uint32 // freed, not given back; oldest first
	stats    mem.Stats
	observer mem.Observer
	closed   bool
}

// A record is what is known of a block.
type block struct {
	ptr        driver.Pointer // 0 while unused
	size       int64
	stream     driver.StreamID
	generation uint32 // odd while the block is live; a tag holds the value of its loan
}

func (r *block) live() bool { return r.generation%2 == 1 }

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

// Alloc implements mem.Allocator: the block is what the device gave, of just the size that was asked for. The error is
// a *mem.OutOfMemory, matches ErrClosed, or is the device's.
func (a *Allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry nothing that is queued is given back to make room.
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
	at, r := a.newSlot()
	r.ptr, r.size, r.stream = ptr, size, stream
	r.generation++
	a.countAlloc(size)
	a.observe(mem.ActionSegmentAlloc, r)
	a.observe(mem.ActionAlloc, r)
	return mem.Block{Ptr: ptr, Size: size, Tag: uint64(r.generation)<<32 | uint64(at)}, nil
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

// errLimit says that the limit refused a request, and the device was not asked.
var errLimit = fmt.Errorf("direct: over the limit: %w", mem.ErrNoMemory)

func (a *Allocator) ask(size int64) (driver.Pointer, error) {
	if a.cfg.Limit > 0 && size > a.cfg.Limit-a.stats.ReservedBytes.All.Current {
		return 0, errLimit
	}
	return a.dev.Alloc(size)
}

// newSlot returns an unused slot.
func (a *Allocator) newSlot() (at uint32, r *block) {
	if n := len(a.unused); n > 0 {
		at = a.unused[n-1]
		a.unused = a.unused[:n-1]
	} else {
		at = uint32(len(a.slab))
		a.slab = append(a.slab, block{})
	}
	return at, &a.slab[at]
}

// Free implements mem.Allocator. Without Config.Session it waits for all work that is queued on the device. A device
// that does not take the block back keeps no one waiting: the block is queued. A block that was freed already is always
// noticed.
func (a *Allocator) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	check.Used("direct: Free", used)
	a.mu.Lock()
	defer a.mu.Unlock()
	at, turns := uint32(b.Tag), uint32(b.Tag>>32)
	if uint64(at) >= uint64(len(a.slab)) {
		panicForeign(b)
	}
	r := &a.slab[at]
	if r.ptr != b.Ptr || r.size != b.Size || r.generation != turns || !r.live() {
		panicForeign(b)
	}
	r.generation++
	a.countFree(r.size)
	a.observe(mem.ActionFreeRequested, r)
	a.observe(mem.ActionFreeCompleted, r)
	if a.cfg.Session || a.release(at) != nil {
		a.queue = append(a.queue, at)
	}
}

func panicForeign(b mem.Block) {
	panic(fmt.Sprintf("direct: Free of a block that is not live (address %#x, %d bytes): "+
		"it was freed already, changed since Alloc, or another allocator made it", uint64(b.Ptr), b.Size))
}

// release gives a block back to the device, and its record up. The caller holds mu.
func (a *Allocator) release(at uint32) error {
	r := &a.slab[at]
	if err := a.dev.Free(r.ptr); err != nil {
		return err
	}
	a.countSegment(r.size, -1)
	a.stats.NumDeviceFree++
	a.observe(mem.ActionSegmentFree, r)
	r.ptr = 0
	a.unused = append(a.unused, at)
	return nil
}

// giveBack releases what is queued. What the device does not take stays there. The caller holds mu.
func (a *Allocator) giveBack() error {
	var refused []error
	left := a.queue[:0]
	for _, at := range a.queue {
		if err := a.release(at); err != nil {
			refused = append(refused, err)
			left = append(left, at)
		}
	}
	a.queue = left
	return errors.Join(refused...)
}

// FreeSession ends a session: it waits for all work that is queued on the device, and gives back what was freed since
// the last one ended. Blocks that are live stay live, in the next session. What the device does not take stays queued,
// and is the error.
func (a *Allocator) FreeSession() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrClosed
	}
	if err := a.giveBack(); err != nil {
		return fmt.Errorf("direct: give back what was freed: %w", err)
	}
	return nil
}

// EmptyCache implements mem.Trimmer: it is FreeSession.
func (a *Allocator) EmptyCache() error { return a.FreeSession() }

// Close gives back what is queued. Blocks that are still live are an error, and nothing is given back then; so is what
// the device does not take. Close again to try again. After a Close that succeeded, Alloc and FreeSession fail with
// ErrClosed. It does not close the device.
func (a *Allocator) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if n := a.stats.Allocation.All.Current; n > 0 {
		return fmt.Errorf("direct: Close: %d blocks of %d bytes are still live; layer.NewLeakTracker tells where they were allocated", n, a.stats.AllocatedBytes.All.Current)
	}
	if err := a.giveBack(); err != nil {
		return fmt.Errorf("direct: Close: give back what was freed: %w", err)
	}
	a.closed = true
	return nil
}
