package layer

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/zeroed"
)

// A Slabs allocator cuts blocks of one size from slabs. See NewSlabs.
type Slabs struct {
	inner mem.Allocator
	size  int64 // of a piece
	count int64 // pieces of a slab
	blockTable[slabPiece]
	shards [tableShards]slabShard // by stream
}

type slabShard struct {
	mu      sync.Mutex
	streams [][]*slab // the open slabs of stream shard + n*tableShards; emptied from the end
	_       [80]byte
}

// A slab is a block that is cut into pieces. Its stream's shard guards it.
type slab struct {
	block   mem.Block
	stream  driver.Stream   // the stream itself, because its number may be reused once it is closed
	free    []uint32        // free pieces; the last one is allocated first
	live    int64           // pieces
	users   []driver.Stream // streams that used freed pieces
	retired bool            // not open: another stream now has its stream's ID
}

// A slabPiece identifies a block: a piece of a slab or, if the slab is nil, a block of the allocator below.
type slabPiece struct {
	slab  *slab
	piece uint32
}

// NewSlabs returns an allocator that serves requests of at most size bytes with pieces of exactly that size, and passes
// larger requests on to a. The pieces are cut from slabs: blocks of a with count pieces each. It is RMM's
// fixed_size_memory_resource, per stream. All pieces have one size, so only whole slabs fragment. Pieces are aligned if
// size is a multiple of a's alignment. NewSlabs panics if size or count is not positive, if their product overflows an
// int64, and if there is a Zeroer below.
//
// Slabs ignores captures: pieces of one slab may serve a graph and other work in turn. Captured work must allocate from
// the allocator below, where its requests go to a pool of their own.
//
// Slabs without live pieces are kept. They are freed by EmptyCache and when a has no room for a request. A slab of
// which other streams used pieces is freed at once: a then waits for those streams. A warm call takes two short locks,
// each shared by an eighth of the streams.
func NewSlabs(a mem.Allocator, size, count int64) *Slabs {
	if size <= 0 || count <= 0 || count > 1<<24 || size > 1<<62/count {
		panic(fmt.Sprintf("layer: Slabs of %d pieces of %d bytes", count, size))
	}
	if _, zeroes := mem.Find[zeroed.By](a); zeroes {
		panic(fmt.Sprint("layer: NewSlabs: ", zeroed.Err))
	}
	return &Slabs{inner: a, size: size, count: count, blockTable: blockTable[slabPiece]{name: "Slab"}}
}

// Alloc implements mem.Allocator. The error is that of the allocator below.
func (x *Slabs) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return x.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry no slabs are freed to make room. A request with FreedBefore
// goes to the allocator below regardless of its size, since the times at which pieces were freed are not known. So does
// a request with a Key, since pieces belong to no pool.
func (x *Slabs) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("layer: Slabs: Alloc", s)
	size, o = o.Rounded(size)
	id := s.ID()
	if size <= 0 || size > x.size || o.FreedBefore != nil || o.Key != nil {
		b, err := x.ask(s, size, o)
		if err != nil || b.Ptr == 0 {
			return mem.Block{}, err
		}
		return x.add(id, size, b, b, slabPiece{}), nil
	}
	shard := &x.shards[id%tableShards]
	shard.mu.Lock()
	for sl := shard.retire(s); sl != nil; sl = shard.retire(s) {
		shard.mu.Unlock()
		x.inner.Free(sl.block)
		shard.mu.Lock()
	}
	open := shard.open(id)
	if len(*open) == 0 {
		shard.mu.Unlock()
		b, err := x.ask(s, x.size*x.count, o)
		if err != nil {
			return mem.Block{}, err
		}
		fresh := &slab{block: b, stream: s, free: make([]uint32, x.count)}
		for i := range fresh.free {
			fresh.free[i] = uint32(x.count) - 1 - uint32(i)
		}
		shard.mu.Lock()
		open = shard.open(id)
		*open = append(*open, fresh)
	}
	sl := (*open)[len(*open)-1]
	n := len(sl.free) - 1
	piece := sl.free[n]
	sl.free, sl.live = sl.free[:n], sl.live+1
	if n == 0 {
		*open = (*open)[:len(*open)-1]
	}
	shard.mu.Unlock()
	b := mem.Block{Ptr: sl.block.Ptr + driver.Pointer(int64(piece)*x.size), Size: x.size}
	return x.add(id, size, b, mem.Block{}, slabPiece{sl, piece}), nil
}

