package planned

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
	"github.com/ashlar-go/ashlar/mem/internal/zeroed"
)

// Settings are the resources of an allocator.
type Settings struct {
	// Fallback serves the requests that are not planned: an allocator of the same device. Close closes it if it is an
	// io.Closer.
	Fallback mem.Allocator

	// Streams maps the plan's stream numbers to streams. It must be longer than the highest number. Nil uses the
	// streams with the same numbers on the device.
	Streams []driver.Stream
}

// A Mismatch is the error for a device or settings that do not match a plan.
type Mismatch struct {
	What      string // "name", "total memory", "alignment", "streams"
	Plan, Has any
}

func (e *Mismatch) Error() string {
	return fmt.Sprintf("planned: the plan is for another device or other settings: %s %v, here %v", e.What, e.Plan,
		e.Has)
}

// An Allocator serves a plan. It is safe for concurrent use.
type Allocator struct {
	base     driver.Pointer
	size     uint64
	streams  []streamAllocator  // in the order of their parts of the region
	byStream []*streamAllocator // by driver.StreamID
	fallback mem.Allocator
	dev      driver.Device
	waits    waits
	missed   atomic.Int64 // number of requests served by the fallback

	mu      sync.Mutex // guards the fields below; taken before those of streams
	region  bool       // the region is allocated
	closed  atomic.Bool
	stats   mem.Stats  // of the region, as of the last count
	counted stats.Sums // the part of the sums that is in stats
}

// waits makes streams wait for the users of overdue blocks. It has a lock.
type waits struct {
	sync.Mutex
	*reuse.Streams
}

// New opens an allocator on dev and allocates the plan's region with one driver call. Later driver calls are only
// waits. The error is a *Mismatch, describes an invalid plan, matches mem.ErrNoMemory, or is an error of the driver;
// then the caller still owns the fallback. New panics without a fallback.
func New(dev driver.Device, p *Plan, s Settings) (*Allocator, error) {
	if s.Fallback == nil {
		panic("planned: New without a fallback")
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	if _, zeroes := mem.Find[zeroed.By](s.Fallback); zeroes {
		return nil, fmt.Errorf("planned: the fallback: %w", zeroed.Err)
	}
	ids, err := p.fits(dev.Info(), s.Streams)
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		fallback: s.Fallback, dev: dev, size: uint64(p.Size()),
		streams: make([]streamAllocator, len(p.Streams)),
	}
	a.waits.Streams = reuse.New(dev, "planned")
	if a.size > 0 {
		a.base, err = dev.Alloc(int64(a.size))
		if errors.Is(err, driver.ErrNoMemory) {
			err = fmt.Errorf("%w: %w", mem.ErrNoMemory, err)
		}
		if err != nil {
			return nil, fmt.Errorf("planned: a region of %d bytes: %w", a.size, err)
		}
		a.region = true
	}
	a.byStream = make([]*streamAllocator, int(slices.Max(append(slices.Concat(ids...), 0)))+1)
	at := a.base
	for i := range a.streams {
		a.streams[i].open(a, p, &p.Streams[i], ids[i], at)
		at += driver.Pointer(p.Streams[i].Size)
		for _, id := range ids[i] {
			a.byStream[id] = &a.streams[i]
		}
	}
	a.count()
	return a, nil
}

// fits checks the device, and returns the stream IDs of each StreamPlan.
func (p *Plan) fits(info driver.Info, streams []driver.Stream) ([][]driver.StreamID, error) {
	d := &p.Device
	switch {
	case d.Name != "" && d.Name != info.Name:
		return nil, &Mismatch{"name", d.Name, info.Name}
	case d.TotalMemory != 0 && d.TotalMemory != info.TotalMemory:
		return nil, &Mismatch{"total memory", d.TotalMemory, info.TotalMemory}
	case d.Alignment > 0 && info.Alignment%d.Alignment != 0:
		return nil, &Mismatch{"alignment", d.Alignment, info.Alignment}
	}
	ids := make([][]driver.StreamID, len(p.Streams))
	seen := map[driver.StreamID]bool{}
	for i := range p.Streams {
		for _, n := range p.Streams[i].Numbers() {
			id := driver.StreamID(n)
			if streams != nil {
				if n >= len(streams) || streams[n] == nil {
					return nil, &Mismatch{"streams", n + 1, len(streams)}
				}
				id = streams[n].ID()
			}
			if seen[id] {
				return nil, &Mismatch{"streams", len(seen) + 1, "one of them twice"}
			}
			seen[id] = true
			ids[i] = append(ids[i], id)
		}
	}
	return ids, nil
}

// Alloc implements mem.Allocator. An expected request takes constant time, with no driver call, lock or map lookup. The
// error is that of the fallback.
func (a *Allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	check.Stream("planned: Alloc", s)
	if b, ok := a.expected(s, size); ok {
		return b, nil
	}
	return a.alloc(s, size, mem.AllocOptions{})
}

