package engine

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// lanes is the topmost layer of a device's allocator. A lane is what the layer knows of one stream: the session whose
// memory is counted, and the cache that its requests go to, for the layer of caches further below. A loan remembers
// what was asked for, and who it is counted for, whatever its lane does by then.
//
// The tag of a block is the number of its lane, of its loan in it, and of the loan's turn, which tells a block from
// those that were freed before: nothing is looked up in a map, and streams share no lock but for life, which is written
// once, by shut. From then on requests are refused and frees are dropped: the device has the memory back.
//
// Locks: life (read), then what the layers below have, then a lane's, which is a leaf.
type lanes struct {
	below mem.Allocator

	life   sync.RWMutex
	closed bool

	grow  sync.Mutex
	table atomic.Pointer[[]*lane] // by the stream's number
}

// A lane is one stream's.
type lane struct {
	number uint64               // as tags have it
	lead   atomic.Pointer[lead] // nil: requests are not counted, and go to no cache

	mu     sync.Mutex
	onLoan int64 // bytes asked for
	loans  []*loan
	idle   []*loan // those without a block
}

// A lead says what becomes of a stream's requests.
type lead struct {
	usage  *usage
	cache  *cache        // nil: none is in use
	stream driver.Stream // the one that is meant; nil: any of the number, which the engine has for itself
}

// leads returns what becomes of a stream's requests, or nil.
func (n *lane) leads(s driver.Stream) *lead {
	if d := n.lead.Load(); d != nil && (d.stream == nil || d.stream == s) {
		return d
	}
	return nil
}

// A loan is a block that was handed out. It stands between the block's allocator and its holder, if it is movable.
type loan struct {
	lane   *lane
	tag    uint64 // of the block that it stands for, or stood for last
	usage  *usage
	size   int64     // asked for
	quiet  bool      // mem.AllocOptions.Logged
	block  mem.Block // as the layer below knows it; the zero Block if there is none, or it is on its way back
	holder mem.Holder
}

// A tag, from its lowest bit on: 32 of the loan's number, 12 of its turn, 20 of the lane's number.
const (
	turnBit = 1 << 32
	turns   = (1<<12 - 1) * turnBit
	laneAt  = 32 + 12
)

// usage is the bytes that a session asked for on one device and has not freed.
type usage struct {
	used, peak atomic.Int64
	log        atomic.Pointer[blockLog] // nil: blocks are not logged
}

func (u *usage) add(n int64) {
	if u == nil {
		return
	}
	now := u.used.Add(n)
	for peak := u.peak.Load(); now > peak && !u.peak.CompareAndSwap(peak, now); peak = u.peak.Load() {
	}
}

func newLanes(below mem.Allocator) *lanes {
	l := &lanes{below: below}
	l.table.Store(new([]*lane))
	return l
}

// of returns the lane of a stream.
func (l *lanes) of(id driver.StreamID) *lane {
	if t := *l.table.Load(); int(id) < len(t) {
		return t[id]
	}
	l.grow.Lock()
	defer l.grow.Unlock()
	t := *l.table.Load()
	t = t[:len(t):len(t)] // readers have the old one
	for n := len(t); n <= int(id); n++ {
		t = append(t, &lane{number: uint64(n) << laneAt})
	}
	l.table.Store(&t)
	return t[id]
}

// lead counts the requests of a stream that is the engine's own from now on for u, and sends them to a cache, or, if
// that is nil, to none.
func (l *lanes) lead(s driver.Stream, k *cache, u *usage) {
	l.of(s.ID()).lead.Store(&lead{usage: u, cache: k})
}

// Alloc implements mem.Allocator.
func (l *lanes) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return l.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (l *lanes) AllocWith(s driver.Stream, size int64, wishes mem.AllocOptions) (mem.Block, error) {
	b, u, err := l.alloc(s, size, wishes)
	if u != nil && !wishes.Logged {
		if log := u.log.Load(); log != nil {
			log.allocated(u, s, size, b, err)
		}
	}
	return b, err
}

// alloc is AllocWith, and returns whom the request counts for, if it is one.
func (l *lanes) alloc(s driver.Stream, size int64, wishes mem.AllocOptions) (mem.Block, *usage, error) {
	l.life.RLock()
	defer l.life.RUnlock()
	if l.closed {
		return mem.Block{}, nil, ErrClosed
	}
	switch s := s.(type) {
	case endedStream:
		return mem.Block{}, nil, ErrClosed
	case *sweep:
		return mem.Block{}, nil, s.answer()
	}
	check.Stream("engine: Alloc", s)
	if size <= 0 {
		b, err := mem.AllocWith(l.below, s, size, wishes)
		return b, nil, err
	}
	n := l.of(s.ID())
	var u *usage
	if d := n.leads(s); d != nil {
		u = d.usage
	}
	o := n.take(u)
	b, err := mem.AllocWith(l.below, s, size, wishes)
	if err != nil {
		n.put(o)
		return mem.Block{}, u, err
	}
	u.add(size)
	n.mu.Lock()
	defer n.mu.Unlock()
	o.block, o.size, o.quiet = b, size, wishes.Logged
	n.onLoan += size
	b.Tag = o.tag
	return b, u, nil
}

