package engine

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
	"github.com/ashlar-go/ashlar/mem"
)

// observedCaches tell of what the allocator below tells of, and of the blocks of caches in place of the one block that
// each cache is.
type observedCaches struct{ *describedCaches }

// Observe implements mem.Observable.
func (o *observedCaches) Observe(observer mem.Observer) { o.events.observe(observer) }

// cacheEvents are those of a device's allocator and its caches. The nil value has no observer.
type cacheEvents struct {
	source   mem.Observable
	observer atomic.Pointer[mem.Observer]

	mu        sync.Mutex                   // a leaf: observers are called without it
	reserving uintptr                      // the goroutine whose blocks are to be caches; 0: none
	hidden    map[driver.Pointer]bool      // blocks that are caches
	loans     map[driver.Pointer]mem.Event // of caches, while there is an observer
}

func newCacheEvents(source mem.Observable) *cacheEvents {
	return &cacheEvents{source: source, hidden: map[driver.Pointer]bool{}, loans: map[driver.Pointer]mem.Event{}}
}

func (e *cacheEvents) observe(observer mem.Observer) {
	if observer == nil {
		e.observer.Store(nil)
		e.source.Observe(nil)
		return
	}
	e.mu.Lock()
	clear(e.loans)
	e.mu.Unlock()
	e.observer.Store(&observer)
	e.source.Observe(e.relay)
}

// relay passes on what the allocator below tells, under its locks, but for the blocks that are caches.
func (e *cacheEvents) relay(ev mem.Event) {
	if e.hides(ev) {
		return
	}
	if observer := e.observer.Load(); observer != nil {
		(*observer)(ev)
	}
}

func (e *cacheEvents) hides(ev mem.Event) bool {
	switch ev.Action {
	case mem.ActionAlloc, mem.ActionFreeRequested, mem.ActionFreeCompleted:
	default:
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	hidden := e.hidden[ev.Ptr]
	if ev.Action == mem.ActionAlloc {
		hidden = e.reserving != 0 && e.reserving == goroutine.ID()
	}
	if hidden && ev.Action != mem.ActionFreeCompleted {
		e.hidden[ev.Ptr] = true
	} else {
		delete(e.hidden, ev.Ptr)
	}
	return hidden
}

// hide hides the blocks that the calling goroutine is handed until what it returns is called.
func (e *cacheEvents) hide() (end func()) {
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

// allocated tells of a request to a cache.
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
		e.loans[b.Ptr] = ev
		e.mu.Unlock()
	}
	(*observer)(ev)
}

// freed tells of a free of a cache's block, before the cache has it, and returns what the block was handed out as.
func (e *cacheEvents) freed(b mem.Block) mem.Event {
	if e == nil {
		return mem.Event{}
	}
	observer := e.observer.Load()
	if observer == nil {
		return mem.Event{}
	}
	e.mu.Lock()
	ev, known := e.loans[b.Ptr]
	delete(e.loans, b.Ptr)
	e.mu.Unlock()
	if !known { // it was handed out while there was no observer
		ev = mem.Event{Ptr: b.Ptr, Size: b.Size}
	}
	for _, ev.Action = range []mem.Action{mem.ActionFreeRequested, mem.ActionFreeCompleted} {
		(*observer)(ev)
	}
	return ev
}

// follow returns the holder of a cache's block that tells where it is moved to.
func (e *cacheEvents) follow(b mem.Block, h mem.Holder) mem.Holder {
	if e == nil {
		return h
	}
	return &cacheFollower{events: e, holder: h, at: b}
}

// A cacheFollower stands between a cache, which moves a block, and its holder. Between BeginMove and EndMove the block is told
// to be nowhere: others may land where it was before it lands. Its fields are for the cache that calls it, under that
// one's lock.
type cacheFollower struct {
	events *cacheEvents
	holder mem.Holder
	at     mem.Block
	lifted mem.Event // its Ptr is 0 if there was no observer
}

// BeginMove implements mem.Holder.
func (f *cacheFollower) BeginMove() ([]driver.Stream, bool) {
	used, ok := f.holder.BeginMove()
	if ok {
		f.lifted = f.events.freed(f.at)
	}
	return used, ok
}

// EndMove implements mem.Holder. It is told before the holder hears of it, and so before any Free.
func (f *cacheFollower) EndMove(b mem.Block, s driver.Stream) {
	f.at = b
	if observer := f.events.observer.Load(); observer != nil && f.lifted.Ptr != 0 {
		ev := f.lifted
		ev.Action, ev.Ptr = mem.ActionAlloc, b.Ptr
		f.events.mu.Lock()
		f.events.loans[b.Ptr] = ev
		f.events.mu.Unlock()
		(*observer)(ev)
	}
	f.lifted = mem.Event{}
	f.holder.EndMove(b, s)
}
