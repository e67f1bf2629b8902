package layer

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/internal/slots"
	"github.com/ashlar-go/ashlar/mem"
)

// A Scope allocates blocks from another allocator and frees, when it is closed, those that are still live. It is like
// BMEngine's MemoryGuard, for any number of blocks:
//
//	s := layer.NewScope(a)
//	defer s.Close()
//	b, err := s.Alloc(stream, size) // any return from here on, or a panic, frees b
//
// A Scope is an Allocator, so functions that take one can be passed a scope; scopes nest. Its blocks are freed through
// the scope, or taken out of it with Keep. It is safe for concurrent use.
type Scope struct {
	inner mem.Allocator

	mu      sync.Mutex // a leaf: not held while the allocator below or a Holder is called
	moved   sync.Cond  // a move ended
	entries slots.Table[scopeEntry]
	list    uint64 // tag of an entry without a block, the head of a ring of all entries in the order of allocation
	closed  bool
}

// A scopeEntry is a live block of a scope. Its tag is the tag of the block that the scope returned.
type scopeEntry struct {
	block      mem.Block // as the allocator below returned it
	used       []driver.Stream
	holder     *scopeHolder
	moving     bool   // between BeginMove and EndMove
	prev, next uint64 // tags of the blocks allocated before and after it
}

// NewScope returns a scope over an allocator, which it does not close.
func NewScope(a mem.Allocator) *Scope {
	s := &Scope{inner: a}
	s.moved.L = &s.mu
	tag, head := s.entries.Add()
	s.list, head.prev, head.next = tag, tag, tag
	return s
}

// Alloc implements mem.Allocator. It panics after Close.
func (s *Scope) Alloc(stream driver.Stream, size int64) (mem.Block, error) {
	return s.AllocWith(stream, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (s *Scope) AllocWith(stream driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		panicScopeClosed(size)
	}
	b, err := mem.AllocWith(s.inner, stream, size, o)
	if err != nil || b.Ptr == 0 {
		return b, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.inner.Free(b)
		panicScopeClosed(size)
	}
	defer s.mu.Unlock()
	tag, e := s.entries.Add()
	head := s.entries.Get(s.list)
	e.block, e.prev, e.next = b, head.prev, s.list
	s.entries.Get(head.prev).next = tag
	head.prev = tag
	b.Tag = tag
	return b, nil
}

func panicScopeClosed(size int64) {
	panic(fmt.Sprintf("layer: Scope: Alloc of %d bytes after Close", size))
}

// find returns the entry of a live block, and panics if there is none. The caller holds mu, and unlocks it deferred.
func (s *Scope) find(call string, b mem.Block) *scopeEntry {
	e := s.entries.Get(b.Tag)
	if e == nil || b.Tag == s.list || e.block.Ptr != b.Ptr || e.block.Size != b.Size || e.moving {
		panic(fmt.Sprintf("layer: Scope: %s of a block that is not live in this scope (address %#x, %d bytes): "+
			"it was freed or kept already, is being moved, or came from elsewhere", call, uint64(b.Ptr), b.Size))
	}
	return e
}

// remove removes a block. It returns the block of the allocator below, and the streams that Use named. The caller holds
// mu.
func (s *Scope) remove(tag uint64) (mem.Block, []driver.Stream) {
	e := s.entries.Get(tag)
	s.entries.Get(e.prev).next, s.entries.Get(e.next).prev = e.next, e.prev
	b, used := e.block, e.used
	s.entries.Remove(tag)
	return b, used
}

// Free implements mem.Allocator. The streams that Use named for the block count as named here.
func (s *Scope) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	check.Used("layer: Scope: Free", used)
	below, remembered := s.end("Free", b, false)
	if len(remembered) > 0 {
		used = append(remembered, used...) // the entry is gone: the slice has no other user
	}
	s.inner.Free(below, used...)
}