// open returns the list of a stream's open slabs. The caller holds mu.
func (h *slabShard) open(id driver.StreamID) *[]*slab {
	at := int(id / tableShards)
	for at >= len(h.streams) {
		h.streams = append(h.streams, nil)
	}
	return &h.streams[at]
}

// retire removes slabs of other streams with the number of s from the end of the list, so that s gets none of their
// pieces: to the allocator below they belong to another stream. It returns a slab that must be freed below, or nil if
// there is none. The caller holds mu.
func (h *slabShard) retire(s driver.Stream) *slab {
	open := h.open(s.ID())
	for n := len(*open) - 1; n >= 0 && (*open)[n].stream != s; n-- {
		sl := (*open)[n]
		*open = (*open)[:n]
		if sl.retired = true; sl.live == 0 {
			return sl
		}
	}
	return nil
}

// ask allocates a block below, if necessary after freeing the slabs without live pieces.
func (x *Slabs) ask(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if !o.NoRetry {
		tentative := o
		tentative.Tentative = true
		b, err := mem.AllocWith(x.inner, s, size, tentative)
		if err == nil || !errors.Is(err, mem.ErrNoMemory) {
			return b, err
		}
		x.flush()
	}
	return mem.AllocWith(x.inner, s, size, o)
}

// Free implements mem.Allocator.
func (x *Slabs) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	rec := x.remove(b, used)
	sl := rec.value.slab
	if sl == nil {
		x.inner.Free(rec.below, used...)
		return
	}
	id := sl.stream.ID()
	shard := &x.shards[id%tableShards]
	shard.mu.Lock()
	spent := sl.retired
	for _, u := range used {
		if u == sl.stream {
			continue
		}
		if spent = true; !slices.Contains(sl.users, u) {
			sl.users = append(sl.users, u)
		}
	}
	open := shard.open(id)
	sl.live--
	if !spent {
		if sl.free = append(sl.free, rec.value.piece); len(sl.free) == 1 {
			*open = append(*open, sl)
		}
	}
	back := sl.live == 0 && (sl.retired || len(sl.users) > 0)
	if back {
		*open = slices.DeleteFunc(*open, func(o *slab) bool { return o == sl })
	}
	shard.mu.Unlock()
	if back {
		x.inner.Free(sl.block, sl.users...)
	}
}

// flush frees the slabs without live pieces to the allocator below.
func (x *Slabs) flush() {
	var idle []*slab
	for i := range x.shards {
		shard := &x.shards[i]
		shard.mu.Lock()
		for j, open := range shard.streams {
			shard.streams[j] = slices.DeleteFunc(open, func(sl *slab) bool {
				if sl.live > 0 {
					return false
				}
				idle = append(idle, sl)
				return true
			})
		}
		shard.mu.Unlock()
	}
	for _, sl := range idle {
		x.inner.Free(sl.block)
	}
}

// EmptyCache implements mem.Trimmer. It frees the slabs without live pieces, and then empties the caches of the layers
// below.
func (x *Slabs) EmptyCache() error {
	x.flush()
	return emptyCaches(x.inner)
}

// Unwrap implements mem.Wrapper. Reports found below count slabs as blocks. Slabs is no Mover: pieces stay in their
// slabs.
func (x *Slabs) Unwrap() mem.Allocator { return x.inner }
