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
	"github.com/ashlar-go/ashlar/mem"
)

// A Storage is memory with owners: a block of an allocator, or memory from elsewhere with a deleter. Safe for concurrent
// use.
type Storage struct {
	// r is apart so that the ledger can know all of it without keeping the Storage from being dropped.
	r *record
}

// A Deleter gives back foreign memory. Work queued before on the streams in used may still touch it: a deleter that must
// not be early waits for them. It is called once, by whoever releases the last owner, with no lock held.
type Deleter func(used ...driver.Stream)

// A record is what there is to know of a storage.
type record struct {
	home   *home
	handle weak.Pointer[Storage]
	prev   *record // in the ledger, whose lock guards the two
	next   *record

	size    int64   // bytes
	visible bool    // bytes is there
	delete  Deleter // of foreign memory; may be nil
	made    *site   // nil unless sites are recorded

	holds atomic.Int32 // that keep the memory where it is; it rises under mu alone

	mu      sync.Mutex
	ptr     driver.Pointer // of the first byte; 0 of Go's own memory, and of no memory
	bytes   []byte         // the memory, where Go code can reach it
	block   mem.Block      // of the home's allocator; zero if foreign
	fixed   bool           // the memory stays where it is: nobody moves it, or its address was given away
	strong  int
	ended   *site           // where the count became zero
	after   []func()        // what OnRelease added
	origin  driver.Stream   // that the block was allocated for
	writer  driver.Stream   // the last that wrote, at first the origin
	seen    []driver.Stream // that wait for the last write already, or need not
	readers []driver.Stream // that read since
	used    []driver.Stream // other than the origin, since it was moved last
}

// A whole is a storage and the first tensor that looks into it, in one object: what most tensors are. It is large besides.
// Go keeps the weak pointers to objects that lie side by side in a list, and walks along it to make one: with a thousand
// storages of a word in a span that took 2 µs, with thirty of these it takes 0.1.
type whole struct {
	storage Storage
	tensor  Tensor
	dims    [16]int // its shape and its strides, if they fit
}

// newStorage returns a storage, entered in the ledger of its home. The count is one: the caller's.
func newStorage(r *record, s driver.Stream) *Storage { return &newWhole(r, s).storage }

// newWhole is newStorage with a tensor that is still to be made.
func newWhole(r *record, s driver.Stream) *whole {
	w := &whole{storage: Storage{r}}
	r.strong, r.origin, r.writer = 1, s, s
	r.handle = weak.Make(&w.storage)
	if r.home.ledger.sites {
		r.made = here()
	}
	r.home.ledger.enter(r)
	return w
}

// Alloc returns a storage of at least size bytes with undefined contents, owned once by the caller: Release it. Zero bytes
// take no memory. If there is no room, the memory of dropped storages is taken back first (see Leaks); the error then
// matches mem.ErrNoMemory.
func (p *Place) Alloc(size int64) (*Storage, error) {
	w, err := p.alloc(size)
	if err != nil {
		return nil, err
	}
	return &w.storage, nil
}

// alloc is Alloc with a tensor that is still to be made.
func (p *Place) alloc(size int64) (*whole, error) {
	if size < 0 {
		panic(fmt.Sprintf("tensor: Alloc of %d bytes", size))
	}
	h := p.home
	b, err := thrifty{p}.Alloc(p.stream, size)
	if err != nil {
		return nil, err
	}
	r := &record{home: h, block: b, ptr: b.Ptr, size: size, visible: h.visible != nil && size > 0}
	if r.visible {
		if r.bytes, err = h.visible.Bytes(b.Ptr, size); err != nil {
			h.alloc.Free(b)
			return nil, fmt.Errorf("tensor: %v: %w", p, err)
		}
	}
	w := newWhole(r, p.stream)
	if h.mover == nil || size == 0 || !h.mover.Movable(b, r) {
		r.fixed = true
	}
	return w, nil
}

