package verify

import (
	"context"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay/internal/deferredfree"
)

// A recordedDevice repeats the answers of the driver in a recording: it returns the recorded addresses of segments, and
// fails the calls that failed. It adds up the cost of its calls by the model of a simulated device. It has no memory; a
// backing has.
type recordedDevice struct {
	v         *verifier
	info      driver.Info
	streams   []*idleStream
	requester uint32 // the stream of the current request
	reserved  []driver.Range
	pages     uint64
	sizes     map[driver.Pointer]int64 // of segments and mapped pages
	cost      *sim.CostModel
	use       DriverUse
	refusals  int
	backing   *backing // nil without memory behind the addresses
}

func newRecordedDevice(v *verifier, total int64) *recordedDevice {
	d := &recordedDevice{v: v, sizes: map[driver.Pointer]int64{}, cost: sim.H200(), info: driver.Info{
		Driver: "recorded", Name: "the recorded device", Ordinal: v.rec.device,
		TotalMemory: total, Alignment: 512, Granularity: 2 << 20,
	}}
	for i := range max(len(v.t.Streams), 1) {
		d.streams = append(d.streams, &idleStream{id: driver.StreamID(i), dev: d})
	}
	return d
}

// elsewhere is the address of segments that were never recorded; the allocator's event for such a segment is a
// difference.
const elsewhere = driver.Pointer(1) << 60

// refuses reports whether the next entry shows that the driver had no room: the recorded request continued without the
// memory.
func (d *recordedDevice) refuses() bool {
	v := d.v
	v.skipFollowed()
	if v.verdict.Difference != nil || v.next == len(v.t.Events) {
		return false
	}
	switch v.t.Events[v.next].Action {
	case mem.ActionFreeCompleted, mem.ActionSegmentFree, mem.ActionSegmentUnmap, mem.ActionOOM:
		return true
	}
	return false
}

// charge counts a call and its cost.
func (d *recordedDevice) charge(cost time.Duration) {
	d.use.DriverCalls++
	d.use.DriverTime += cost
}

// chargeFor is charge for a call whose cost depends on a size only.
func (d *recordedDevice) chargeFor(c sim.Call, size int64) { d.charge(d.cost.Calls[c].At(size)) }

// noRoom returns the error of a refused call.
func (d *recordedDevice) noRoom(call string) error {
	d.refusals++
	return &driver.Error{Call: call, Code: driver.ErrNoMemory, Detail: "as recorded"}
}

// Alloc returns the address of the next recorded segment.
func (d *recordedDevice) Alloc(size int64) (driver.Pointer, error) {
	d.chargeFor(sim.CallAlloc, size)
	if d.refuses() {
		return 0, d.noRoom("Alloc")
	}
	v := d.v
	if v.verdict.Difference == nil && v.next < len(v.t.Events) && v.t.Events[v.next].Action == mem.ActionSegmentAlloc {
		ptr := v.t.Events[v.next].Ptr
		d.sizes[ptr] = size
		if d.backing != nil {
			d.backing.add(ptr, size, false)
		}
		return ptr, nil
	}
	return elsewhere, nil
}

// Reserve returns the address of the next recorded mapping on the request's stream that is not in a reservation yet.
func (d *recordedDevice) Reserve(size int64) (driver.Pointer, error) {
	d.chargeFor(sim.CallReserve, size)
	base := elsewhere
	for i := d.v.next; i < len(d.v.t.Events); i++ {
		e := &d.v.t.Events[i]
		if e.Action == mem.ActionSegmentMap && e.Stream == d.requester && !d.isReserved(e.Ptr) {
			base = e.Ptr
			break
		}
	}
	d.reserved = append(d.reserved, driver.Range{Ptr: base, Size: size})
	if d.backing != nil {
		d.backing.add(base, size, true)
	}
	return base, nil
}

func (d *recordedDevice) isReserved(p driver.Pointer) bool {
	for _, r := range d.reserved {
		if p >= r.Ptr && p < r.Ptr+driver.Pointer(r.Size) {
			return true
		}
	}
	return false
}

// Release removes a reservation.
func (d *recordedDevice) Release(p driver.Pointer, size int64) error {
	d.chargeFor(sim.CallRelease, size)
	if d.backing != nil {
		d.backing.remove(p)
	}
	for i, r := range d.reserved {
		if r.Ptr == p {
			d.reserved = append(d.reserved[:i], d.reserved[i+1:]...)
			break
		}
	}
	return nil
}

