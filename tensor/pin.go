package tensor

import (
	"fmt"
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/mem"
)

// Pin keeps t's memory where it is until Unpin, on places whose allocator moves blocks (see mem.Compactor). Between the
// two calls the result of Array is valid. Work that was queued in between may finish after Unpin: a move waits for it.
// Pins are counted for all tensors of a storage together. Packages tensor and compute pin the memory that they queue
// work on. Memory that captured work uses needs no pin: see Use.
func (t *Tensor) Pin() { t.alive("Pin").storage.state.pin() }

// Unpin ends a Pin of this tensor or of another of its storage, and keeps t reachable until then. The storage may have
// been released in between. It panics if there is no Pin to end.
func (t *Tensor) Unpin() {
	if t.mustBeDefined("Unpin").storage.state.pins.Add(-1) < 0 {
		panic(fmt.Sprintf("tensor: Unpin at %v of a tensor %v that is not pinned", callsite.Here(), t.brief()))
	}
	runtime.KeepAlive(t)
}

// pin takes the lock so that it waits for a move in progress.
func (r *storageState) pin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pins.Add(1)
}

// exposeAddress returns the address and forbids moves from now on, since the caller may keep it. It panics, with the
// name of the call, if the storage was released.
func (r *storageState) exposeAddress(call string) (driver.Pointer, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustLive(call)
	r.fixed = true
	return r.ptr, r.bytes
}

// address returns the current address. It is valid while the storage is pinned.
func (r *storageState) address() (driver.Pointer, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ptr, r.bytes
}

// BeginMove implements mem.Holder. It keeps mu locked until EndMove, so that a use, a request for the address and a
// release wait for the move.
func (r *storageState) BeginMove() (used []driver.Stream, ok bool) {
	r.mu.Lock()
	if r.owners == 0 || r.fixed || r.pins.Load() > 0 {
		r.mu.Unlock()
		return nil, false
	}
	return r.used, true
}

// EndMove implements mem.Holder. The move is the last write and waited for all earlier uses, so the lists of those are
// cleared.
func (r *storageState) EndMove(b mem.Block, s driver.Stream) {
	defer r.mu.Unlock()
	if s == nil {
		return
	}
	r.block, r.ptr = b, b.Ptr
	if r.visible {
		var err error
		if r.bytes, err = r.device.visible.Bytes(b.Ptr, r.size); err != nil {
			panic(fmt.Sprintf("tensor: the allocator moved a storage of %d bytes to memory that Go code cannot "+
				"access: %v", r.size, err))
		}
	}
	r.writer, r.synced, r.readers, r.used = s, r.synced[:0], r.readers[:0], r.used[:0]
	if s != r.origin {
		r.used = append(r.used, s)
	}
}
