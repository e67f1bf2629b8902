package layer

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/waiting"
)

// Quotas divide an allocator's memory among tenants. See NewQuotas.
//
// Invariant: total >= committed, where committed is the sum over tenants of the larger of live bytes and reservation.
type Quotas struct {
	inner  mem.Allocator
	total  int64
	device *TenantDevice // nil: memory is not wiped
	gate   waiting.Gate  // of AllocWait
	turn   sync.Mutex    // held by an attempt of AllocWait; taken first

	mu        sync.Mutex // guards the fields below, and those of the tenants; under it only the lock of gate is taken
	tenants   []*Tenant  // that have not left
	committed int64
	freed     int64 // by all tenants so far
	failed    int64 // requests without room so far
}

// NewQuotas returns quotas over total bytes of a, in sizes of blocks. The rounding of a counts; its cache does not. A
// negative total panics. Memory may hold the data of its last user: see NewIsolatedQuotas.
func NewQuotas(a mem.Allocator, total int64) *Quotas {
	if total < 0 {
		panic(fmt.Sprintf("layer: NewQuotas of %d bytes: the total must not be negative", total))
	}
	return &Quotas{inner: a, total: total}
}

// NewIsolatedQuotas returns quotas whose tenants cannot read each other's bytes: memory is zeroed when it changes
// hands, and only then. a allocates the memory of dev, and of no other device:
//
//	dev := layer.NewTenantDevice(device)
//	a, err := caching.New(dev, caching.Default())
//	quotas := layer.NewIsolatedQuotas(a, dev, 8<<30)
//
// A block of a tenant is wiped in the order of its stream, rounding included, where its bytes are not the tenant's own:
// where another tenant used them last, or where the device has just allocated the memory. Memory that returns to its
// tenant keeps its contents and costs no wipe. Memory is wiped when it is allocated. So a failed wipe is an error of
// Alloc, and memory that is cached, split, merged, moved or mapped elsewhere below is wiped too. Layers above a tenant
// may keep its memory. A layer that serves several tenants must be below the quotas.
//
// On a stream that captures, a request fails with driver.ErrCapturing if it would get memory that another tenant used:
// a wipe would happen only when the graph is launched. Memory that the device has just allocated is wiped at once.
//
// Tenants are kept apart as far as they use their own live blocks only. Addresses are not protected from each other:
// code that runs on the device can read any address of the process.
func NewIsolatedQuotas(a mem.Allocator, dev *TenantDevice, total int64) *Quotas {
	if dev == nil {
		panic("layer: NewIsolatedQuotas without a TenantDevice")
	}
	q := NewQuotas(a, total)
	q.device = dev
	return q
}

// Tenant returns an allocator for one tenant. Its live blocks never exceed limit bytes, and it can always allocate
// reserved bytes of the total. Tenants share the unreserved rest. Tenant panics unless 0 <= reserved <= limit; the
// error is a *QuotaError if less than reserved is left of the total.
//
// Any tenant may use the rest while no other tenant lacks memory. Each has a fair share: its reservation, and as much
// of the unreserved total as every other, within its limit. When a tenant finds no room within its share, tenants above
// their shares are asked to give memory back (see Tenant.OnPressure), and cannot grow until that request has found room
// when it is repeated. The claim ends when the tenant allocates or leaves, or when all tenants together have freed as
// many bytes as the total.
//
// A tenant's blocks are its own: Free of another tenant's block panics. A warm call takes two short locks, of which one
// is common to all tenants, and of isolated quotas also that of the TenantDevice.
func (q *Quotas) Tenant(name string, reserved, limit int64) (*Tenant, error) {
	if reserved < 0 || limit < reserved {
		panic(fmt.Sprintf("layer: Tenant %q with %d bytes reserved of %d: want 0 <= reserved <= limit", name, reserved,
			limit))
	}
	t := &Tenant{
		quotas: q, name: name, reserved: reserved, limit: limit,
		blockTable: blockTable[struct{}]{name: "Tenant " + name},
	}
	if q.device != nil {
		t.owner = q.device.newOwner()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if reserved > q.total-q.committed {
		return nil, t.refusal(reserved, reserved)
	}
	q.committed += reserved
	q.tenants = append(q.tenants, t)
	q.divide()
	return t, nil
}

// remove ends a tenant's reservation. The caller holds mu.
func (q *Quotas) remove(t *Tenant) {
	q.committed -= t.reserved
	q.tenants = slices.DeleteFunc(q.tenants, func(o *Tenant) bool { return o == t })
	q.divide()
}

// A QuotaError is a request that a tenant's quota refused. It matches mem.ErrNoMemory. Numbers are bytes.
type QuotaError struct {
	Tenant  string
	Want    int64 // requested
	Block   int64 // size of the refused block, as far as known: at least Want
	Live    int64 // of live blocks of the tenant
	Limit   int64 // the tenant's
	Left    int64 // of the total, neither allocated nor reserved
	Claimed int64 // of Left, by tenants below their fair shares
}

func (e *QuotaError) Error() string {
	claimed := ""
	if e.Claimed > 0 {
		claimed = fmt.Sprintf(", of which tenants below their fair shares claim %s", bytesize.Format(e.Claimed))
	}
	return fmt.Sprintf("layer: out of memory: tenant %s asked for %s (a block of %s) with %s of its limit of %s "+
		"allocated, and %s left to share%s; free blocks, or raise the limit or the total", e.Tenant,
		bytesize.Format(e.Want), bytesize.Format(e.Block), bytesize.Format(e.Live), bytesize.Format(e.Limit),
		bytesize.Format(e.Left), claimed)
}

// Unwrap returns mem.ErrNoMemory, so that errors.Is matches it.
func (e *QuotaError) Unwrap() error { return mem.ErrNoMemory }
