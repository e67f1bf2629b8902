//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"math"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/spans"
)

// ranges holds the addresses that this device knows. Work on other addresses is refused before it is queued: on the
// device it would be an illegal access, which destroys the context. mu is a leaf: libcuda is not called with it held.
type ranges struct {
	mu sync.RWMutex
	t  spans.Table[known]
}

// known describes a range. The pages mapped in a reservation are in its table; other kinds have no pages.
type known struct {
	kind   kind
	mapped spans.Table[uint64] // with the number of the page
}

type kind uint8

const (
	allocated kind = iota // by Alloc
	reserved              // by Reserve: usable where pages are mapped
	imported              // from another process
)

// add adds a range that libcuda has just returned.
func (r *ranges) add(p driver.Pointer, size int64, k kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Insert(spans.Entry[known]{At: p, Size: size, Value: known{kind: k}})
}

// remove removes the range of kind k that starts at p, and returns its size. Call it before libcuda frees the range,
// because afterwards another thread may get the same addresses.
func (r *ranges) remove(p driver.Pointer, k kind) (size int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.t.Starting(p)
	if i < 0 || r.t[i].Value.kind != k {
		return 0, false
	}
	size = r.t[i].Size
	r.t.Remove(i, i+1)
	return size, true
}

// holds reports whether work may access the n bytes at p, by this table. sure is false if the table does not contain
// the address.
func (r *ranges) holds(p driver.Pointer, n int64) (ok, sure bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	i := r.t.Find(p)
	if i < 0 {
		return false, false
	}
	e := &r.t[i]
	if e.Value.kind == reserved {
		_, _, ok = e.Value.mapped.Run(p, n)
		return ok, true
	}
	return n <= int64(e.End()-p), true // adjacent blocks are not one
}

// reachable returns an error unless work of this device may access the n bytes at p: they must be in one block, in
// mapped pages of one reservation, or in one range of memory that other code of this process allocated through libcuda.
// Between enter and leave.
func (d *device) reachable(call string, p driver.Pointer, n int64) error {
	if n == 0 {
		return nil
	}
	if uint64(p) <= math.MaxUint64-uint64(n) {
		ok, sure := d.known.holds(p, n)
		if ok || !sure && d.foreign(p, n) {
			return nil
		}
	}
	return invalidError(call, "the %d bytes at %#x are not in one block, nor in mapped pages of one reservation", n, p)
}

// foreign reports whether libcuda knows the n bytes at p as part of one allocation or mapping.
func (d *device) foreign(p driver.Pointer, n int64) bool {
	start, r := d.lib.PointerGetAttribute(cu.PointerRangeStart, uint64(p))
	if r != cu.Success {
		return false
	}
	size, r := d.lib.PointerGetAttribute(cu.PointerRangeSize, uint64(p))
	return r == cu.Success && uint64(p) >= start && uint64(p)-start+uint64(n) <= size
}
