package sim

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// An object is the memory of one allocation or one page.
type object struct {
	contents
	shadow index[cell]
}

// A piece is a part of an object that an access touches.
type piece struct {
	object *object
	off, n uint64
	at     uint64   // its first address
	via    *mapping // nil for an allocation
}

// A freedRange remembers what was freed, for better messages.
type freedRange struct {
	start, size uint64
	seq         uint64
}

const freedKept = 1024

func (d *Device) newObject(size int64) object {
	d.objects++
	return object{contents: contents{seed: mix(d.opts.Seed ^ mix(d.objects)), size: size}}
}

// Available returns the bytes that are free and the total.
func (d *Device) Available() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallAvailable, d.cost(CallAvailable, 0)); err != nil {
		return 0, 0, err
	}
	return d.opts.Total - d.used, d.opts.Total, nil
}

// Alloc returns size new bytes, which read as noise. Exactly size bytes are taken from the total, and there is room as
// long as that many are free: gaps between addresses do not matter. Addresses are assigned as cudaMalloc does: a size
// of a granule or more has whole granules of addresses to itself, smaller ones share granules, and either kind gets the
// lowest addresses of its kind that fit, multiples of the alignment.
func (d *Device) Alloc(size int64) (driver.Pointer, error) {
	if size <= 0 {
		panic(fmt.Sprintf("driver/sim: Alloc of %d bytes: want at least 1", size))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallAlloc, d.cost(CallAlloc, size), uint64(size)); err != nil {
		return 0, err
	}
	if err := d.room(CallAlloc, size); err != nil {
		return 0, err
	}
	start, ok := d.takeAddresses(uint64(size))
	if !ok {
		return 0, d.fail(CallAlloc, driver.ErrNoMemory, fmt.Sprintf("no %d consecutive addresses", size))
	}
	o := d.newObject(size)
	d.allocs.insert(start, uint64(size), &o)
	d.used += size
	d.addToHash(start)
	return driver.Pointer(start), nil
}

// granule is the unit of addresses that smaller allocations share.
func (d *Device) granule() uint64 { return uint64(max(d.opts.Granularity, d.opts.Alignment)) }

// takeAddresses finds addresses for an allocation, and giveAddresses frees them. A granule that small allocations have
// shared stays reserved for small ones.
func (d *Device) takeAddresses(size uint64) (start uint64, ok bool) {
	if size >= d.granule() {
		return d.large.take(roundUp(size, d.granule()))
	}
	size = roundUp(size, uint64(d.opts.Alignment))
	if start, ok = d.small.take(size); ok {
		return start, true
	}
	if start, ok = d.large.take(d.granule()); !ok {
		return 0, false
	}
	d.small.give(start, d.granule())
	return d.small.take(size)
}

func (d *Device) giveAddresses(start, size uint64) {
	if size >= d.granule() {
		d.large.give(start, roundUp(size, d.granule()))
		return
	}
	d.small.give(start, roundUp(size, uint64(d.opts.Alignment)))
}

func roundUp(n, multiple uint64) uint64 { return (n + multiple - 1) &^ (multiple - 1) }

// room fails unless size bytes are free.
func (d *Device) room(c Call, size int64) error {
	if free := d.opts.Total - d.used; size > free {
		return d.fail(c, driver.ErrNoMemory, fmt.Sprintf("%d bytes asked for, %d of %d free", size, free, d.opts.Total))
	}
	return nil
}

// Free completes all work queued on the device, as cudaFree does, and frees the allocation at p.
func (d *Device) Free(p driver.Pointer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.allocs.floor(uint64(p))
	if !d.allocs.valid(at) || d.allocs.at(at).start != uint64(p) {
		if err := d.begin(CallFree, d.cost(CallFree, 0), uint64(p)); err != nil {
			return err
		}
		_, what := d.explain(uint64(p))
		return d.fail(CallFree, driver.ErrInvalid, fmt.Sprintf("%#x is not what Alloc returned: %s", p, what))
	}
	size := d.allocs.at(at).size
	if err := d.begin(CallFree, d.cost(CallFree, int64(size)), uint64(p)); err != nil {
		return err
	}
	d.waited(CallFree, d.syncAll())
	d.allocs.remove(at)
	d.giveAddresses(uint64(p), size)
	d.used -= int64(size)
	d.remember(uint64(p), size)
	return nil
}

// remember records a freed range.
func (d *Device) remember(start, size uint64) {
	if f := (freedRange{start, size, d.seq}); len(d.freed) < freedKept {
		d.freed = append(d.freed, f)
	} else {
		d.freed[d.freedNext] = f
		d.freedNext = (d.freedNext + 1) % freedKept
	}
}

// resolve appends the pieces of memory at [p, p+n) to pieces. The range must lie in one allocation, or in mapped pages
// without a gap between them.
func (d *Device) resolve(pieces []piece, r driver.Range) ([]piece, AccessKind, string) {
	start, n := uint64(r.Ptr), uint64(r.Size)
	if e := d.allocs.find(start); e != nil {
		if n > e.end()-start {
			return pieces, OutOfBounds, fmt.Sprintf("the allocation [%#x, +%d) ends before", e.start, e.size)
		}
		return append(pieces, piece{e.value, start - e.start, n, start, nil}), 0, ""
	}
	reserved := d.reservations.find(start)
	if reserved == nil {
		kind, what := d.explain(start)
		return pieces, kind, what
	}
	mappings := &reserved.value.mappings
	at, end := start, start+n
	for p := mappings.from(start); at < end; p = mappings.next(p) {
		if !mappings.valid(p) || mappings.at(p).start > at {
			if at == reserved.end() {
				return pieces, OutOfBounds, fmt.Sprintf("the reservation [%#x, +%d) ends before", reserved.start,
					reserved.size)
			}
			return pieces, NotMapped, fmt.Sprintf("no page is mapped at %#x", at)
		}
		m := mappings.at(p)
		stop := min(end, m.end())
		pieces = append(pieces, piece{&m.value.page.object, at - m.start, stop - at, at, m.value})
		at = stop
	}
	return pieces, 0, ""
}

// explain returns why there is no memory at an address.
func (d *Device) explain(p uint64) (AccessKind, string) {
	if e := d.allocs.find(p); e != nil {
		return OutOfBounds, fmt.Sprintf("it lies %d bytes into the allocation [%#x, +%d)", p-e.start, e.start, e.size)
	}
	if e := d.reservations.find(p); e != nil {
		return NotMapped, fmt.Sprintf("it lies %d bytes into the reservation [%#x, +%d)", p-e.start, e.start, e.size)
	}
	var last *freedRange
	for i := range d.freed {
		if f := &d.freed[i]; p-f.start < f.size && (last == nil || f.seq > last.seq) {
			last = f
		}
	}
	if last != nil {
		return UseAfterFree, fmt.Sprintf("[%#x, +%d) was given back by call %d", last.start, last.size, last.seq)
	}
	return NotAllocated, "nothing is allocated there"
}