// FromPointer returns a storage over size bytes of the device's memory at ptr that somebody else allocated, owned once by
// the caller. The deleter, if not nil, is called when the last owner is gone. Several storages may be over the same
// memory, but none knows of the others' work: where that is queued on several streams, the caller orders it.
func FromPointer(p *Place, ptr driver.Pointer, size int64, deleter Deleter) (*Storage, error) {
	if size < 0 || (ptr == 0 && size > 0) {
		return nil, fmt.Errorf("tensor: FromPointer: %d bytes at %#x are no memory", size, uint64(ptr))
	}
	r := &record{home: p.home, ptr: ptr, size: size, delete: deleter, fixed: true}
	if v := p.home.visible; v != nil && size > 0 {
		r.visible = true
		var err error
		if r.bytes, err = v.Bytes(ptr, size); err != nil {
			return nil, fmt.Errorf("tensor: FromPointer: %w", err)
		}
	}
	return newStorage(r, p.stream), nil
}

// FromBytes returns a storage over memory that Go code can reach, a Go slice or a mapped file, without a copy. The place's
// device must be the host. The slice is used as long as the storage is owned, and by work queued until then; the deleter,
// if not nil, is called when the last owner is gone. Nobody may write to it meanwhile but through tensors. Several
// storages over one slice: see FromPointer.
func FromBytes(p *Place, b []byte, deleter Deleter) (*Storage, error) {
	if p.home.visible == nil {
		return nil, fmt.Errorf("tensor: %v cannot use the host's memory in place: copy it there (FromSlice)", p)
	}
	r := &record{home: p.home, size: int64(len(b)), visible: b != nil, bytes: b[:len(b):len(b)], delete: deleter, fixed: true}
	return newStorage(r, p.stream), nil
}

// Size returns the bytes of the storage.
func (s *Storage) Size() int64 { return s.r.size }

// Pointer returns the device address of the first byte; 0 if it is Go's own memory or none. From then on an allocator that
// moves blocks leaves this one where it is; until then it may have moved it, so who uses the address calls Tensor.Use after
// asking for it. It panics if there is no owner.
func (s *Storage) Pointer() driver.Pointer {
	ptr, _ := s.r.giveAway("Pointer")
	return ptr
}

// Bytes returns the memory itself where Go code can reach it, else nil. Who looks waits first for the work that writes it:
// after asking for the slice, since the memory stays where it is from then on, and moving it is such work. The slice is good
// until the last owner is gone, and the storage must not be dropped meanwhile. It panics if there is no owner.
func (s *Storage) Bytes() []byte {
	_, bytes := s.r.giveAway("Bytes")
	return bytes
}

// Owners returns the count of owners; 0 of a storage that is gone.
func (s *Storage) Owners() int {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.r.strong
}

// Retain adds an owner. It panics if there is none left.
func (s *Storage) Retain() *Storage {
	s.r.retain()
	return s
}

// Release takes an owner away. With the last one the memory is given back: the allocator is told which streams may still
// use it. It panics if there is none.
func (s *Storage) Release() {
	s.r.release(nearby())
	runtime.KeepAlive(s)
}

// OnRelease has f called when the last owner is gone, after the memory was given back; several in the order in which they
// were added. No lock is held. It panics if there is no owner.
func (s *Storage) OnRelease(f func()) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.mustLive("OnRelease")
	s.r.after = append(s.r.after, f)
}

// ReleaseBlock gives the memory to the caller, who must be the only owner: the block is the caller's to free, on the
// allocator that the storage came from, with the streams that still use it. Later use of the storage panics, as after
// Release. The error says why not: there are other owners, or the memory is foreign.
func (s *Storage) ReleaseBlock() (mem.Block, []driver.Stream, error) {
	defer runtime.KeepAlive(s) // see release
	r := s.r
	after, err := r.giveUp(here())
	if err != nil {
		return mem.Block{}, nil, err
	}
	r.home.ledger.leave(r)
	for _, f := range after {
		f()
	}
	return r.block, r.used, nil
}

// giveUp takes the only owner away, who keeps the memory, and returns what is to be called then.
func (r *record) giveUp(at *site) (after []func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustLive("ReleaseBlock")
	switch {
	case r.strong != 1:
		return nil, fmt.Errorf("tensor: ReleaseBlock of a storage with %d owners: want one", r.strong)
	case r.block == (mem.Block{}):
		return nil, errors.New("tensor: ReleaseBlock of memory that no allocator gave")
	}
	r.strong, r.ended = 0, at
	return r.after, nil
}