// expected serves the plan's next request if size is its size. The compare and swap is last: if it succeeds, no other
// request and no slow call came in between, so the checks before it still hold.
func (a *Allocator) expected(s driver.Stream, size int64) (mem.Block, bool) {
	if id := int(s.ID()); id < len(a.byStream) && a.byStream[id] != nil {
		l := a.byStream[id]
		w := l.at.Load()
		p := &l.slots[w&posMask]
		if int64(w) >= 0 && uint64(size-p.minSize) <= p.sizeRange && l.isFree(p.first, w>>posBits) &&
			(p.rest == 0 || l.othersFree(p, w>>posBits)) && l.at.CompareAndSwap(w, w+1) {
			if l.requested != nil {
				l.requested[w&posMask].Store(size)
			}
			return mem.Block{Ptr: p.ptr, Size: p.size(), Tag: w}, true
		}
	}
	return mem.Block{}, false
}

// AllocWith implements mem.OptionsAllocator. The options apply to the fallback, which serves all requests with a Key.
func (a *Allocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("planned: Alloc", s)
	size, o = o.Rounded(size)
	if o.Key == nil {
		if b, ok := a.expected(s, size); ok {
			return b, nil
		}
	}
	return a.alloc(s, size, o)
}

func (a *Allocator) alloc(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	switch {
	case size < 0:
		panic(fmt.Sprintf("planned: Alloc of %d bytes", size))
	case size == 0:
		return mem.Block{}, nil
	case a.closed.Load():
		return mem.Block{}, closedError("Alloc")
	}
	if id := int(s.ID()); id < len(a.byStream) && a.byStream[id] != nil && o.Key == nil {
		if b, ok := a.byStream[id].request(s, size); ok {
			return b, nil
		}
	}
	b, err := mem.AllocWith(a.fallback, s, size, o)
	if err == nil || !o.Tentative {
		a.missed.Add(1)
	}
	return b, err
}

// Free implements mem.Allocator. For a block of the region it makes no driver call, unless a stream in used has the
// number of a closed one.
func (a *Allocator) Free(b mem.Block, used ...driver.Stream) {
	if uint64(b.Ptr-a.base) >= a.size {
		if b != (mem.Block{}) {
			a.fallback.Free(b, used...)
		}
		return
	}
	l := &a.streams[0]
	if b.Ptr >= l.end {
		i := sort.Search(len(a.streams), func(i int) bool { return b.Ptr < a.streams[i].end })
		l = &a.streams[i]
	}
	if len(used) == 0 && len(l.sharers) == 1 && l.freeExpected(b) {
		return
	}
	l.free(b, used)
	a.sweepSets()
}

// Close closes the fallback if it is an io.Closer, and frees the region, for which the device waits for all its work.
// Live blocks of the region, or an error of the fallback, are an error; then nothing has changed. If the device does
// not free the region, the next Close tries again. A closed allocator serves no requests.
func (a *Allocator) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for i := range a.streams {
		l := &a.streams[i]
		l.lock()
		defer l.unlock()
		for range l.liveBlocks() {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("planned: Close with %d live blocks of the region; layer.NewLeakTracker shows where they "+
			"were allocated", n)
	}
	if c, ok := a.fallback.(io.Closer); ok && !a.closed.Load() {
		if err := c.Close(); err != nil {
			return fmt.Errorf("planned: Close the fallback: %w", err)
		}
	}
	a.closed.Store(true)
	if a.region {
		if err := a.dev.Free(a.base); err != nil {
			return fmt.Errorf("planned: Close: %w", err)
		}
		a.region = false
	}
	return nil
}

// Unwrap implements mem.Wrapper: it returns the fallback.
func (a *Allocator) Unwrap() mem.Allocator { return a.fallback }

// EmptyCache implements mem.Trimmer: it empties the fallback's cache. The region stays.
func (a *Allocator) EmptyCache() error {
	if t, ok := mem.Find[mem.Trimmer](a.fallback); ok {
		return t.EmptyCache()
	}
	return nil
}

// follow makes s wait for the users of memory.
func (a *Allocator) follow(s driver.Stream, p reuse.Dependencies) error {
	a.waits.Lock()
	defer a.waits.Unlock()
	return a.waits.Wait(s, p)
}

// sweepSets removes sets of streams that no overdue block uses, if there are many.
func (a *Allocator) sweepSets() {
	a.waits.Lock()
	crowded := a.waits.NeedsCollect()
	a.waits.Unlock()
	if !crowded {
		return
	}
	for i := range a.streams {
		a.streams[i].lock()
		defer a.streams[i].unlock()
	}
	a.waits.Lock()
	defer a.waits.Unlock()
	a.waits.Collect(func(yield func(reuse.Set) bool) {
		for i := range a.streams {
			for _, s := range a.streams[i].overdue {
				if !yield(s.deps.Users) {
					return
				}
			}
		}
	})
}

func closedError(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: "the planned allocator is closed"}
}
