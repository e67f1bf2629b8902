package engine

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/internal/slots"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A sessionAllocator is the topmost layer of a device's allocator. It counts the memory of each session, and refuses
// requests after close. A streamState holds the route of a stream's requests: the session they count for, and the cache
// that serves them. An allocation keeps the requested size and the session it counts for when the route changes.
//
// A block's tag holds the stream, the index of the allocation in the stream's table, and the allocation's generation,
// which distinguishes the block from freed ones. So Free needs no map, and streams share no lock but closeMu, which
// only close takes for writing. After close requests fail and frees are dropped: the device has the memory back.
//
// Locks: closeMu (read), then those of the layers below, then a stream's mu, which is a leaf.
type sessionAllocator struct {
	below mem.Allocator

	closeMu sync.RWMutex
	closed  bool

	tableMu sync.Mutex
	table   atomic.Pointer[[]*streamState] // by the stream's number
}

// A streamState holds the allocations of one stream.
type streamState struct {
	number uint64                // as tags have it
	route  atomic.Pointer[route] // nil: requests are not counted, and go to no cache

	mu          sync.Mutex
	liveBytes   int64                    // bytes asked for
	allocations slots.Table[*allocation] // recycled, so that a warm request makes none
}

// A route says which session and which cache a stream's requests go to.
type route struct {
	usage  *usage
	cache  *cache        // nil: none is in use
	stream driver.Stream // the one that is meant; nil: any of the number, which the engine has for itself
}

// routeFor returns the route of a stream's requests, or nil. A number may be used by a stream of the program too: the
// route counts only if it is for this one.
func (n *streamState) routeFor(s driver.Stream) *route {
	if d := n.route.Load(); d != nil && (d.stream == nil || d.stream == s) {
		return d
	}
	return nil
}

// An allocation is one live block. For a movable block it is the holder that the layer below calls.
type allocation struct {
	stream   *streamState
	slot     uint64 // its tag in stream.allocations
	usage    *usage
	size     int64     // asked for
	unlogged bool      // mem.AllocOptions.Logged
	block    mem.Block // as the layer below knows it; the zero Block if there is none, or it is on its way back
	holder   mem.Holder
}

// tag returns the tag of the block, from the lowest bit: 32 bits of index, 12 of generation, 20 of stream number. The
// lowest bit of the generation, which is set in every slot in use, is left out.
func (a *allocation) tag() uint64 {
	return a.stream.number | a.slot>>33<<52>>20 | a.slot&math.MaxUint32
}

const streamShift = 32 + 12

// usage is the bytes that a session asked for on one device and has not freed.
type usage struct {
	used, peak atomic.Int64
	log        atomic.Pointer[blockLog] // nil: blocks are not logged
	tenant     *layer.Tenant            // nil: the engine's own
}

func (u *usage) add(n int64) {
	if u == nil {
		return
	}
	now := u.used.Add(n)
	for peak := u.peak.Load(); now > peak && !u.peak.CompareAndSwap(peak, now); peak = u.peak.Load() {
	}
}

func newSessionAllocator(below mem.Allocator) *sessionAllocator {
	l := &sessionAllocator{below: below}
	l.table.Store(new([]*streamState))
	return l
}

// stream returns the state of a stream.
func (l *sessionAllocator) stream(id driver.StreamID) *streamState {
	if t := *l.table.Load(); int(id) < len(t) {
		return t[id]
	}
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	t := *l.table.Load()
	t = t[:len(t):len(t)] // readers have the old one
	for n := len(t); n <= int(id); n++ {
		t = append(t, &streamState{number: uint64(n) << streamShift})
	}
	l.table.Store(&t)
	return t[id]
}

// setRoute routes the requests of one of the engine's own streams: they count for u, and go to the cache, if it is not
// nil.
func (l *sessionAllocator) setRoute(s driver.Stream, k *cache, u *usage) {
	l.stream(s.ID()).route.Store(&route{usage: u, cache: k})
}