// Map fails where the recording shows that pages were refused.
func (d *recordedDevice) Map(p driver.Pointer, pages ...driver.Page) error {
	d.charge(d.cost.Map(pages...))
	if d.refuses() {
		return d.noRoom("VirtualMemory.Map")
	}
	if d.backing != nil {
		d.backing.mapPages(p, pages)
	}
	for _, page := range pages {
		d.sizes[p] = page.Size
		p += driver.Pointer(page.Size)
	}
	return nil
}

// Create makes a page. Only Map knows whether there is room for it.
func (d *recordedDevice) Create(size int64) (driver.Page, error) {
	d.chargeFor(sim.CallCreate, size)
	d.pages++
	return driver.Page{ID: d.pages, Size: size}, nil
}

// Drop frees a page.
func (d *recordedDevice) Drop(page driver.Page) error {
	d.chargeFor(sim.CallDrop, page.Size)
	if d.backing != nil {
		d.backing.drop(page)
	}
	return nil
}

// Unmap removes the pages at [p, p+size), which have one size, as in an allocator's segment.
func (d *recordedDevice) Unmap(p driver.Pointer, size int64) error {
	page := d.sizes[p]
	if page == 0 {
		d.charge(0) // never mapped: the allocator's event about it is a difference
		return nil
	}
	d.charge(d.cost.Unmap(int(size/page), page))
	for at := p; at < p+driver.Pointer(size); at += driver.Pointer(page) {
		delete(d.sizes, at)
	}
	if d.backing != nil {
		d.backing.unmap(p, size)
	}
	return nil
}

// Free waits for all work and removes a segment.
func (d *recordedDevice) Free(p driver.Pointer) error {
	d.waitFor(d.streams...)
	d.chargeFor(sim.CallFree, d.sizes[p])
	delete(d.sizes, p)
	if d.backing != nil {
		d.backing.remove(p)
	}
	return nil
}

func (d *recordedDevice) Info() driver.Info                   { return d.info }
func (d *recordedDevice) DefaultStream() driver.Stream        { return d.streams[0] }
func (d *recordedDevice) VirtualMemory() driver.VirtualMemory { return d }
func (d *recordedDevice) Kernels() driver.Kernels             { return nil }
func (d *recordedDevice) Pinned() driver.Pinned               { return nil }
func (d *recordedDevice) Timing() driver.Timing               { return nil }
func (d *recordedDevice) Graphs() driver.Graphs               { return nil }
func (d *recordedDevice) Peers() driver.Peers                 { return nil }
func (d *recordedDevice) Sharing() driver.Sharing             { return nil }
func (d *recordedDevice) Visible() driver.Visible             { return nil }
func (d *recordedDevice) Close() error                        { return nil }
func (d *recordedDevice) Available() (free, total int64, err error) {
	return d.info.TotalMemory, d.info.TotalMemory, nil
}

// Processes is not supported: a recording is of one process.
func (d *recordedDevice) Processes() ([]driver.ProcessMemory, error) {
	return nil, &driver.Error{Call: "Processes", Code: driver.ErrUnsupported, Detail: "a recording is of one process"}
}

// NewStream is not supported: the streams are those of the recording.
func (d *recordedDevice) NewStream(driver.StreamOptions) (driver.Stream, error) {
	return nil, &driver.Error{Call: "NewStream", Code: driver.ErrUnsupported, Detail: "a recorded device has its " +
		"recorded streams"}
}

// waitFor completes the work of streams. It is a stall if there is any.
func (d *recordedDevice) waitFor(streams ...*idleStream) {
	waited := false
	for _, s := range streams {
		waited = waited || s.busy
		s.busy = false
	}
	if waited {
		d.use.Stalls++
	}
}

// An idleStream is a stream of the recording. No allocator queues work to it; allocators only wait for its work (Sync).
// Busy says that blocks of it were allocated or freed since the last wait.
type idleStream struct {
	deferredfree.Stream
	id   driver.StreamID
	dev  *recordedDevice
	busy bool
}

// ID implements driver.Stream.
func (s *idleStream) ID() driver.StreamID { return s.id }

// Sync implements driver.Stream.
func (s *idleStream) Sync(context.Context) error {
	s.dev.waitFor(s)
	return nil
}
