package tensor

import (
	"fmt"
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Pin keeps t's memory where it is until Unpin, on places whose allocator moves blocks (see mem.Compactor): between
// the two, Array is good. Work that was queued meanwhile may go on: what moves memory waits for it. Holds count, for all
// tensors of a storage together. Everything in packages tensor and compute holds what it queues work on. Memory that work
// captured in a graph uses needs no hold: see Use.
func (t *Tensor) Pin() { t.alive("Pin").storage.r.pin() }

// Unpin ends a Pin, of this tensor or another of its storage, and keeps t reachable until then. It panics if there is
// none. The storage may have been released meanwhile.
func (t *Tensor) Unpin() {
	if t.known("Unpin").storage.r.holds.Add(-1) < 0 {
		panic(fmt.Sprintf("tensor: Unpin at %v of a tensor %v that nobody holds still", here(), t.brief()))
	}
	runtime.KeepAlive(t)
}

// pin adds a hold. Under the lock, so that it waits for a move that is under way.
func (r *record) pin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds.Add(1)
}

// giveAway returns the address, and lets nobody move the memory from now on: who has been told where it lies may keep
// that. It panics, in the name of a call, if the memory is gone.
func (r *record) giveAway(call string) (driver.Pointer, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustLive(call)
	r.fixed = true
	return r.ptr, r.bytes
}

// where returns the address as it is now. It is good while the record is held.
func (r *record) where() (driver.Pointer, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ptr, r.bytes
}

// BeginMove implements mem.Holder: mu is held from here until EndMove, so that whoever uses the memory, takes its address or
// releases it waits.
func (r *record) BeginMove() (used []driver.Stream, ok bool) {
	r.mu.Lock()
	if r.strong == 0 || r.fixed || r.holds.Load() > 0 {
		r.mu.Unlock()
		return nil, false
	}
	return r.used, true
}

// EndMove implements mem.Holder. The move is the last write, and read what lay there: it waited for all uses, so of those
// before it nobody has to be told any more.
func (r *record) EndMove(b mem.Block, s driver.Stream) {
	defer r.mu.Unlock()
	if s == nil {
		return
	}
	r.block, r.ptr = b, b.Ptr
	if r.visible {
		var err error
		if r.bytes, err = r.home.visible.Bytes(b.Ptr, r.size); err != nil {
			panic(fmt.Sprintf("tensor: the allocator moved a storage of %d bytes to where the device has none: %v", r.size, err))
		}
	}
	r.writer, r.seen, r.readers, r.used = s, r.seen[:0], r.readers[:0], r.used[:0]
	if s != r.origin {
		r.used = append(r.used, s)
	}
}