// Alloc implements mem.Allocator.
func (l *sessionAllocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return l.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (l *sessionAllocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, u, err := l.alloc(s, size, o)
	if u != nil && !o.Logged {
		if log := u.log.Load(); log != nil {
			log.allocated(u, s, size, b, err)
		}
	}
	return b, err
}

// alloc is AllocWith. It also returns the usage that the request counts for; nil if it counts for none.
func (l *sessionAllocator) alloc(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, *usage, error) {
	l.closeMu.RLock()
	defer l.closeMu.RUnlock()
	if l.closed {
		return mem.Block{}, nil, ErrClosed
	}
	if _, ok := s.(closedStream); ok {
		return mem.Block{}, nil, ErrClosed
	}
	check.Stream("engine: Alloc", s)
	if size <= 0 {
		b, err := mem.AllocWith(l.below, s, size, o)
		return b, nil, err
	}
	n := l.stream(s.ID())
	var u *usage
	if d := n.routeFor(s); d != nil {
		u = d.usage
	}
	a := n.acquire(u)
	b, err := mem.AllocWith(l.below, s, size, o)
	if err != nil {
		n.release(a)
		return mem.Block{}, u, err
	}
	u.add(size)
	n.mu.Lock()
	defer n.mu.Unlock()
	a.block, a.size, a.unlogged = b, size, o.Logged
	n.liveBytes += size
	b.Tag = a.tag()
	return b, u, nil
}

// Free implements mem.Allocator.
func (l *sessionAllocator) Free(b mem.Block, used ...driver.Stream) {
	if u, size := l.free(b, used); u != nil {
		if log := u.log.Load(); log != nil {
			log.freed(u, size, b)
		}
	}
}

// free is Free. It also returns the usage that the block counted for and the requested bytes; nil if the free is not to
// be logged.
func (l *sessionAllocator) free(b mem.Block, used []driver.Stream) (u *usage, size int64) {
	l.closeMu.RLock()
	defer l.closeMu.RUnlock()
	if b == (mem.Block{}) || l.closed {
		return nil, 0
	}
	check.Used("engine: Free", used)
	a := l.lookup("Free", b)
	n := a.stream
	n.mu.Lock()
	below := a.block
	if b.Tag != a.tag() || below.Ptr != b.Ptr || below.Size != b.Size {
		n.mu.Unlock()
		panic(notLive("Free", b))
	}
	a.block = mem.Block{}
	n.liveBytes -= a.size
	n.mu.Unlock()
	u, size = a.usage, a.size
	quiet := a.unlogged
	l.below.Free(below, used...)
	u.add(-size)
	n.release(a) // last: the layer below may call its holder until Free returns
	if quiet {
		return nil, 0
	}
	return u, size
}

// lookup returns the allocation that a block's tag names.
func (l *sessionAllocator) lookup(call string, b mem.Block) *allocation {
	t := *l.table.Load()
	number := b.Tag >> streamShift
	if number >= uint64(len(t)) {
		panic(notLive(call, b))
	}
	n := t[number]
	n.mu.Lock()
	defer n.mu.Unlock()
	_, a := n.allocations.At(uint32(b.Tag))
	if a == nil {
		panic(notLive(call, b))
	}
	return *a
}

func notLive(call string, b mem.Block) string {
	return fmt.Sprintf("engine: %s of %d bytes at %#x: not a live block of this device", call, b.Size, b.Ptr)
}

// acquire returns an allocation without a block.
func (n *streamState) acquire(u *usage) *allocation {
	n.mu.Lock()
	defer n.mu.Unlock()
	slot, a := n.allocations.Add()
	if *a == nil {
		*a = &allocation{stream: n}
	}
	(*a).slot, (*a).usage = slot, u
	return *a
}

func (n *streamState) release(a *allocation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a.usage, a.holder = nil, nil
	n.allocations.Recycle(a.slot)
}

// Unwrap implements mem.Wrapper.
func (l *sessionAllocator) Unwrap() mem.Allocator { return l.below }

// Movable implements mem.Mover.
func (l *sessionAllocator) Movable(b mem.Block, h mem.Holder) bool {
	l.closeMu.RLock()
	defer l.closeMu.RUnlock()
	if b == (mem.Block{}) || l.closed {
		return false
	}
	a := l.lookup("Movable", b)
	a.stream.mu.Lock()
	below := a.block
	if b.Tag != a.tag() || below.Ptr != b.Ptr || below.Size != b.Size {
		a.stream.mu.Unlock()
		panic(notLive("Movable", b))
	}
	a.holder = h
	a.stream.mu.Unlock()
	if mem.Movable(l.below, below, a) {
		return true
	}
	a.stream.mu.Lock()
	defer a.stream.mu.Unlock()
	a.holder = nil
	return false
}

// BeginMove implements mem.Holder, towards the layers below.
func (a *allocation) BeginMove() (used []driver.Stream, ok bool) {
	a.stream.mu.Lock()
	h, leaving := a.holder, a.block == (mem.Block{})
	a.stream.mu.Unlock()
	if leaving {
		return nil, false
	}
	return h.BeginMove()
}

// EndMove implements mem.Holder.
func (a *allocation) EndMove(b mem.Block, s driver.Stream) {
	a.stream.mu.Lock()
	h := a.holder
	a.block = b
	a.stream.mu.Unlock()
	b.Tag = a.tag()
	h.EndMove(b, s)
}

// liveBytes returns the bytes requested on all streams and not freed.
func (l *sessionAllocator) liveBytes() (sum int64) {
	for _, n := range *l.table.Load() {
		n.mu.Lock()
		sum += n.liveBytes
		n.mu.Unlock()
	}
	return sum
}

// whileOpen calls f, unless the layer is closed. close waits until f returns. f must not allocate from l.
func (l *sessionAllocator) whileOpen(f func() error) error {
	l.closeMu.RLock()
	defer l.closeMu.RUnlock()
	if l.closed {
		return ErrClosed
	}
	return f()
}

// close makes the layer refuse requests and drop frees. It waits for calls that are running.
func (l *sessionAllocator) close() {
	l.closeMu.Lock()
	defer l.closeMu.Unlock()
	l.closed = true
}
