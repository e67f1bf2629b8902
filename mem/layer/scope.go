package layer

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A Scope hands out the blocks of another allocator and frees, when it is closed, those that are still on loan then. It
// is BMEngine's MemoryGuard, for any number of blocks:
//
//	s := layer.NewScope(a)
//	defer s.Close()
//	b, err := s.Alloc(stream, size) // any return from here on, or a panic, frees b
//
// A Scope is an Allocator, so that what takes one can be given a scope; scopes nest. Its blocks are its own: they are
// freed through it, or taken out with Keep. Safe for concurrent use.
//
// Each block has a record, found from its tag, in a list in the order of allocation: no call looks at other blocks. The
// scope's lock is a leaf, not held while the allocator below, or a Holder, is called.
type Scope struct {
	inner mem.Allocator

	mu      sync.Mutex
	moved   sync.Cond    // a lifted block has landed
	entries []scopeEntry // by number; loans[0] begins and ends the list
	unused  []uint32     // numbers
	closed  bool
}

// A scopeLoan is a block on loan from a scope.
type scopeEntry struct {
	block      mem.Block // as the allocator below knows it
	used       []driver.Stream
	holder     *scopeHolder
	moving     bool   // it is being moved
	generation uint32 // odd while on loan; the block's tag holds the value of its loan
	prev       uint32 // allocated before it
	next       uint32
}

// NewScope returns a scope over an allocator, which it does not close.
func NewScope(a mem.Allocator) *Scope {
	s := &Scope{inner: a, entries: make([]scopeEntry, 1)}
	s.moved.L = &s.mu
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
	var at uint32
	if n := len(s.unused); n > 0 {
		at, s.unused = s.unused[n-1], s.unused[:n-1]
	} else {
		at = uint32(len(s.entries))
		s.entries = append(s.entries, scopeEntry{})
	}
	l, end := &s.entries[at], &s.entries[0]
	l.block, l.generation = b, l.generation+1
	l.prev, l.next = end.prev, 0
	s.entries[end.prev].next = at
	end.prev = at
	return l.lend(at), nil
}

func panicScopeClosed(size int64) {
	panic(fmt.Sprintf("layer: Scope: Alloc of %d bytes after Close", size))
}

// lend returns the block as the scope's borrower knows it.
func (l *scopeEntry) lend(at uint32) mem.Block {
	return mem.Block{Ptr: l.block.Ptr, Size: l.block.Size, Tag: uint64(l.generation)<<32 | uint64(at)}
}

// find returns the record of a block on loan, and panics if there is none. The caller holds mu, and frees it deferred.
func (s *Scope) find(call string, b mem.Block) (at uint32, l *scopeEntry) {
	if at = uint32(b.Tag); at > 0 && uint64(at) < uint64(len(s.entries)) {
		if l = &s.entries[at]; l.generation%2 == 1 && l.lend(at) == b && !l.moving {
			return at, l
		}
	}
	panic(fmt.Sprintf("layer: Scope: %s of a block that is not on loan from this scope (address %#x, %d bytes): "+
		"it was freed or kept already, is being moved, or came from elsewhere", call, uint64(b.Ptr), b.Size))
}

// take ends a loan. The caller holds mu.
func (s *Scope) take(at uint32) (mem.Block, []driver.Stream) {
	l := &s.entries[at]
	s.entries[l.prev].next, s.entries[l.next].prev = l.next, l.prev
	b, used := l.block, l.used
	*l = scopeEntry{generation: l.generation + 1}
	s.unused = append(s.unused, at)
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
		used = append(remembered, used...) // the loan is over: nobody else has the slice
	}
	s.inner.Free(below, used...)
}

// Use remembers that work on these streams uses b, for when it is freed: by Close, which nobody else could tell. Naming
// a stream again changes nothing. The zero Block is nobody's.
func (s *Scope) Use(b mem.Block, streams ...driver.Stream) {
	check.Used("layer: Scope: Use", streams)
	if b == (mem.Block{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, l := s.find("Use", b)
	for _, stream := range streams {
		l.use(stream)
	}
}

func (l *scopeEntry) use(s driver.Stream) {
	if !slices.Contains(l.used, s) {
		l.used = append(l.used, s)
	}
}

// Keep takes b out of the scope, which does not free it any more. The block that it returns is the same memory as the
// allocator below knows it: free it there, and tell that Free of the streams that were remembered, which come with it.
// The zero Block stays what it is.
func (s *Scope) Keep(b mem.Block) (kept mem.Block, used []driver.Stream) {
	if b == (mem.Block{}) {
		return b, nil
	}
	return s.end("Keep", b, true)
}

// end takes the record of a block out, and returns what the allocator below has to be told.
func (s *Scope) end(call string, b mem.Block, keep bool) (mem.Block, []driver.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, l := s.find(call, b)
	if keep && l.holder != nil {
		l.holder.kept = true
	}
	return s.take(at)
}

// Close frees the blocks on loan, the last one allocated first, each as though Free were told of the streams that Use
// named. It waits for blocks that are being moved. Closing twice is nothing; blocks that others free meanwhile are
// theirs. If the allocator below panics, another Close goes on with the rest.
func (s *Scope) Close() {
	s.mu.Lock()
	s.closed = true // from now on no block is lifted
	for {
		last := s.entries[0].prev
		if last == 0 {
			break
		}
		if s.entries[last].moving {
			s.moved.Wait()
			continue
		}
		b, used := s.take(last)
		s.mu.Unlock()
		s.inner.Free(b, used...)
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// Unwrap implements mem.Wrapper.
func (s *Scope) Unwrap() mem.Allocator { return s.inner }

// Movable implements mem.Mover. h hears of the block as the scope's borrower knows it, or, after Keep, as the allocator
// below does. While the scope is being closed its blocks stay where they are.
func (s *Scope) Movable(b mem.Block, h mem.Holder) bool {
	if b == (mem.Block{}) {
		return false
	}
	k := s.follow(b, h)
	if !mem.Movable(s.inner, k.below, k) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.live() {
		s.entries[k.at].holder = k
	}
	return true
}

func (s *Scope) follow(b mem.Block, h mem.Holder) *scopeHolder {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, l := s.find("Movable", b)
	return &scopeHolder{scope: s, at: at, generation: l.generation, holder: h, below: l.block}
}

// A scopeHolder stands between the allocator below, which moves a block, and its holder, so that the scope follows.
type scopeHolder struct {
	scope      *Scope
	holder     mem.Holder
	at         uint32    // number of the loan
	generation uint32    // that it has had, while this is its block
	below      mem.Block // as the allocator below knows it
	kept       bool      // the block was taken out of the scope
}

// onLoan reports whether the block is the scope's still. The caller holds scope.mu.
func (k *scopeHolder) live() bool { return k.scope.entries[k.at].generation == k.generation }

// BeginMove implements mem.Holder. It adds the streams that the scope remembers.
func (k *scopeHolder) BeginMove() ([]driver.Stream, bool) {
	used, ok := k.holder.BeginMove()
	if !ok {
		return nil, false
	}
	s := k.scope
	s.mu.Lock()
	switch l := &s.entries[k.at]; {
	case k.kept:
	case k.live() && !s.closed:
		l.moving = true
		used = slices.Concat(used, l.used)
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
		if l := &s.entries[k.at]; k.live() {
			l.block, l.moving = b, false
			if stream != nil {
				l.use(stream) // Close may come before anything waits for it
			}
			s.moved.Broadcast()
		}
		b.Tag = uint64(k.generation)<<32 | uint64(k.at)
	}
	s.mu.Unlock()
	k.holder.EndMove(b, stream)
}
