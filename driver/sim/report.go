package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
)

// An Access is one declared access to memory.
type Access struct {
	Seq    uint64          // number of the call on the device that made it, from 1
	Host   bool            // made by the host, on no stream
	Stream driver.StreamID // with Tick, if not by the host
	Tick   uint64
	Call   Call
	Kernel string // name, if Call is CallLaunch
	Graph  uint64 // number of the graph that was launched, or 0; Seq is then the launch, and the rest as captured
	Node   int    // number of the piece of work in the graph, from 1 in the order of the capture
	Write  bool
	Range  driver.Range // as it was declared
	Site   string       // file and line of the caller, with Options.CallSites
}

// same reports whether two records are of one access: a call may make several, to different ranges or both ways.
func (a *Access) same(b *Access) bool {
	return a.Seq == b.Seq && a.Node == b.Node && a.Write == b.Write && a.Range == b.Range
}

// String describes the access: its call, stream, range and call site.
func (a *Access) String() string {
	var b strings.Builder
	what := "read"
	if a.Write {
		what = "write"
	}
	fmt.Fprintf(&b, "%s of [%#x, +%d) by ", what, uint64(a.Range.Ptr), a.Range.Size)
	if a.Call == CallLaunch {
		fmt.Fprintf(&b, "kernel %q", a.Kernel)
	} else {
		b.WriteString(a.Call.String())
	}
	if a.Graph != 0 {
		fmt.Fprintf(&b, ", piece %d of graph %d", a.Node, a.Graph)
	}
	if a.Host {
		fmt.Fprintf(&b, " on the host (call %d)", a.Seq)
	} else {
		fmt.Fprintf(&b, " on stream %d (call %d)", a.Stream, a.Seq)
	}
	if a.Site != "" {
		b.WriteString(" at " + a.Site)
	}
	return b.String()
}

// A RaceError is two accesses to the same bytes, at least one of them a write, that the program does not order.
// errors.As finds it in the error of the call that made the second.
type RaceError struct {
	First, Second Access
	Range         driver.Range // first run of bytes that they share, by the second's addresses
}

func (e *RaceError) Error() string {
	return fmt.Sprintf("race on [%#x, +%d): %v does not come after %v; order them with Mark and WaitFor, or wait "+
		"for the first with Sync", uint64(e.Range.Ptr), e.Range.Size, &e.Second, &e.First)
}

// An AccessError is an access to memory that does not exist, or that a kernel had not declared. It matches
// driver.ErrInvalid.
type AccessError struct {
	Kind   AccessKind
	Access Access
	Detail string
}

func (e *AccessError) Error() string { return fmt.Sprintf("%v: %v: %s", e.Kind, &e.Access, e.Detail) }

// Unwrap returns driver.ErrInvalid.
func (e *AccessError) Unwrap() error { return driver.ErrInvalid }

// An AccessKind says what is wrong with an access.
type AccessKind uint8

const (
	UseAfterFree AccessKind = iota + 1 // the address was freed or released: known of the last 1024
	OutOfBounds                        // the range leaves its allocation or reservation
	NotMapped                          // the address is reserved, but no page is there
	NotAllocated                       // the address belongs to nothing
	Undeclared                         // a kernel did not declare it
)

var accessKinds = [...]string{
	"valid", "use after free", "out of bounds", "not mapped", "not allocated", "not declared",
}

func (k AccessKind) String() string {
	if int(k) < len(accessKinds) {
		return accessKinds[k]
	}
	return "unknown"
}

// Reports returns every *RaceError and *AccessError so far, in the order of the calls that made them.
func (d *Device) Reports() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.reports)
}

// Leaks lists everything that a device still holds, in ascending order.
type Leaks struct {
	Allocations  []driver.Range
	Reservations []driver.Range
	Pages        []driver.Page // not dropped, or still mapped
	Streams      []driver.StreamID
	Pinned       []int64 // bytes of page-locked memory, registered memory too, in the order of the calls
	Stamps       []uint64
	Graphs       []uint64 // numbered from 1 in the order in which their captures ended
}

// Empty reports whether the lists are empty.
func (l *Leaks) Empty() bool {
	return len(l.Allocations)+len(l.Reservations)+len(l.Pages)+len(l.Streams)+
		len(l.Pinned)+len(l.Stamps)+len(l.Graphs) == 0
}

// String lists everything on one line.
func (l *Leaks) String() string {
	if l.Empty() {
		return "nothing"
	}
	text := fmt.Sprintf("allocations %x, reservations %x, pages %v, streams %v",
		l.Allocations, l.Reservations, l.Pages, l.Streams)
	if len(l.Pinned)+len(l.Stamps)+len(l.Graphs) > 0 {
		text += fmt.Sprintf(", pinned %v, stamps %v, graphs %v", l.Pinned, l.Stamps, l.Graphs)
	}
	return text
}

// Leaks returns what is allocated, reserved, created, open, page-locked, stamped and captured now. For a closed device
// it returns the state at Close. The default stream does not count.
func (d *Device) Leaks() *Leaks {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.leaks
	}
	return d.alive()
}

func (d *Device) alive() *Leaks {
	l := &Leaks{}
	for i := d.allocs.first(); d.allocs.valid(i); i = d.allocs.next(i) {
		e := d.allocs.at(i)
		l.Allocations = append(l.Allocations, driver.Range{Ptr: driver.Pointer(e.start), Size: int64(e.size)})
	}
	for i := d.reservations.first(); d.reservations.valid(i); i = d.reservations.next(i) {
		e := d.reservations.at(i)
		l.Reservations = append(l.Reservations, driver.Range{Ptr: driver.Pointer(e.start), Size: int64(e.size)})
	}
	for _, pg := range d.pages {
		l.Pages = append(l.Pages, driver.Page{ID: pg.id, Size: pg.size})
	}
	slices.SortFunc(l.Pages, func(a, b driver.Page) int { return int(a.ID) - int(b.ID) })
	for id := 1; id < len(d.timelines); id++ {
		if !slices.Contains(d.idle, driver.StreamID(id)) {
			l.Streams = append(l.Streams, driver.StreamID(id))
		}
	}
	for _, r := range d.regions() {
		l.Pinned = append(l.Pinned, int64(len(r.bytes)))
	}
	l.Stamps = slices.Sorted(maps.Keys(d.stamps))
	l.Graphs = slices.Sorted(maps.Keys(d.graphs))
	return l
}