// Free implements mem.Allocator.
func (l *lanes) Free(b mem.Block, used ...driver.Stream) {
	if u, size := l.free(b, used); u != nil {
		if log := u.log.Load(); log != nil {
			log.freed(u, size, b)
		}
	}
}

// free is Free, and returns whom the block counted for, with the bytes that were asked for, if anybody may be told.
func (l *lanes) free(b mem.Block, used []driver.Stream) (u *usage, size int64) {
	l.life.RLock()
	defer l.life.RUnlock()
	if b == (mem.Block{}) || l.closed {
		return nil, 0
	}
	check.Used("engine: Free", used)
	o := l.loan("Free", b)
	n := o.lane
	n.mu.Lock()
	below := o.block
	if b.Tag != o.tag || below.Ptr != b.Ptr || below.Size != b.Size {
		n.mu.Unlock()
		panic(notLive("Free", b))
	}
	o.block = mem.Block{}
	n.onLoan -= o.size
	n.mu.Unlock()
	u, size = o.usage, o.size
	quiet := o.quiet
	l.below.Free(below, used...)
	u.add(-size)
	n.put(o) // not before: the allocator may ask its holder until then
	if quiet {
		return nil, 0
	}
	return u, size
}

// loan returns the loan that a block's tag names.
func (l *lanes) loan(call string, b mem.Block) *loan {
	t := *l.table.Load()
	number, at := b.Tag>>laneAt, b.Tag&math.MaxUint32
	if number >= uint64(len(t)) {
		panic(notLive(call, b))
	}
	n := t[number]
	n.mu.Lock()
	defer n.mu.Unlock()
	if at >= uint64(len(n.loans)) {
		panic(notLive(call, b))
	}
	return n.loans[at]
}

func notLive(call string, b mem.Block) string {
	return fmt.Sprintf("engine: %s of %d bytes at %#x: not a live block of this device", call, b.Size, b.Ptr)
}

// take returns a loan without a block, for a request of now.
func (n *lane) take(u *usage) *loan {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.idle) == 0 {
		o := &loan{lane: n, tag: n.number | uint64(len(n.loans))}
		n.loans = append(n.loans, o)
		n.idle = append(n.idle, o)
	}
	last := len(n.idle) - 1
	o := n.idle[last]
	n.idle = n.idle[:last]
	o.usage = u
	o.tag = o.tag&^turns | (o.tag+turnBit)&turns
	return o
}

func (n *lane) put(o *loan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o.usage, o.holder = nil, nil
	n.idle = append(n.idle, o)
}

// Unwrap implements mem.Wrapper.
func (l *lanes) Unwrap() mem.Allocator { return l.below }

// Movable implements mem.Mover.
func (l *lanes) Movable(b mem.Block, h mem.Holder) bool {
	l.life.RLock()
	defer l.life.RUnlock()
	if b == (mem.Block{}) || l.closed {
		return false
	}
	o := l.loan("Movable", b)
	o.lane.mu.Lock()
	below := o.block
	if b.Tag != o.tag || below.Ptr != b.Ptr || below.Size != b.Size {
		o.lane.mu.Unlock()
		panic(notLive("Movable", b))
	}
	o.holder = h
	o.lane.mu.Unlock()
	if mem.Movable(l.below, below, o) {
		return true
	}
	o.lane.mu.Lock()
	defer o.lane.mu.Unlock()
	o.holder = nil
	return false
}

// BeginMove implements mem.Holder, towards the layers below.
func (o *loan) BeginMove() (used []driver.Stream, ok bool) {
	o.lane.mu.Lock()
	h, leaving := o.holder, o.block == (mem.Block{})
	o.lane.mu.Unlock()
	if leaving {
		return nil, false
	}
	return h.BeginMove()
}

// EndMove implements mem.Holder.
func (o *loan) EndMove(b mem.Block, s driver.Stream) {
	o.lane.mu.Lock()
	h := o.holder
	o.block = b
	o.lane.mu.Unlock()
	b.Tag = o.tag
	h.EndMove(b, s)
}

// onLoan returns the bytes asked for on all streams and not freed.
func (l *lanes) onLoan() (sum int64) {
	for _, n := range *l.table.Load() {
		n.mu.Lock()
		sum += n.onLoan
		n.mu.Unlock()
	}
	return sum
}

// during calls f, unless the layer was shut. Until f returns, shut waits, and so does what follows it. f asks nothing
// of l.
func (l *lanes) during(f func() error) error {
	l.life.RLock()
	defer l.life.RUnlock()
	if l.closed {
		return ErrClosed
	}
	return f()
}

// shut ends the layer: see lanes. It waits for the calls that are under way.
func (l *lanes) shut() {
	l.life.Lock()
	defer l.life.Unlock()
	l.closed = true
}
