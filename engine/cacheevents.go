package engine

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
	"github.com/ashlar-go/ashlar/mem"
)

// observedCaches report the events of the allocator below, and those of the blocks in each cache in place of the block
// that the cache is.
type observedCaches struct{ *describedCaches }

// Observe implements mem.Observable.
func (o *observedCaches) Observe(observer mem.Observer) { o.events.observe(observer) }

// cacheEvents reports the events of a device's allocator and its caches to one observer. The nil value has none.
type cacheEvents struct {
	source   mem.Observable
	observer atomic.Pointer[mem.Observer]

	mu        sync.Mutex                   // a leaf: observers are called without it
	reserving uintptr                      // the goroutine whose blocks are to be caches; 0: none
	excluded  map[driver.Pointer]bool      // blocks that are caches
	live      map[driver.Pointer]mem.Event // of caches, while there is an observer
}

func newCacheEvents(source mem.Observable) *cacheEvents {
	return &cacheEvents{source: source, excluded: map[driver.Pointer]bool{}, live: map[driver.Pointer]mem.Event{}}
}

func (e *cacheEvents) observe(observer mem.Observer) {
	if observer == nil {
		e.observer.Store(nil)
		e.source.Observe(nil)
		return
	}
	e.mu.Lock()
	clear(e.live)
	e.mu.Unlock()
	e.observer.Store(&observer)
	e.source.Observe(e.relay)
}

// relay passes events of the allocator below to the observer, except those of blocks that are caches. It is called with
// that allocator's locks held.
func (e *cacheEvents) relay(ev mem.Event) {
	if e.excludes(ev) {
		return
	}
	if observer := e.observer.Load(); observer != nil {
		(*observer)(ev)
	}
}

func (e *cacheEvents) excludes(ev mem.Event) bool {
	switch ev.Action {
	case mem.ActionAlloc, mem.ActionFreeRequested, mem.ActionFreeCompleted:
	default:
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	hidden := e.excluded[ev.Ptr]
	if ev.Action == mem.ActionAlloc {
		hidden = e.reserving != 0 && e.reserving == goroutine.ID()
	}
	if hidden && ev.Action != mem.ActionFreeCompleted {
		e.excluded[ev.Ptr] = true
	} else {
		delete(e.excluded, ev.Ptr)
	}
	return hidden
}

// excludeReserved excludes the blocks that the calling goroutine allocates, until end is called.
func (e *cacheEvents) excludeReserved() (end func()) {
	set := func(id uintptr) {
		if e != nil {
			e.mu.Lock()
			e.reserving = id
			e.mu.Unlock()
		}
	}
	set(goroutine.ID())
	return func() { set(0) }
}

// allocated reports a request to a cache.
func (e *cacheEvents) allocated(s driver.Stream, size int64, b mem.Block, err error) {
	if e == nil {
		return
	}
	observer := e.observer.Load()
	if observer == nil || err == nil && b.Ptr == 0 {
		return
	}
	ev := mem.Event{Action: mem.ActionAlloc, Stream: s.ID(), Ptr: b.Ptr, Size: size}
	if err != nil {
		var oom *mem.OutOfMemory
		if !errors.As(err, &oom) {
			return
		}
		ev = mem.Event{
			Action: mem.ActionOOM, Stream: s.ID(), Ptr: driver.Pointer(oom.Free), Size: max(size, oom.Rounded),
		}
	} else {
		e.mu.Lock()
		e.live[b.Ptr] = ev
		e.mu.Unlock()
	}
	(*observer)(ev)
}

// freed reports the free of a block in a cache, before the cache frees it. It returns the event of its allocation.
func (e *cacheEvents) freed(b mem.Block) mem.Event {
	if e == nil {
		return mem.Event{}
	}
	observer := e.observer.Load()
	if observer == nil {
		return mem.Event{}
	}
	e.mu.Lock()
	ev, known := e.live[b.Ptr]
	delete(e.live, b.Ptr)
	e.mu.Unlock()
	if !known { // it was allocated while there was no observer
		ev = mem.Event{Ptr: b.Ptr, Size: b.Size}
	}
	for _, ev.Action = range []mem.Action{mem.ActionFreeRequested, mem.ActionFreeCompleted} {
		(*observer)(ev)
	}
	return ev
}

// observeMoves returns a holder that reports moves of a block in a cache and passes them on to h.
func (e *cacheEvents) observeMoves(b mem.Block, h mem.Holder) mem.Holder {
	if e == nil {
		return h
	}
	return &moveObserver{events: e, holder: h, at: b}
}

// A moveObserver is the holder that a cache calls when it moves a block; it calls the block's holder. BeginMove reports
// a free and EndMove an allocation, since other blocks may be moved to the old address in between. The cache's lock
// guards its fields.
type moveObserver struct {
	events *cacheEvents
	holder mem.Holder
	at     mem.Block
	moved  mem.Event // its Ptr is 0 if there was no observer
}

// BeginMove implements mem.Holder.
func (f *moveObserver) BeginMove() ([]driver.Stream, bool) {
	used, ok := f.holder.BeginMove()
	if ok {
		f.moved = f.events.freed(f.at)
	}
	return used, ok
}

// EndMove implements mem.Holder. It reports the event before it calls the holder, which may free the block.
func (f *moveObserver) EndMove(b mem.Block, s driver.Stream) {
	f.at = b
	if observer := f.events.observer.Load(); observer != nil && f.moved.Ptr != 0 {
		ev := f.moved
		ev.Action, ev.Ptr = mem.ActionAlloc, b.Ptr
		f.events.mu.Lock()
		f.events.live[b.Ptr] = ev
		f.events.mu.Unlock()
		(*observer)(ev)
	}
	f.moved = mem.Event{}
	f.holder.EndMove(b, s)
}