// Weak returns a reference that does not keep the memory.
func (s *Storage) Weak() WeakStorage { return WeakStorage{s.r} }

// A WeakStorage is a reference to a storage that does not keep its memory. The zero value refers to none.
type WeakStorage struct{ r *record }

// Retain returns the storage with one more owner, the caller, or false if the memory is gone.
func (w WeakStorage) Retain() (*Storage, bool) {
	if w.r == nil {
		return nil, false
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	s := w.r.handle.Value() // nil once it was dropped: then its memory may be taken back at any time
	if s == nil || w.r.strong == 0 {
		return nil, false
	}
	w.r.strong++
	return s, true
}

// Expired reports whether the memory is gone.
func (w WeakStorage) Expired() bool {
	if w.r == nil {
		return true
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.strong == 0
}

func (r *record) retain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustLive("Retain")
	r.strong++
}

// mustLive panics if the memory is gone. r.mu is held by a caller that defers its Unlock.
func (r *record) mustLive(call string) {
	if r.strong == 0 {
		panic(fmt.Sprintf("tensor: %s at %v of a storage of %d bytes that was released at %v", call, here(), r.size, r.ended))
	}
}

// gone returns where the memory was released, or nil if it was not.
func (r *record) gone() *site {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// release takes an owner away, and the memory with the last. The caller keeps the Storage reachable until it returns: else
// another goroutine that is short of memory might find it dropped, and release it too.
func (r *record) release(at *site) {
	if used, after, last := r.drop(at); last {
		r.home.ledger.leave(r)
		r.giveBack(used)
		for _, f := range after {
			f()
		}
	}
}

// drop takes an owner away, and if it was the last returns what its end concerns.
func (r *record) drop(at *site) (used []driver.Stream, after []func(), last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustLive("Release")
	r.strong--
	if r.strong > 0 {
		return nil, nil, false
	}
	r.ended = at
	return r.used, r.after, true
}

// giveBack frees the memory. The record has left the ledger, so nobody else does.
func (r *record) giveBack(used []driver.Stream) {
	switch {
	case r.block != (mem.Block{}):
		r.home.alloc.Free(r.block, used...)
	case r.delete != nil:
		if r.origin != nil && !slices.Contains(used, r.origin) {
			used = append([]driver.Stream{r.origin}, used...)
		}
		r.delete(used...)
	}
}

// use orders work on s after what it must not overtake: see Tensor.Use.
func (r *record) use(s driver.Stream, writes bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.order(s, writes); err != nil {
		return err
	}
	if r.fixed || r.home.graphs == nil {
		return nil
	}
	// A graph has the address for good. Asked now, since what s waits for may have drawn it into a capture.
	captures, err := r.home.graphs.Capturing(s)
	r.fixed = captures
	return err
}

// order is use without a look at captures. r.mu is held.
func (r *record) order(s driver.Stream, writes bool) error {
	if s == r.writer && (!writes || len(r.readers) == 0) {
		return nil
	}
	// The writer may have read since s saw its write, and no list has that.
	if known := slices.Contains(r.seen, s); s != r.writer && (writes || !known) {
		if err := follow(s, r.writer); err != nil {
			return err
		}
		if !known {
			r.seen = append(r.seen, s)
		}
	}
	if s != r.origin && !slices.Contains(r.used, s) {
		r.used = append(r.used, s)
	}
	if !writes {
		if s != r.writer && !slices.Contains(r.readers, s) {
			r.readers = append(r.readers, s)
		}
		return nil
	}
	for _, reader := range r.readers {
		if reader != s {
			if err := follow(s, reader); err != nil {
				return err
			}
		}
	}
	r.writer, r.seen, r.readers = s, r.seen[:0], r.readers[:0]
	return nil
}

// follow makes s wait for the work queued on other so far. A stream that is closed has done its work.
func follow(s, other driver.Stream) error {
	m, err := other.Mark()
	if err == nil {
		err = s.WaitFor(other, m)
	}
	if errors.Is(err, driver.ErrClosed) {
		if _, own := s.Mark(); own == nil {
			return nil
		}
	}
	return err
}
