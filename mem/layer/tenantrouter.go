package layer

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A TenantRouter is one allocator for all tenants of Quotas. See Quotas.Route.
type TenantRouter struct {
	quotas   *Quotas
	tenantOf func(driver.Stream) *Tenant
	blockTable[*Tenant]
}

// Route returns an allocator that passes each request to the tenant that tenantOf returns for its stream. A block
// belongs to the tenant that allocated it, on whatever stream it is freed. A layer that reuses memory above it would
// give blocks of one tenant to another: those of this module refuse to be put there.
func (q *Quotas) Route(tenantOf func(driver.Stream) *Tenant) *TenantRouter {
	return &TenantRouter{
		quotas: q, tenantOf: tenantOf, blockTable: blockTable[*Tenant]{name: "TenantRouter"},
	}
}

// ZeroesBlocks marks allocators above which memory must not be reused (mem/internal/zeroed).
func (r *TenantRouter) ZeroesBlocks() {}

// Tenant returns the tenant of a stream's requests.
func (r *TenantRouter) Tenant(s driver.Stream) *Tenant { return r.tenantOf(s) }

// Alloc implements mem.Allocator.
func (r *TenantRouter) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return r.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (r *TenantRouter) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("layer: TenantRouter: Alloc", s)
	if o.RoundUp != 0 {
		size, o = o.Rounded(size)
	}
	t := r.tenantOf(s)
	b, err := t.AllocWith(s, size, o)
	if err != nil || b.Ptr == 0 {
		return b, err
	}
	return r.add(s.ID(), size, b, b, t), nil
}

// Free implements mem.Allocator.
func (r *TenantRouter) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	e := r.remove(b, used)
	e.value.Free(e.below, used...)
}

// Movable implements mem.Mover.
func (r *TenantRouter) Movable(b mem.Block, h mem.Holder) bool {
	return r.movable(b, h, func(t *Tenant) mem.Allocator { return t })
}

// Unwrap implements mem.Wrapper. It returns the allocator below the quotas.
func (r *TenantRouter) Unwrap() mem.Allocator { return r.quotas.inner }
