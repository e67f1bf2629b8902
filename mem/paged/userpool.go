package paged

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A Pool is memory of its own within an allocator: pages that serve no other requests. It is PyTorch's
// torch.cuda.MemPool. Requests go to it while one of its scopes is open (Begin, Use), and when they are made to the
// Pool itself, which is an allocator too. It is safe for concurrent use.
//
// Its idle pages are freed by its EmptyCache and by Close. Allocator.EmptyCache and requests to other pools do not free
// them. As long as captured graphs use the pool (BeginAllocateToPool with its ID), none of its memory is freed.
//
// Interfaces that mem.Find finds beyond Allocator, Trimmer and Snapshotter are those of the whole allocator.
type Pool struct {
	a    *Allocator
	pool *privatePool
}

// PoolOptions are the options of a Pool.
type PoolOptions struct {
	// UseOnOOM lets requests to the default pool for which there is no memory left take memory of this pool. The blocks
	// return to the pool when they are freed. While captured graphs use the pool it lends no blocks: their launches
	// write to its free memory.
	UseOnOOM bool
	// NoSplit makes the pool allocate whole free blocks only, however small the request, and give each new block pages
	// of its own. The pages of free blocks stay where they are.
	NoSplit bool
	// ID is the pool's ID. The zero ID is a new one, (0, n); no other pool may have this one.
	ID mem.PoolID
}

// ErrPoolClosed is returned by requests to a closed Pool.
var ErrPoolClosed = errors.New("paged: the pool is closed")

// NewPool returns a pool without memory. Close it when it is no longer needed. It panics if there is a pool with the ID
// of the options.
func (a *Allocator) NewPool(o PoolOptions) *Pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := o.ID
	if id != (mem.PoolID{}) && a.private[id] != nil {
		panic(fmt.Sprintf("paged: NewPool: there is a pool %v already", id))
	}
	for id == (mem.PoolID{}) || a.private[id] != nil { // the ID was chosen for BeginAllocateToPool
		id = mem.NewPoolID()
	}
	pp := newPrivatePool(id)
	pp.useCount, pp.own, pp.noSplit = 1, 1, o.NoSplit
	if o.UseOnOOM {
		a.overflow = append(a.overflow, pp)
	}
	a.private[id] = pp
	return &Pool{a, pp}
}

// Pool returns the private pool with an ID, for requests to it without a scope, or nil if there is none. It adds no
// user: only the Pool that NewPool returned is to be closed.
func (a *Allocator) Pool(id mem.PoolID) *Pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pp := a.private[id]; pp != nil {
		return &Pool{a, pp}
	}
	return nil
}

// ID returns the pool's ID. If NewPool chose it, it is (0, n), and n is larger than that of any pool for which it was
// chosen before in the process.
func (p *Pool) ID() mem.PoolID { return p.pool.id }

// UseCount returns the number of users that keep the pool: the Pool of NewPool until it is closed, each open scope, and
// each BeginAllocateToPool and RetainPool with its ID without a matching ReleasePool.
func (p *Pool) UseCount() int {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.pool.useCount
}

// Alloc is Allocator.Alloc from this pool. It fails with ErrPoolClosed after Close.
func (p *Pool) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return p.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith is Alloc with options: see Allocator.AllocWith.
func (p *Pool) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	if size <= 0 || size > tooLarge || s == nil {
		return p.a.AllocWith(s, size, o)
	}
	check.Stream("paged: Alloc", s)
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.pool.closed {
		return mem.Block{}, ErrPoolClosed
	}
	return p.a.allocShared(s, s.ID(), size, &o, p.pool)
}

// Free frees a block of this pool, also after Close, and also a block that the default pool has borrowed from it.
// Allocator.Free accepts all these blocks too. It panics as Allocator.Free does, and if the block belongs to another
// pool.
func (p *Pool) Free(b mem.Block, used ...driver.Stream) {
	if b != (mem.Block{}) {
		_, sp := p.a.spans.find(b)
		p.a.mu.Lock()
		s := p.a.spaceOf(sp)
		p.a.mu.Unlock()
		if s != &p.pool.space && sp.allocated {
			panic(fmt.Sprintf("paged: Free through pool %v of a block of pool %v (address %#x, %d bytes)", p.pool.id,
				s.id(), uint64(b.Ptr), b.Size))
		}
	}
	p.a.Free(b, used...)
}

// Unwrap returns the allocator that the pool is part of.
func (p *Pool) Unwrap() mem.Allocator { return p.a }

// Snapshot describes the memory of the pool, in address order: see Allocator.Snapshot.
func (p *Pool) Snapshot() []mem.SegmentInfo {
	return slices.DeleteFunc(p.a.Snapshot(), func(s mem.SegmentInfo) bool { return s.Pool != p.pool.id })
}

// Reserved returns the bytes of the pool's pages.
func (p *Pool) Reserved() mem.StatArray {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.pool.stats()
}

// EmptyCache waits for the work queued on the pool's idle pages and frees them. It does nothing while a graph is being
// captured or captured graphs use the pool: they use its free memory. The error is the driver's; memory that was not
// freed stays idle.
func (p *Pool) EmptyCache() error {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scopes.Capturing() {
		return nil
	}
	defer a.verify()
	return a.emptyPool(p.pool)
}

// Close ends the use of the pool by its owner. It frees the pool's idle pages, unless a scope is open or captured
// graphs use the pool; then Allocator.EmptyCache frees them later. Live blocks stay valid until they are freed; their
// pages are freed in the same way. Requests to a closed pool fail; requests through its open scopes do not. The error
// is the driver's; Allocator.EmptyCache tries again. Closing a closed pool is a no-op.
func (p *Pool) Close() error {
	a, pp := p.a, p.pool
	a.mu.Lock()
	defer a.mu.Unlock()
	if pp.closed || pp.own == 0 {
		return nil
	}
	pp.closed = true
	a.overflow = slices.DeleteFunc(a.overflow, func(other *privatePool) bool { return other == pp })
	pp.useCount--
	pp.own--
	if pp.useCount > 0 {
		return nil
	}
	defer a.verify()
	return a.reclaim(pp)
}

var _ interface {
	mem.OptionsAllocator
	mem.Trimmer
	mem.Snapshotter
	mem.Wrapper
	fmt.Stringer
} = (*Pool)(nil)

// String returns the pool's name: "pool (0, 3)".
func (p *Pool) String() string { return "pool " + p.pool.id.String() }
