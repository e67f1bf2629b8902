package dropin

import (
	"fmt"
	"math"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// Private pools, for captured graphs and MemPools. The program names the pool of each request, so the pools' own scopes
// match no stream; they mark the time in which the pool is used. All these methods fail with an error that matches
// driver.ErrUnsupported if the backend is not paged.

// states are the checkpoints of pools, by the numbers that the program has for them.
type states struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]*paged.PoolState
}

// pools returns a device and its allocator with private pools.
func (p *Process) pools(ordinal int) (*gpu, *paged.Allocator, error) {
	g, err := p.gpu(ordinal)
	if err != nil {
		return nil, nil, err
	}
	if a, ok := mem.Find[*paged.Allocator](g.alloc); ok {
		return g, a, nil
	}
	return nil, nil, fmt.Errorf("ashlar: private pools of the backend %s: %w: use the backend paged, or graphs:native",
		g.process.settings.backend, driver.ErrUnsupported)
}

// AllocInPool is Alloc from a private pool.
func (p *Process) AllocInPool(ordinal int, stream uintptr, size uint64, id mem.PoolID) (driver.Pointer, error) {
	if size == 0 {
		return 0, nil
	}
	if size > math.MaxInt64 {
		return 0, &mem.OutOfMemory{Requested: math.MaxInt64, TooLarge: true}
	}
	g, a, err := p.pools(ordinal)
	if err != nil {
		return 0, err
	}
	s, err := g.stream(stream)
	if err != nil {
		return 0, err
	}
	pool := a.Pool(id)
	if pool == nil {
		return 0, fmt.Errorf("%w: there is no private pool %v", ErrInvalid, id)
	}
	return raw.AllocFrom(g.dev, pool, s, int64(size))
}

// A PoolCall changes a private pool, or says how many users it has.
type PoolCall int

// The pool calls, in the order of ashlar.h.
const (
	PoolRetain PoolCall = iota
	PoolBegin
	PoolEnd
	PoolRelease
	PoolUseOnOOM
	PoolNotOnOOM
	PoolNoSplit
	PoolUsers
)

// Pool does a call, and returns the number of users that the pool has then. The error matches ErrInvalid if the pool is
// not in a state for the call; then nothing has changed.
func (p *Process) Pool(ordinal int, id mem.PoolID, call PoolCall) (users int, err error) {
	_, a, err := p.pools(ordinal)
	if err != nil {
		return 0, err
	}
	defer refused(&err)
	switch call {
	case PoolRetain:
		a.RetainPool(id)
	case PoolBegin:
		a.BeginAllocateToPool(id, func(driver.Stream) bool { return false })
	case PoolEnd:
		a.EndAllocateToPool(id)
	case PoolRelease:
		a.ReleasePool(id)
	case PoolUseOnOOM, PoolNotOnOOM:
		a.SetUseOnOOM(id, call == PoolUseOnOOM)
	case PoolNoSplit:
		a.NeverSplit(id)
	case PoolUsers:
	default:
		return 0, fmt.Errorf("%w: pool call %d", ErrInvalid, call)
	}
	return a.PoolUseCount(id), nil
}

// refused makes the text with which mem/paged panics an error: it panics for calls that are wrong, before it changes
// anything. It must be deferred.
func refused(err *error) {
	switch bug := recover().(type) {
	case nil:
	case string:
		*err = fmt.Errorf("%w: %s", ErrInvalid, bug)
	default:
		panic(bug)
	}
}

// CheckPoolLive reports whether the live blocks of a private pool are those at these addresses.
func (p *Process) CheckPoolLive(ordinal int, id mem.PoolID, live []driver.Pointer) (bool, error) {
	_, a, err := p.pools(ordinal)
	if err != nil {
		return false, err
	}
	return a.CheckPoolLive(id, live) == nil, nil
}

// Checkpoint records the state of a private pool, and returns its number for Restore and DropCheckpoint.
func (p *Process) Checkpoint(ordinal int, id mem.PoolID) (number uint64, err error) {
	_, a, err := p.pools(ordinal)
	if err != nil {
		return 0, err
	}
	state, err := a.Checkpoint(id)
	if err != nil {
		return 0, err
	}
	s := &p.states
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[uint64]*paged.PoolState{}
	}
	s.last++
	s.all[s.last] = state
	return s.last, nil
}

// Restore puts a pool back into an earlier state. It returns the blocks that are not live any more, and those that are.
// A pinned block that was not live then is freed.
func (p *Process) Restore(ordinal int, number uint64) (*mem.PoolDelta, error) {
	g, a, err := p.pools(ordinal)
	if err != nil {
		return nil, err
	}
	p.states.mu.Lock()
	state := p.states.all[number]
	p.states.mu.Unlock()
	if state == nil {
		return nil, fmt.Errorf("%w: there is no checkpoint %d", ErrInvalid, number)
	}
	d, err := a.Restore(state)
	if err == nil {
		raw.Restored(g.dev, a, d)
		p.exports.restored(a, d.Freed)
		p.foreign.restored(d.Freed)
		p.pins.restored(d)
	}
	return d, err
}

// DropCheckpoint forgets a checkpoint.
func (p *Process) DropCheckpoint(number uint64) {
	p.states.mu.Lock()
	defer p.states.mu.Unlock()
	delete(p.states.all, number)
}