// Use records that work on these streams uses b. Close and Free then free b as if these streams were passed to them.
// Naming a stream again is a no-op. The zero Block is ignored.
func (s *Scope) Use(b mem.Block, streams ...driver.Stream) {
	check.Used("layer: Scope: Use", streams)
	if b == (mem.Block{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find("Use", b)
	for _, stream := range streams {
		e.use(stream)
	}
}

func (e *scopeEntry) use(s driver.Stream) {
	if !slices.Contains(e.used, s) {
		e.used = append(e.used, s)
	}
}

// Keep takes b out of the scope, which then no longer frees it. It returns the same memory as a block of the allocator
// below, which must be freed there, and the streams that Use named, which must be passed to that Free. The zero Block
// is returned unchanged.
func (s *Scope) Keep(b mem.Block) (kept mem.Block, used []driver.Stream) {
	if b == (mem.Block{}) {
		return b, nil
	}
	return s.end("Keep", b, true)
}

// end removes a block that is freed or kept.
func (s *Scope) end(call string, b mem.Block, keep bool) (mem.Block, []driver.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(call, b)
	if keep && e.holder != nil {
		e.holder.kept = true
	}
	return s.remove(b.Tag)
}

// Close frees the live blocks, the last one allocated first, each with the streams that Use named. It waits for blocks
// that are being moved. Closing twice is a no-op; blocks that other goroutines free at the same time are freed once. If
// the allocator below panics, another Close continues with the remaining blocks.
func (s *Scope) Close() {
	s.mu.Lock()
	s.closed = true // from now on BeginMove refuses
	for {
		tag := s.entries.Get(s.list).prev
		if tag == s.list {
			break
		}
		if s.entries.Get(tag).moving {
			s.moved.Wait()
			continue
		}
		b, used := s.remove(tag)
		s.mu.Unlock()
		s.inner.Free(b, used...)
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// Unwrap implements mem.Wrapper.
func (s *Scope) Unwrap() mem.Allocator { return s.inner }

// Movable implements mem.Mover. EndMove of h receives the scope's block or, after Keep, the block of the allocator
// below. While the scope is being closed, its blocks are not moved.
func (s *Scope) Movable(b mem.Block, h mem.Holder) bool {
	if b == (mem.Block{}) {
		return false
	}
	k := s.newHolder(b, h)
	if !mem.Movable(s.inner, k.below, k) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries.Get(k.tag); e != nil {
		e.holder = k
	}
	return true
}

func (s *Scope) newHolder(b mem.Block, h mem.Holder) *scopeHolder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &scopeHolder{scope: s, tag: b.Tag, holder: h, below: s.find("Movable", b).block}
}

// A scopeHolder is the holder that the allocator below calls when it moves a block. It updates the entry and calls the
// block's own holder.
type scopeHolder struct {
	scope  *Scope
	holder mem.Holder
	tag    uint64
	below  mem.Block // the block of the allocator below
	kept   bool      // the block was taken out of the scope
}

// BeginMove implements mem.Holder. It adds the streams that Use named.
func (k *scopeHolder) BeginMove() ([]driver.Stream, bool) {
	used, ok := k.holder.BeginMove()
	if !ok {
		return nil, false
	}
	s := k.scope
	s.mu.Lock()
	switch e := s.entries.Get(k.tag); {
	case k.kept:
	case e != nil && !s.closed:
		e.moving = true
		used = slices.Concat(used, e.used)
	default: // it is being freed
		ok = false
	}
	s.mu.Unlock()
	if !ok {
		k.EndMove(k.below, nil)
		return nil, false
	}
	return used, true
}

// EndMove implements mem.Holder.
func (k *scopeHolder) EndMove(b mem.Block, stream driver.Stream) {
	s := k.scope
	s.mu.Lock()
	k.below = b
	if !k.kept {
		if e := s.entries.Get(k.tag); e != nil {
			e.block, e.moving = b, false
			if stream != nil {
				e.use(stream) // Close may free the block before other work waits for the move
			}
			s.moved.Broadcast()
		}
		b.Tag = k.tag
	}
	s.mu.Unlock()
	k.holder.EndMove(b, stream)
}
