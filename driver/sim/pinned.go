package sim

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
)

// pinned implements driver.Pinned.
type pinned struct{ d *Device }

// A region is page-locked host memory: Go's, which the device keeps alive, or the caller's.
type region struct {
	bytes      []byte
	id         uint64 // number of the call that made it
	registered bool
}

const (
	poison = 0xdd    // the bytes of memory after FreeHost
	period = 4 << 10 // bytes after which the noise in fresh memory repeats
)

// Pinned implements driver.Device. The memory comes from Go's heap, where it does not move. It contains noise at first,
// and is overwritten when it is freed. Options.Pinned is the maximum.
func (d *Device) Pinned() driver.Pinned { return pinned{d} }

// span returns the addresses of a slice's bytes.
func span(b []byte) (start, size uint64) {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), uint64(len(b))
}

// isPinned reports whether all of b lies in one region.
func (d *Device) isPinned(b []byte) bool {
	start, size := span(b)
	e := d.pinned.find(start)
	return e != nil && size <= e.end()-start
}

// regions returns all regions in the order of the calls that made them, since their addresses differ between runs.
func (d *Device) regions() (all []*region) {
	for i := d.pinned.first(); d.pinned.valid(i); i = d.pinned.next(i) {
		all = append(all, d.pinned.at(i).value)
	}
	slices.SortFunc(all, func(a, b *region) int { return cmp.Compare(a.id, b.id) })
	return all
}

// roomToPin fails unless size bytes more may be page-locked.
func (d *Device) roomToPin(c Call, size int64) error {
	if free := d.opts.Pinned - d.locked; size > free {
		return d.fail(c, driver.ErrNoMemory,
			fmt.Sprintf("%d bytes of host memory asked for, %d of %d may still be page-locked", size, free,
				d.opts.Pinned))
	}
	return nil
}

func (d *Device) pin(r *region) {
	start, size := span(r.bytes)
	r.id = d.seq
	d.pinned.insert(start, size, r)
	d.locked += int64(size)
}

func (p pinned) AllocHost(size int64) ([]byte, error) {
	if size <= 0 {
		panic(fmt.Sprintf("driver/sim: %v of %d bytes: want at least 1", CallAllocHost, size))
	}
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallAllocHost, d.cost(CallAllocHost, size), uint64(size)); err != nil {
		return nil, err
	}
	if err := d.roomToPin(CallAllocHost, size); err != nil {
		return nil, err
	}
	r := &region{bytes: make([]byte, max(size, 16))[:size:size]} // Go does not align smaller slices
	fresh := d.newObject(size)
	n := min(len(r.bytes), period)
	fresh.load(r.bytes[:n], 0)
	double(r.bytes, n)
	d.pin(r)
	return r.bytes, nil
}

// FreeHost completes all work queued on the device, and overwrites the memory.
func (p pinned) FreeHost(b []byte) error {
	r, err := p.unpin(CallFreeHost, b, false)
	if err == nil {
		repeat(r.bytes, poison)
	}
	return err
}

// Register refuses memory of which a part is page-locked already.
func (p pinned) Register(b []byte) error {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	size := int64(len(b))
	if err := d.begin(CallRegister, d.cost(CallRegister, size), uint64(size)); err != nil {
		return err
	}
	if size == 0 {
		return d.fail(CallRegister, driver.ErrInvalid, "no bytes")
	}
	if err := d.roomToPin(CallRegister, size); err != nil {
		return err
	}
	start, _ := span(b)
	if i := d.pinned.from(start); d.pinned.valid(i) && d.pinned.at(i).start < start+uint64(size) {
		return d.fail(CallRegister, driver.ErrInvalid, fmt.Sprintf("part of the %d bytes is page-locked already", size))
	}
	d.pin(&region{bytes: b, registered: true})
	return nil
}

// Unregister completes all work queued on the device.
func (p pinned) Unregister(b []byte) error {
	_, err := p.unpin(CallUnregister, b, true)
	return err
}

// unpin removes the region that is exactly b.
func (p pinned) unpin(c Call, b []byte, registered bool) (*region, error) {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	size := int64(len(b))
	if err := d.begin(c, d.cost(c, size), uint64(size)); err != nil {
		return nil, err
	}
	start, _ := span(b)
	at := d.pinned.floor(start)
	if size == 0 || !d.pinned.valid(at) {
		return nil, d.fail(c, driver.ErrInvalid, fmt.Sprintf("the %d bytes are not page-locked", size))
	}
	e := d.pinned.at(at)
	if e.start != start || e.size != uint64(size) || e.value.registered != registered {
		return nil, d.fail(c, driver.ErrInvalid, fmt.Sprintf("the %d bytes are not the whole of what one call "+
			"page-locked, or of another kind of call", size))
	}
	r := e.value
	d.waited(c, d.syncAll())
	d.pinned.remove(at)
	d.locked -= size
	return r, nil
}

func (p pinned) IsPinned(b []byte) bool {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	return p.d.isPinned(b)
}

func (p pinned) CopyInAsync(s driver.Stream, dst driver.Pointer, src []byte) error {
	return p.copy(CallCopyInAsync, s, dst, src)
}

func (p pinned) CopyOutAsync(s driver.Stream, dst []byte, src driver.Pointer) error {
	return p.copy(CallCopyOutAsync, s, src, dst)
}

// copy queues a copy between page-locked memory and the device's.
func (p pinned) copy(c Call, s driver.Stream, there driver.Pointer, here []byte) error {
	d, own := p.d, p.d.ownStream(c, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int64(len(here))
	if err := own.begin(c, n, uint64(there), uint64(n)); err != nil {
		return err
	}
	if err := d.wantPinned(c, here); err != nil {
		return err
	}
	reads, writes := []driver.Range{{Ptr: there, Size: n}}, []driver.Range(nil)
	if c == CallCopyInAsync {
		reads, writes = writes, reads
	}
	return d.do(own.timeline, work{call: c, data: here}, reads, writes)
}

// wantPinned fails unless b is page-locked or empty.
func (d *Device) wantPinned(c Call, b []byte) error {
	if len(b) > 0 && !d.isPinned(b) {
		return d.fail(c, driver.ErrInvalid, fmt.Sprintf("the %d bytes are not page-locked memory of this device",
			len(b)))
	}
	return nil
}
