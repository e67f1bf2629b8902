package layer

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/owners"
)

// A Tenant is an allocator with a quota. See Quotas.Tenant.
type Tenant struct {
	quotas          *Quotas
	name            string
	owner           owners.ID // of its bytes; 0 unless the quotas are isolated
	reserved, limit int64
	blockTable[struct{}]

	// Guarded by Quotas.mu.
	fair      int64 // its fair share of the total
	live      int64
	peak      int64
	claimed   int64 // size of a block that found no room within the fair share; 0: none
	claimedAt int64 // Quotas.freed then
	refused   int64
	wipes     int64
	wiped     int64
	left      bool
	giveBack  func(bytes int64)
}

// TenantStats are the figures of a tenant. Sizes are bytes.
type TenantStats struct {
	Live     int64 // in live blocks, including requests in progress
	Peak     int64 // the maximum of Live since the last ResetPeak
	Reserved int64 // that the tenant can always allocate
	Limit    int64 // the maximum of Live
	Share    int64 // the tenant's fair share of the total
	Claimed  int64 // that a request within the fair share did not find: tenants above theirs must not take it
	Refused  int64 // requests that failed because the quota refused them
	Wipes    int64 // blocks that were wiped, as a whole or in part, because memory changed hands
	Wiped    int64 // their wiped bytes
}

// Stats returns the tenant's figures at one instant.
func (t *Tenant) Stats() TenantStats {
	q := t.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims(nil) // ends old ones
	return TenantStats{
		Live: t.live, Peak: t.peak, Reserved: t.reserved, Limit: t.limit, Share: t.fair, Claimed: t.claimed,
		Refused: t.refused, Wipes: t.wipes, Wiped: t.wiped,
	}
}

// ResetPeak makes TenantStats.Peak what is live now.
func (t *Tenant) ResetPeak() {
	t.quotas.mu.Lock()
	defer t.quotas.mu.Unlock()
	t.peak = t.live
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

// OnPressure sets the function that frees memory which the tenant can do without, such as the cache of a magazine. It
// is called while the tenant is above its fair share and another tenant finds no room for a block of so many bytes
// within its own: the tenant that is furthest above first, until there is room. Calls may be concurrent, on the
// goroutines of other tenants' requests; no lock is held. Nil removes it.
func (t *Tenant) OnPressure(giveBack func(bytes int64)) {
	t.quotas.mu.Lock()
	defer t.quotas.mu.Unlock()
	t.giveBack = giveBack
}

// Alloc implements mem.Allocator. The error is a *QuotaError if the quota refuses the request, or that of the allocator
// below, or the device's error in wiping the block. It panics after Leave.
func (t *Tenant) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return t.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry it neither asks other tenants to give memory back nor claims
// any.
func (t *Tenant) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	return t.alloc(s, size, o, false)
}

// alloc is AllocWith, or an attempt of AllocWait.
func (t *Tenant) alloc(s driver.Stream, size int64, o mem.AllocOptions, waits bool) (mem.Block, error) {
	if o.RoundUp != 0 {
		size, o = o.Rounded(size)
	}
	if size <= 0 {
		return mem.AllocWith(t.quotas.inner, s, size, o)
	}
	b, err := t.attempt(s, size, o, waits)
	if err != nil && errors.Is(err, mem.ErrNoMemory) {
		return t.retry(s, size, o, waits, err)
	}
	return b, err
}

// retry is alloc after an attempt that found no room.
func (t *Tenant) retry(s driver.Stream, size int64, o mem.AllocOptions, waits bool, err error) (b mem.Block, _ error) {
	if !o.NoRetry && t.withinShare(size) {
		t.quotas.press(size, func() bool {
			b, err = t.attempt(s, size, o, waits)
			return err == nil || !errors.Is(err, mem.ErrNoMemory)
		})
	}
	if refusal := (*QuotaError)(nil); errors.As(err, &refusal) {
		t.quotas.mu.Lock()
		t.refused++
		t.quotas.mu.Unlock()
	}
	return b, err
}

// AllocWait is AllocWith that waits for room until ctx ends: it asks again when a tenant has freed a block or left,
// when a tenant's claim has ended, and when another tenant's request, which had the room, has failed. The error then
// also matches the context's cause. A request beyond the tenant's limit does not wait.
func (t *Tenant) AllocWait(
	ctx context.Context, s driver.Stream, size int64, o mem.AllocOptions,
) (b mem.Block, err error) {
	ended := t.quotas.gate.Wait(ctx, func() bool {
		b, err = t.alloc(s, size, o, true)
		return err == nil || !errors.Is(err, mem.ErrNoMemory) || size > t.limit
	})
	if ended != nil {
		return mem.Block{}, errors.Join(err, fmt.Errorf("layer: Tenant %s: waited for memory: %w", t.name, ended))
	}
	return b, err
}

