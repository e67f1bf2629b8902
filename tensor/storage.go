package tensor

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/mem"
)

// A Storage is memory with a count of owners: a block of an allocator, or foreign memory with a deleter. It is safe for
// concurrent use.
type Storage struct {
	// The list of live storages holds the state and not the Storage, so that a Storage can become unreachable.
	state *storageState
}

// A Deleter frees foreign memory. Work queued before on the streams in used may still access it; a deleter that must
// not free it early waits for them. It is called once, by the Release of the last owner, with no lock held.
type Deleter func(used ...driver.Stream)

// A storageState is the state of a Storage, apart from the handle that users hold.
type storageState struct {
	device *deviceState
	handle weak.Pointer[Storage]
	prev   *storageState // in the list of live storages, whose lock guards both
	next   *storageState

	size    int64   // bytes
	visible bool    // bytes is set
	delete  Deleter // frees foreign memory; may be nil
	made    *site   // nil unless sites are recorded

	pins atomic.Int32 // while it is positive the memory does not move; it increases only under mu

	mu        sync.Mutex
	ptr       driver.Pointer // of the first byte; 0 for Go's own memory and for empty memory
	bytes     []byte         // the memory, where Go code can reach it
	block     mem.Block      // of the device's allocator; zero if foreign
	fixed     bool           // the memory never moves: it is foreign or its address was exposed
	owners    int
	released  *site           // where the count became zero
	onRelease []func()        // functions from OnRelease
	origin    driver.Stream   // the stream of the allocation
	writer    driver.Stream   // the stream of the last write, initially the origin
	synced    []driver.Stream // streams that already wait for the last write, or need not
	readers   []driver.Stream // streams that have read since the last write
	used      []driver.Stream // streams other than the origin that used it since the last move
}

// A storageWithTensor is a storage and its first tensor in one object, the common case. The object is large for a
// second reason: Go keeps the weak pointers to objects of one span in a list, and walks along it to make one. With a
// thousand one-word storages in a span that took 2 µs; with thirty of these objects it takes 0.1 µs.
type storageWithTensor struct {
	storage Storage
	tensor  Tensor
	dims    [16]int // its shape and its strides, if they fit
}

// newStorage returns a storage with one owner, the caller, and adds it to the live storages of its device.
func newStorage(r *storageState, s driver.Stream) *Storage {
	return &newStorageWithTensor(r, s).storage
}

// newStorageWithTensor is newStorage with room for a tensor, which the caller fills in.
func newStorageWithTensor(r *storageState, s driver.Stream) *storageWithTensor {
	w := &storageWithTensor{storage: Storage{r}}
	r.owners, r.origin, r.writer = 1, s, s
	r.handle = weak.Make(&w.storage)
	if r.device.live.sites {
		r.made = callsite.Here()
	}
	r.device.live.add(r)
	return w
}

// Alloc returns a storage of at least size bytes with undefined contents and one owner, the caller. Zero bytes take no
// memory. If there is no room, Alloc first reclaims dropped storages (see Reclaim); the error then matches
// mem.ErrNoMemory.
func (p *Place) Alloc(size int64) (*Storage, error) {
	w, err := p.alloc(size)
	if err != nil {
		return nil, err
	}
	return &w.storage, nil
}

// alloc is Alloc with room for a tensor.
func (p *Place) alloc(size int64) (*storageWithTensor, error) {
	if size < 0 {
		panic(fmt.Sprintf("tensor: Alloc of %d bytes", size))
	}
	h := p.state
	b, err := reclaimingAllocator{p}.Alloc(p.stream, size)
	if err != nil {
		return nil, err
	}
	r := &storageState{device: h, block: b, ptr: b.Ptr, size: size, visible: h.visible != nil && size > 0}
	if r.visible {
		if r.bytes, err = h.visible.Bytes(b.Ptr, size); err != nil {
			h.alloc.Free(b)
			return nil, fmt.Errorf("tensor: %v: %w", p, err)
		}
	}
	w := newStorageWithTensor(r, p.stream)
	if h.mover == nil || size == 0 || !h.mover.Movable(b, r) {
		r.fixed = true
	}
	return w, nil
}

