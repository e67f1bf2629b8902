package host

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/spans"
)

// A device is a budget of memory and the streams that work on it.
type device struct {
	info  driver.Info
	place placement

	mu       sync.RWMutex // held for reading to look up an address, and for writing to change anything
	closed   bool
	used     int64 // bytes allocated
	blocks   spans.Table[block]
	streams  []*stream // by number; a closed one stays until its number is used again
	reserved spans.Table[*reservation]
	pages    map[uint64]*page
	lastPage uint64
	physical physical // nil without virtual memory
	peers    []peer   // replaced, never changed in place
	events   map[driver.SharedEvent]struct{}

	exporting sync.Mutex // taken before mu: one Export stalls the streams at a time
	pins      pins
	stamps    stamps
}

// An export lets other processes open a block, whose memory is then a file of its own. The handle names the file.
type export struct {
	handle []byte
	memory physical
}

// A block is memory that Alloc or Import returned.
type block struct {
	leaving  bool    // while Free or Forget waits for queued work
	imported bool    // another process's: not counted as allocated here
	export   *export // nil: not exported
}

func newDevice(o Options, pages physical) *device {
	d := &device{
		info: driver.Info{
			Driver: "host", Name: deviceName(), Ordinal: o.Ordinal, TotalMemory: o.Total, Alignment: pageSize,
			Granularity: o.Granularity, UnifiedAddressing: true,
		},
		pages:    map[uint64]*page{},
		physical: pages,
	}
	if pages == nil {
		d.info.Granularity = 0
	}
	d.streams = []*stream{newStream(d, 0, 0)}
	return d
}

func (d *device) Info() driver.Info { return d.info }

// Available returns the total less the bytes that this device has allocated.
func (d *device) Available() (free, total int64, err error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return 0, 0, closedError("Available")
	}
	return d.info.TotalMemory - d.used, d.info.TotalMemory, nil
}

// Processes returns driver.ErrUnsupported: the total is a budget of this device alone, and does not say which other
// programs use the machine's memory.
func (d *device) Processes() ([]driver.ProcessMemory, error) {
	return nil, &driver.Error{
		Call: "Processes", Code: driver.ErrUnsupported,
		Detail: "the host driver does not know how much memory each process uses",
	}
}

// reserve counts size bytes as allocated. d.mu is held.
func (d *device) reserve(call string, size int64) error {
	if free := d.info.TotalMemory - d.used; size > free {
		return &driver.Error{
			Call: call, Code: driver.ErrNoMemory,
			Detail: fmt.Sprintf("%s asked for, %s of %s left",
				bytesize.Format(size), bytesize.Format(free), bytesize.Format(d.info.TotalMemory)),
		}
	}
	d.used += size
	return nil
}

// Alloc allocates whole pages of the operating system, which are zero: it does not wait.
func (d *device) Alloc(size int64) (driver.Pointer, error) {
	if size <= 0 {
		panic(fmt.Sprintf("driver/host: Alloc of %d bytes: want a positive size", size))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, closedError("Alloc")
	}
	size = wholePages(size)
	if err := d.reserve("Alloc", size); err != nil {
		return 0, err
	}
	p, err := d.place.mapMemory(size)
	if err != nil {
		d.used -= size
		return 0, &driver.Error{
			Call: "Alloc", Code: driver.ErrNoMemory,
			Detail: fmt.Sprintf("%s from the operating system: %v", bytesize.Format(size), err),
		}
	}
	d.blocks.Insert(spans.Entry[block]{At: p, Size: size})
	return p, nil
}

// Free waits for the work queued on all streams before it returns the block to the system.
func (d *device) Free(p driver.Pointer) error { return d.free("Free", "Alloc", p, false) }

// free waits for the work queued on all streams and frees a block, which must be imported or not.
func (d *device) free(call, from string, p driver.Pointer, imported bool) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return closedError(call)
	}
	i := d.blocks.Starting(p)
	if i < 0 || d.blocks[i].Value.leaving || d.blocks[i].Value.imported != imported {
		d.mu.Unlock()
		return invalidError(call, "%#x is not the start of a block from %s", p, from)
	}
	d.blocks[i].Value.leaving = true // queued kernels may still access it
	streams := slices.Clone(d.streams)
	d.mu.Unlock()

	for _, s := range streams {
		s.drain()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i = d.blocks.Starting(p); i < 0 {
		return nil // Close came first, and gave it back
	}
	b := d.blocks[i]
	d.blocks.Remove(i, i+1)
	if err := d.unmapBlock(b); err != nil {
		return &driver.Error{Call: call, Code: driver.ErrLost, Detail: fmt.Sprintf("unmap %#x: %v", p, err)}
	}
	return nil
}