// attempt is alloc without pressure on other tenants. Requests that wait take turns: were they counted at the same
// time, each could keep room from another, and wake it, for ever.
func (t *Tenant) attempt(s driver.Stream, size int64, o mem.AllocOptions, waits bool) (mem.Block, error) {
	if waits {
		t.quotas.turn.Lock()
		defer t.quotas.turn.Unlock()
	}
	failed, err := t.charge(size, size, size, o)
	if err != nil {
		return mem.Block{}, err
	}
	charged := size
	defer func() { // even after a panic of the allocator below, because tenants share the total
		if charged > 0 {
			t.undo(charged, failed)
		}
	}()
	b, err := mem.AllocWith(t.quotas.inner, s, size, o)
	if err != nil {
		return mem.Block{}, err
	}
	if _, err := t.charge(b.Size-size, size, b.Size, o); err != nil {
		t.quotas.inner.Free(b)
		return mem.Block{}, err
	}
	charged = b.Size
	if used, err := t.wipe(s, b); err != nil {
		t.quotas.inner.Free(b, used...)
		return mem.Block{}, err
	}
	charged = 0
	return t.add(s.ID(), size, b, b, struct{}{}), nil
}

// wipe zeroes the bytes of a new block that are not the tenant's. If it fails, work on the streams that it returns may
// still use the block.
func (t *Tenant) wipe(s driver.Stream, b mem.Block) (used []driver.Stream, _ error) {
	q := t.quotas
	if q.device == nil {
		return nil, nil
	}
	wiped, used, err := q.device.wipe(s, b, t.owner)
	if err != nil {
		return used, fmt.Errorf("layer: Tenant %s: %w", t.name, err)
	}
	if wiped > 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		t.wipes++
		t.wiped += wiped
	}
	return nil, nil
}

// charge counts n more bytes for a request of want bytes and its block of size bytes, or returns the refusal. It also
// returns how many requests have failed so far.
func (t *Tenant) charge(n, want, size int64, o mem.AllocOptions) (failed int64, _ error) {
	if n == 0 {
		return 0, nil
	}
	q := t.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.left {
		panic(fmt.Sprintf("layer: Tenant %s: Alloc of %d bytes after Leave", t.name, want))
	}
	if n > t.limit-t.live {
		q.failed++
		return 0, t.refusal(want, size)
	}
	more, claims := t.share(t.live+n)-t.share(t.live), int64(0)
	if t.live+n > t.fair {
		claims = q.claims(t)
	}
	if more > q.total-q.committed-claims {
		if t.live+n <= t.fair && !o.NoRetry {
			t.claim(size)
		}
		refusal := t.refusal(want, size)
		refusal.Claimed = claims
		q.failed++
		return 0, refusal
	}
	q.committed += more
	t.live += n
	t.peak = max(t.peak, t.live)
	t.endClaim()
	return q.failed, nil
}

// undo uncharges a request that fails. It wakes requests that wait if one may have failed because this one was counted:
// if any request failed since.
func (t *Tenant) undo(n, failed int64) {
	q := t.quotas
	t.uncharge(n, 0)
	q.mu.Lock()
	wake := q.failed != failed
	q.failed++
	q.mu.Unlock()
	if wake {
		q.gate.Wake()
	}
}

// share returns the tenant's share of the total with the given live bytes.
func (t *Tenant) share(live int64) int64 { return max(live, t.reserved) }

func (t *Tenant) withinShare(size int64) bool {
	t.quotas.mu.Lock()
	defer t.quotas.mu.Unlock()
	return size <= t.fair-t.live
}

// uncharge undoes charge. It counts so many bytes as freed.
func (t *Tenant) uncharge(n, freed int64) {
	q := t.quotas
	q.mu.Lock()
	q.committed -= t.share(t.live) - t.share(t.live-n)
	t.live -= n
	q.freed += freed
	q.mu.Unlock()
}

func (t *Tenant) refusal(want, size int64) *QuotaError {
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
	q := t.quotas
	q.inner.Free(t.remove(b, used).below, used...)
	t.uncharge(b.Size, b.Size)
	q.gate.Wake()
}

// Leave ends the tenant and its reservation. If it has live blocks, Leave returns an error and changes nothing. Of
// isolated quotas, the memory that it used is wiped before another tenant gets it.
func (t *Tenant) Leave() error {
	q := t.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.live > 0 {
		return fmt.Errorf("layer: Tenant %s: Leave with %s allocated; layer.NewLeakTracker shows where it was allocated",
			t.name, bytesize.Format(t.live))
	}
	if !t.left {
		t.left, t.claimed = true, 0
		q.remove(t)
		q.gate.Wake()
	}
	return nil
}

// Movable implements mem.Mover. A move does not change the tenant's counts.
func (t *Tenant) Movable(b mem.Block, h mem.Holder) bool {
	if t.quotas.device != nil {
		h = &tenantHolder{h, t, b.Ptr}
	}
	return t.movable(b, h, func(struct{}) mem.Allocator { return t.quotas.inner })
}

// A tenantHolder records where a block's bytes are after a move.
type tenantHolder struct {
	mem.Holder
	t  *Tenant
	at driver.Pointer // of the block
}

// EndMove implements mem.Holder. A move overwrites all bytes at the block's new address. If the device failed, bytes of
// any block may have been copied anywhere.
func (h *tenantHolder) EndMove(b mem.Block, s driver.Stream) {
	switch d := h.t.quotas.device; {
	case s == nil: // nothing was copied
	case b.Ptr == h.at:
		d.Forget()
	default:
		d.claim(b, h.t.owner)
	}
	h.at = b.Ptr
	h.Holder.EndMove(b, s)
}

// Unwrap implements mem.Wrapper.
func (t *Tenant) Unwrap() mem.Allocator { return t.quotas.inner }