// FromPointer returns a storage over size bytes of the device's memory at ptr, which the caller allocated by other
// means. The storage has one owner, the caller. The deleter, if not nil, is called when the last owner releases it.
// Several storages may cover the same memory, but each records only its own uses: the caller orders work that is queued
// on several streams.
func FromPointer(p *Place, ptr driver.Pointer, size int64, deleter Deleter) (*Storage, error) {
	if size < 0 || (ptr == 0 && size > 0) {
		return nil, fmt.Errorf("tensor: FromPointer: %d bytes at %#x are not a valid range", size, uint64(ptr))
	}
	r := &storageState{device: p.state, ptr: ptr, size: size, delete: deleter, fixed: true}
	if v := p.state.visible; v != nil && size > 0 {
		r.visible = true
		var err error
		if r.bytes, err = v.Bytes(ptr, size); err != nil {
			return nil, fmt.Errorf("tensor: FromPointer: %w", err)
		}
	}
	return newStorage(r, p.stream), nil
}

// FromBytes returns a storage over memory that Go code can access, a Go slice or a mapped file, without a copy. The
// place must be on the host. The storage uses the slice until the last owner releases it, and queued work may use it
// afterwards. The deleter, if not nil, is called at that release. Until then the slice may be written only through
// tensors. For several storages over one slice see FromPointer.
func FromBytes(p *Place, b []byte, deleter Deleter) (*Storage, error) {
	if p.state.visible == nil {
		return nil, fmt.Errorf("tensor: %v cannot use the host's memory in place: copy it there (FromSlice)", p)
	}
	r := &storageState{
		device: p.state, size: int64(len(b)), visible: b != nil, bytes: b[:len(b):len(b)],
		delete: deleter, fixed: true,
	}
	return newStorage(r, p.stream), nil
}

// Size returns the size of the storage in bytes.
func (s *Storage) Size() int64 { return s.state.size }

// BlockSize returns the bytes that the storage takes from its allocator: Size, rounded as the allocator rounds. It is 0
// for foreign and for empty memory.
func (s *Storage) BlockSize() int64 {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.block.Size
}

// Allocator returns the allocator that the memory came from, nil for foreign memory.
func (s *Storage) Allocator() mem.Allocator {
	if r := s.state; r.delete == nil && (r.block != (mem.Block{}) || r.size == 0) {
		return r.device.alloc
	}
	return nil
}

// Pointer returns the device address of the first byte, or 0 if the memory is Go's own or empty. After the call the
// allocator never moves the memory. It may have moved the block before, so call Tensor.Use after Pointer. It panics if
// the storage was released.
func (s *Storage) Pointer() driver.Pointer {
	ptr, _ := s.state.exposeAddress("Pointer")
	return ptr
}

// Bytes returns the memory itself if Go code can access it, and nil otherwise. After the call the memory never moves.
// Call Bytes first, and then wait for the work that writes the memory before reading it: a move before the call is such
// work. The slice is valid until the last owner's release, and the storage must stay reachable until then. Bytes panics
// if the storage was released.
func (s *Storage) Bytes() []byte {
	_, bytes := s.state.exposeAddress("Bytes")
	return bytes
}

// Owners returns the number of owners, 0 after the last release.
func (s *Storage) Owners() int {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.owners
}

// Retain adds an owner and returns s. It panics if the storage was released.
func (s *Storage) Retain() *Storage {
	s.state.retain()
	return s
}

// Release removes an owner. The last one frees the memory and passes to the allocator the streams that may still use
// it. It panics if there is no owner.
func (s *Storage) Release() {
	s.state.release(shortCallSite())
	runtime.KeepAlive(s)
}

// OnRelease adds a function to call after the last owner's release has freed the memory. Functions are called in the
// order in which they were added, with no lock held. It panics if the storage was released.
func (s *Storage) OnRelease(f func()) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.state.mustLive("OnRelease")
	s.state.onRelease = append(s.state.onRelease, f)
}

