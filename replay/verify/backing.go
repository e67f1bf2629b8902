package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay/internal/pattern"
)

// A backing maps the recorded addresses of a replay to memory of a real device: each segment to a segment of the same
// size, and each page to a page. It paints every block when it is allocated and compares it when its free completes, so
// it detects blocks that overlap. The allocator still works with the recorded addresses.
//
// Memory stays in the tables until the device has freed it, so that end can try again.
//
// Invariant: segments do not overlap, neither at their recorded addresses nor on the device. (A reservation in which no
// page is ever mapped has no recorded address. Such reservations share one, but differ on the device.)
type backing struct {
	dev      driver.Device
	stream   driver.Stream
	painter  pattern.Painter
	segments []segment                // by recorded address
	pages    map[uint64]driver.Page   // by recorded ID
	mapped   map[driver.Pointer]int64 // sizes, by address on the device
	painted  map[driver.Pointer]painted
	last     uint64 // number of the last painted block
	blocks   int    // number of compared blocks
	bytes    int64  // bytes of compared blocks
	err      error  // the first failure; later calls do nothing

	entry func() int // the trace entry at which the current call began
}

// A segment is a segment or a reservation, with its recorded address and its address on the device.
type segment struct {
	recorded, real driver.Pointer
	size           int64
	reserved       bool
}

type painted struct {
	number uint64
	size   int64 // bytes
}

// The sizes of mem/caching's blocks are multiples of blockUnit. Events have the requested sizes, which may be less.
const blockUnit = 512

func newBacking(dev driver.Device, entry func() int) (*backing, error) {
	p, err := pattern.New(dev, dev, false)
	if err != nil {
		return nil, fmt.Errorf("prepare to check contents: %w", err)
	}
	return &backing{
		dev: dev, stream: dev.DefaultStream(), painter: p, entry: entry,
		pages: map[uint64]driver.Page{}, mapped: map[driver.Pointer]int64{}, painted: map[driver.Pointer]painted{},
	}, nil
}

// fail keeps the first error, and reports whether there is one.
func (b *backing) fail(doing string, err error) bool {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("check contents: %s: %w", doing, err)
	}
	return err != nil
}

// find returns the index of the segment that contains a recorded address, or -1.
func (b *backing) find(p driver.Pointer) int {
	return slices.IndexFunc(b.segments, func(l segment) bool {
		return p >= l.recorded && p < l.recorded+driver.Pointer(l.size)
	})
}

// at returns the device address of a recorded address.
func (b *backing) at(p driver.Pointer) (driver.Pointer, bool) {
	i := b.find(p)
	if i < 0 {
		b.fail(fmt.Sprintf("find recorded address %#x", p), errors.New("it is in no segment"))
		return 0, false
	}
	return b.segments[i].real + p - b.segments[i].recorded, true
}

// add allocates a segment, or reserves addresses.
func (b *backing) add(p driver.Pointer, size int64, reserved bool) {
	if b.err != nil {
		return
	}
	l := segment{recorded: p, size: size, reserved: reserved}
	var err error
	if reserved {
		vm := b.dev.VirtualMemory()
		if vm == nil {
			b.fail("reserve addresses", &driver.Error{
				Call: "VirtualMemory", Code: driver.ErrUnsupported, Detail: "the recording has expandable segments",
			})
			return
		}
		l.real, err = vm.Reserve(size)
	} else {
		l.real, err = b.dev.Alloc(size)
	}
	if err != nil {
		b.fail(fmt.Sprintf("allocate %d bytes for the segment at %#x", size, p), err)
		return
	}
	b.segments = append(b.segments, l)
}

// remove frees a segment or a reservation of add.
func (b *backing) remove(p driver.Pointer) {
	if b.err != nil {
		return
	}
	i := slices.IndexFunc(b.segments, func(l segment) bool { return l.recorded == p })
	if i < 0 {
		b.fail(fmt.Sprintf("free %#x", p), errors.New("it is not a segment"))
		return
	}
	if !b.fail(fmt.Sprintf("free the segment at %#x", p), b.segments[i].release(b.dev)) {
		b.segments = slices.Delete(b.segments, i, i+1)
	}
}

