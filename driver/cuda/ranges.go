//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"math"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/spans"
)

// ranges are the addresses that this device knows of, so that work on anything else is refused before it is queued: on
// the device it would be an illegal access, which loses the context for good. mu is a leaf: libcuda is not called with
// it held.
type ranges struct {
	mu sync.RWMutex
	t  spans.Table[known]
}

// known is what a range is. The pages mapped in a reservation are in its table; a range of another kind has none.
type known struct {
	kind   kind
	mapped spans.Table[uint64] // with the number of the page
}

type kind uint8

const (
	allocated kind = iota // by Alloc
	reserved              // by Reserve: of use where pages are mapped
	imported              // from another process
)

// add notes a range that libcuda has just returned.
func (r *ranges) add(p driver.Pointer, size int64, k kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Insert(spans.Entry[known]{At: p, Size: size, Value: known{kind: k}})
}

// remove forgets the range of that kind that starts at p, and returns its size. It does so before libcuda is asked to
// free it, for afterwards another thread may be given the same addresses.
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

// holds says whether work may touch the n bytes at p as far as this table knows; sure is false if it knows nothing of
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
	return n <= int64(e.End()-p), true // two blocks side by side are not one
}

// reachable fails unless work of this device may touch the n bytes at p: they are in one block, in mapped pages of one
// reservation, or in one range of memory that other code of this process got from libcuda. Between enter and leave.
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

// foreign says whether libcuda knows the n bytes at p as part of one allocation or mapping.
func (d *device) foreign(p driver.Pointer, n int64) bool {
	start, r := d.lib.PointerGetAttribute(cu.PointerRangeStart, uint64(p))
	if r != cu.Success {
		return false
	}
	size, r := d.lib.PointerGetAttribute(cu.PointerRangeSize, uint64(p))
	return r == cu.Success && uint64(p) >= start && uint64(p)-start+uint64(n) <= size
}