// ReleaseBlock passes the memory to the caller, who must be the only owner. The caller frees the block on the allocator
// of the place, with the streams returned, which may still use it. Later use of the storage panics, as after Release.
// It fails if there are other owners or the memory is foreign.
func (s *Storage) ReleaseBlock() (mem.Block, []driver.Stream, error) {
	defer runtime.KeepAlive(s) // see release
	r := s.state
	after, err := r.detachBlock(callsite.Here())
	if err != nil {
		return mem.Block{}, nil, err
	}
	r.device.live.remove(r)
	for _, f := range after {
		f()
	}
	return r.block, r.used, nil
}

// detachBlock removes the only owner without freeing the block, and returns the functions of OnRelease.
func (r *storageState) detachBlock(at *site) (after []func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustLive("ReleaseBlock")
	switch {
	case r.owners != 1:
		return nil, fmt.Errorf("tensor: ReleaseBlock of a storage with %d owners: want one", r.owners)
	case r.block == (mem.Block{}):
		return nil, errors.New("tensor: ReleaseBlock of memory that is not from an allocator")
	}
	r.owners, r.released = 0, at
	return r.onRelease, nil
}

// Weak returns a reference that does not keep the memory alive.
func (s *Storage) Weak() WeakStorage { return WeakStorage{s.state} }

// A WeakStorage is a reference to a storage that does not keep its memory alive. The zero value refers to no storage.
type WeakStorage struct{ state *storageState }

// Retain returns the storage with the caller as one more owner, or false if the storage was released or is unreachable.
func (w WeakStorage) Retain() (*Storage, bool) {
	if w.state == nil {
		return nil, false
	}
	w.state.mu.Lock()
	defer w.state.mu.Unlock()
	s := w.state.handle.Value() // nil once it is unreachable: then its memory may be reclaimed at any time
	if s == nil || w.state.owners == 0 {
		return nil, false
	}
	w.state.owners++
	return s, true
}

// Expired reports whether the memory was released.
func (w WeakStorage) Expired() bool {
	if w.state == nil {
		return true
	}
	w.state.mu.Lock()
	defer w.state.mu.Unlock()
	return w.state.owners == 0
}

func (r *storageState) retain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustLive("Retain")
	r.owners++
}

// mustLive panics if the storage was released. The caller holds r.mu and defers its Unlock.
func (r *storageState) mustLive(call string) {
	if r.owners == 0 {
		panic(fmt.Sprintf("tensor: %s at %v of a storage of %d bytes that was released at %v", call, callsite.Here(),
			r.size, r.released))
	}
}

// releasedAt returns the call site of the last release, or nil if there is still an owner.
func (r *storageState) releasedAt() *site {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.released
}

// release removes an owner, and frees the memory if it was the last. The caller keeps the Storage reachable until
// release returns: otherwise another goroutine that reclaims memory could free it too.
func (r *storageState) release(at *site) {
	if used, after, last := r.dropOwner(at); last {
		r.device.live.remove(r)
		r.free(used)
		for _, f := range after {
			f()
		}
	}
}

// dropOwner removes an owner. If it was the last it returns the streams that use the memory and the functions of
// OnRelease.
func (r *storageState) dropOwner(at *site) (used []driver.Stream, after []func(), last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustLive("Release")
	r.owners--
	if r.owners > 0 {
		return nil, nil, false
	}
	r.released = at
	return r.used, r.onRelease, true
}

// free frees the memory. The caller has removed r from the live storages, so that this happens once.
func (r *storageState) free(used []driver.Stream) {
	switch {
	case r.block != (mem.Block{}):
		r.device.alloc.Free(r.block, used...)
	case r.delete != nil:
		if r.origin != nil && !slices.Contains(used, r.origin) {
			used = append([]driver.Stream{r.origin}, used...)
		}
		r.delete(used...)
	}
}
