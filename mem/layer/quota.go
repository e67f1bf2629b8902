package layer

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

// Quotas divide an allocator's memory among tenants. See NewQuotas.
//
// Invariant: total >= committed, where committed is the sum over tenants of the larger of live bytes and reservation.
type Quotas struct {
	inner mem.Allocator
	total int64

	mu        sync.Mutex // a leaf: guards the fields below, and live of the tenants
	committed int64
}

// NewQuotas returns quotas over total bytes of a, in sizes of blocks. The rounding of a counts; its cache does not. A
// negative total panics.
func NewQuotas(a mem.Allocator, total int64) *Quotas {
	if total < 0 {
		panic(fmt.Sprintf("layer: NewQuotas of %d bytes: the total must not be negative", total))
	}
	return &Quotas{inner: a, total: total}
}

// Tenant returns an allocator for one tenant. Its live blocks never exceed limit bytes, and it can always allocate
// reserved bytes of the total. Tenants share the unreserved rest, first come, first served. Tenant panics unless 0 <=
// reserved <= limit; the error is a *QuotaError if less than reserved is left of the total.
//
// A tenant's blocks are its own: Free of another tenant's block panics. Memory may hold the data of its last user
// unless there is a Zeroer below the Quotas. A warm call takes two short locks, of which one is common to all tenants.
func (q *Quotas) Tenant(name string, reserved, limit int64) (*Tenant, error) {
	if reserved < 0 || limit < reserved {
		panic(fmt.Sprintf("layer: Tenant %q with %d bytes reserved of %d: want 0 <= reserved <= limit", name, reserved,
			limit))
	}
	t := &Tenant{
		quotas: q, name: name, reserved: reserved, limit: limit,
		blockTable: blockTable[struct{}]{name: "Tenant " + name},
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if reserved > q.total-q.committed {
		return nil, t.refusal(reserved, reserved)
	}
	q.committed += reserved
	return t, nil
}

// A Tenant is an allocator with a quota. See Quotas.Tenant.
type Tenant struct {
	quotas          *Quotas
	name            string
	reserved, limit int64
	live            int64
	left            bool
	blockTable[struct{}]
}

// Name returns the name that Quotas.Tenant was given.
func (t *Tenant) Name() string { return t.name }

// Reserved returns the number of bytes that the tenant can always allocate.
func (t *Tenant) Reserved() int64 { return t.reserved }

// Limit returns the maximum of the tenant's allocated bytes.
func (t *Tenant) Limit() int64 { return t.limit }

// HasLimit returns true: a limit of 0 allows nothing. See mem.LimitOf.
func (t *Tenant) HasLimit() bool { return true }

// Live returns the tenant's allocated bytes, including requests in progress.
func (t *Tenant) Live() int64 {
	t.quotas.mu.Lock()
	defer t.quotas.mu.Unlock()
	return t.live
}

// Alloc implements mem.Allocator. The error is a *QuotaError if the quota refuses the request, or that of the allocator
// below. It panics after Leave.
func (t *Tenant) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return t.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (t *Tenant) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if size <= 0 {
		return mem.AllocWith(t.quotas.inner, s, size, o)
	}
	if err := t.charge(size, size, size); err != nil {
		return mem.Block{}, err
	}
	allocated := false
	defer func() { // even after a panic of the allocator below, because tenants share the total
		if !allocated {
			t.uncharge(size)
		}
	}()
	b, err := mem.AllocWith(t.quotas.inner, s, size, o)
	if err != nil {
		return mem.Block{}, err
	}
	if err := t.charge(b.Size-size, size, b.Size); err != nil {
		t.quotas.inner.Free(b)
		return mem.Block{}, err
	}
	allocated = true
	return t.add(s.ID(), size, b, b, struct{}{}), nil
}

// charge counts n more bytes for a request of want bytes and its block of size bytes, or returns the refusal.
func (t *Tenant) charge(n, want, size int64) error {
	if n == 0 {
		return nil
	}
	q := t.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.left {
		panic(fmt.Sprintf("layer: Tenant %s: Alloc of %d bytes after Leave", t.name, want))
	}
	if n > t.limit-t.live || t.share(t.live+n)-t.share(t.live) > q.total-q.committed {
		return t.refusal(want, size)
	}
	q.committed += t.share(t.live+n) - t.share(t.live)
	t.live += n
	return nil
}

// share returns the tenant's share of the total with the given live bytes.
func (t *Tenant) share(live int64) int64 { return max(live, t.reserved) }

func (t *Tenant) uncharge(n int64) {
	q := t.quotas
	q.mu.Lock()
	q.committed -= t.share(t.live) - t.share(t.live-n)
	t.live -= n
	q.mu.Unlock()
}

func (t *Tenant) refusal(want, size int64) error {
	q := t.quotas
	return &QuotaError{
		Tenant: t.name, Want: want, Block: size, Live: t.live, Limit: t.limit,
		Left: q.total - q.committed,
	}
}

// Free implements mem.Allocator. The bytes count until the allocator below has taken the block back.
func (t *Tenant) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	t.quotas.inner.Free(t.remove(b, used).below, used...)
	t.uncharge(b.Size)
}

// Leave ends the tenant and its reservation. If it has live blocks, Leave returns an error and changes nothing.
func (t *Tenant) Leave() error {
	q := t.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.live > 0 {
		return fmt.Errorf("layer: Tenant %s: Leave with %s allocated; layer.NewLeakTracker shows where it was allocated", t.name, bytesize.Format(t.live))
	}
	if !t.left {
		q.committed -= t.reserved
		t.left = true
	}
	return nil
}

// Movable implements mem.Mover. A move does not change the tenant's counts.
func (t *Tenant) Movable(b mem.Block, h mem.Holder) bool {
	return t.movable(b, h, func(struct{}) mem.Allocator { return t.quotas.inner })
}

// Unwrap implements mem.Wrapper.
func (t *Tenant) Unwrap() mem.Allocator { return t.quotas.inner }

// A QuotaError is a request that a tenant's quota refused. It matches mem.ErrNoMemory. Numbers are bytes.
type QuotaError struct {
	Tenant string
	Want   int64 // requested
	Block  int64 // size of the refused block, as far as known: at least Want
	Live   int64 // of live blocks of the tenant
	Limit  int64 // the tenant's
	Left   int64 // of the total, neither allocated nor reserved
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("layer: out of memory: tenant %s asked for %s (a block of %s) with %s of its limit of %s "+
		"allocated, and %s left to share; free blocks, or raise the limit or the total", e.Tenant,
		bytesize.Format(e.Want),
		bytesize.Format(e.Block), bytesize.Format(e.Live), bytesize.Format(e.Limit), bytesize.Format(e.Left))
}

// Unwrap returns mem.ErrNoMemory, so that errors.Is matches it.
func (e *QuotaError) Unwrap() error { return mem.ErrNoMemory }