// unmapBlock returns the memory of a block to the system. d.mu is held.
func (d *device) unmapBlock(b spans.Entry[block]) error {
	if !b.Value.imported {
		d.used -= b.Size
	}
	err := unmapMemory(b.At, b.Size)
	if b.Value.export != nil {
		err = errors.Join(err, b.Value.export.memory.close())
	}
	return err
}

// NewStream starts a goroutine. It uses the number of a closed stream again, and continues its ticks, so that the marks
// of the closed stream stay reached.
func (d *device) NewStream(o driver.StreamOptions) (driver.Stream, error) {
	if o.Foreign != 0 {
		return nil, &driver.Error{
			Call: "NewStream", Code: driver.ErrUnsupported, Detail: "streams of this device have no handles",
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, closedError("NewStream")
	}
	for i, old := range d.streams {
		if i == 0 {
			continue
		}
		if tick, ended := old.ended(); ended {
			d.streams[i] = newStream(d, old.id, tick)
			return d.streams[i], nil
		}
	}
	s := newStream(d, driver.StreamID(len(d.streams)), 0)
	d.streams = append(d.streams, s)
	return s, nil
}

func (d *device) DefaultStream() driver.Stream {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.streams[0]
}

func (d *device) VirtualMemory() driver.VirtualMemory {
	if d.physical == nil {
		return nil
	}
	return virtualMemory{d}
}

func (d *device) Kernels() driver.Kernels { return kernels{d} }

// Close ends the streams' goroutines. It returns the errors of queued work that no Sync has returned.
func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	streams := d.streams
	d.mu.Unlock()

	for _, s := range streams {
		s.shut()
	}
	var errs []error
	for _, s := range streams {
		errs = append(errs, s.end())
	}
	d.mu.Lock()
	events := slices.Collect(maps.Keys(d.events))
	d.mu.Unlock()
	for _, e := range events {
		errs = append(errs, e.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.blocks {
		errs = append(errs, d.unmapBlock(b))
	}
	d.blocks = nil
	errs = append(errs, d.pins.freeAll())
	errs = append(errs, d.closePages())
	return errors.Join(errs...)
}

// lookUp fails unless the n bytes at p are in one block, or in mapped pages of one reservation, of this device or of
// another whose memory it may use.
func (d *device) lookUp(call string, p driver.Pointer, n int64) error {
	if n < 0 {
		panic(fmt.Sprintf("driver/host: %s of %d bytes", call, n))
	}
	if n == 0 {
		return nil
	}
	d.mu.RLock()
	own := d.inBlock(p, n) || d.inPages(p, n, nil)
	closed, peers := d.closed, d.peers
	d.mu.RUnlock()
	if own || slices.ContainsFunc(peers, func(o peer) bool { return o.allows(d, p, n) }) {
		return nil
	}
	if closed { // checked last, because kernels still run while Close waits
		return closedError(call)
	}
	return invalidError(call, "the %d bytes at %#x are not in one block, nor in mapped pages of one reservation", n, p)
}

// inBlock reports whether n > 0 bytes at p are in one block, and not in two adjacent ones. d.mu is held.
func (d *device) inBlock(p driver.Pointer, n int64) bool {
	i := d.blocks.Find(p)
	return i >= 0 && n <= int64(d.blocks[i].End()-p)
}

// inPages reports whether n > 0 bytes at p are in mapped pages of one reservation, shared with a peer unless it is nil.
// d.mu is held.
func (d *device) inPages(p driver.Pointer, n int64, with *device) bool {
	i := d.reserved.Find(p)
	if i < 0 || n > int64(d.reserved[i].End()-p) {
		return false
	}
	mapped := d.reserved[i].Value.mapped
	from, to, ok := mapped.Run(p, n)
	return ok && (with == nil || !slices.ContainsFunc(mapped[from:to], func(e spans.Entry[mapping]) bool {
		return !slices.Contains(e.Value.peers, with)
	}))
}

// wholePages rounds size up to pages of the operating system, and sizes near the end of int64 down.
func wholePages(size int64) int64 {
	if size > math.MaxInt64-pageSize {
		return math.MaxInt64 - math.MaxInt64%pageSize
	}
	return (size + pageSize - 1) / pageSize * pageSize
}

func closedError(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: "the device"}
}

func invalidError(call, format string, args ...any) error {
	return &driver.Error{Call: call, Code: driver.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}