func (l segment) release(dev driver.Device) error {
	if l.reserved {
		return dev.VirtualMemory().Release(l.real, l.size)
	}
	return dev.Free(l.real)
}

// mapPages creates the pages with their recorded IDs and maps them.
func (b *backing) mapPages(p driver.Pointer, pages []driver.Page) {
	if b.err != nil {
		return
	}
	at, ok := b.at(p)
	if !ok {
		return
	}
	vm := b.dev.VirtualMemory()
	var created []driver.Page
	for _, page := range pages {
		c, err := vm.Create(page.Size)
		if err != nil {
			b.fail(fmt.Sprintf("create a page of %d bytes", page.Size), err)
			return
		}
		b.pages[page.ID] = c
		created = append(created, c)
	}
	if b.fail("map pages", vm.Map(at, created...)) {
		return
	}
	for _, page := range created {
		b.mapped[at] = page.Size
		at += driver.Pointer(page.Size)
	}
}

// unmap unmaps pages. Their blocks have been compared, so no work uses them.
func (b *backing) unmap(p driver.Pointer, size int64) {
	if b.err != nil {
		return
	}
	at, ok := b.at(p)
	if !ok || b.fail("unmap pages", b.dev.VirtualMemory().Unmap(at, size)) {
		return
	}
	for end := at + driver.Pointer(size); at < end && b.mapped[at] > 0; {
		next := at + driver.Pointer(b.mapped[at])
		delete(b.mapped, at)
		at = next
	}
}

// drop frees a page. A page that was never mapped was never created here.
func (b *backing) drop(page driver.Page) {
	if c, ok := b.pages[page.ID]; ok && b.err == nil && !b.fail("drop a page", b.dev.VirtualMemory().Drop(c)) {
		delete(b.pages, page.ID)
	}
}

// observe paints and compares blocks as the allocator reports them.
func (b *backing) observe(e mem.Event) {
	if b.err != nil {
		return
	}
	switch e.Action {
	case mem.ActionAlloc:
		at, ok := b.at(e.Ptr)
		if !ok {
			return
		}
		b.last++
		size := (e.Size + blockUnit - 1) / blockUnit * blockUnit
		b.painted[e.Ptr] = painted{b.last, size}
		b.fail("paint a block", b.painter.Paint(b.stream, driver.Range{Ptr: at, Size: size}, b.last))
	case mem.ActionFreeCompleted:
		b.compare(e.Ptr)
	}
}

// compare checks a block that is no longer in use.
func (b *backing) compare(p driver.Pointer) {
	was, ok := b.painted[p]
	if !ok {
		return // placed by a restored pool, without a request
	}
	delete(b.painted, p)
	at, ok := b.at(p)
	if !ok {
		return
	}
	diff, err := b.painter.Compare(b.stream, driver.Range{Ptr: at, Size: was.size}, was.number)
	if b.fail("compare a block", err) {
		return
	}
	b.blocks++
	b.bytes += was.size
	if diff != nil {
		b.err = &ContentsError{
			Op: b.entry(), Block: mem.Block{Ptr: p, Size: was.size}, Offset: diff.Offset, Want: diff.Want,
			Got: diff.Got,
		}
	}
}

// end compares the remaining blocks and frees all memory. After a failure it still frees as much as possible. The error
// is the first failure, joined with the first error of freeing.
func (b *backing) end() error {
	for _, p := range slices.Sorted(maps.Keys(b.painted)) {
		if b.err == nil {
			b.compare(p)
		}
	}
	stayed := errors.Join(b.stream.Sync(context.Background()), b.painter.Close())
	give := func(err error) {
		if stayed == nil && err != nil {
			stayed = err
		}
	}
	vm := b.dev.VirtualMemory()
	for at, size := range b.mapped {
		give(vm.Unmap(at, size))
	}
	for _, page := range b.pages {
		give(vm.Drop(page))
	}
	for _, l := range b.segments {
		give(l.release(b.dev))
	}
	if stayed != nil {
		stayed = fmt.Errorf("check contents: free the device's memory: %w", stayed)
	}
	return errors.Join(b.err, stayed)
}
