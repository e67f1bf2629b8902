// Package host is a device made of the machine's own memory, with goroutines as streams. It needs no hardware: memory
// has real bytes, and streams run concurrently with their callers and with each other.
//
//	dev, err := driver.Open("host:total=1GiB") // import _ "github.com/ashlar-go/ashlar/driver/host"
//
// It is registered as "host"; see Options for the arguments. It runs on Linux, macOS and Windows; on other systems Open
// returns driver.ErrUnsupported. Virtual memory and Sharing exist on Linux only, and are nil elsewhere.
//
// The total is a budget: Available is the total less what this device has allocated, whatever other programs use, and
// the system provides memory only when it is touched. So set a total if programs could touch more than the machine has.
// Limits of containers are not considered. Page-locked and imported memory does not count.
//
// A call with addresses that are not all in one block, or in mapped pages of one reservation, returns
// driver.ErrInvalid. The first error of queued work on a stream is returned by the stream's next Sync or Close, as a
// *driver.Error. A device is safe for concurrent use. Accesses of different streams are not checked for order:
// driver/sim does that.
package host

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/numa"
)

// # Structure
//
//   - A block from Alloc is a mapping of its own from the operating system (mmap, VirtualAlloc), rounded up to whole
//     pages of it. That suits segments, not small blocks: each costs a system call and, on Linux, one of the
//     vm.max_map_count mappings that a process may have (65,530 by default).
//   - Virtual memory exists on Linux only, elsewhere VirtualMemory is nil. Reserved addresses are inaccessible
//     anonymous memory without swap reserved; a page is a range of one memfd (offsets only grow, and dropped ranges are
//     punched out, so that no offset is used twice); mapping one puts that range at the address, shared, so that a page
//     shows the same bytes wherever it is mapped.
//   - A stream is a goroutine with a queue. Every call that queues work takes a tick, the goroutine does the work in
//     order and counts the ticks done, and a mark is a tick. WaitFor queues a wait for the other stream's count.
//   - A capture records work with its ticks instead of queueing it; a graph does the recorded work in that order, as
//     one piece of work of the stream that it is launched on (capture.go, graph.go).
//   - Page-locked memory is locked where the system's limit allows, and works without (pinned.go). An asynchronous copy
//     reads it when the stream reaches the copy, as on a GPU. A stamp is the time of the machine's clock when the
//     stream reaches the stamp (timing.go).
//   - Devices of one process are each other's peers, since they share its addresses. Whether one may use memory of
//     another is checked all the same (peers.go).
//   - Memory that other processes share is a file of its own (Linux only): a page from the start, a block from its
//     Export on, which moves it there with all streams stopped (sharing_linux.go, stall_linux.go). The memory outlives
//     the process that dies first, and no process can truncate it.
//   - An event that processes share is a file in which its recorder holds a lock until the stream reaches the record.
//     The kernel wakes waiting processes, and releases the locks of a process that dies (event_linux.go).
//   - Memory may be taken from one NUMA node (Options.Node, numa.go): mbind is called before a page of a block, of a
//     memory file or of page-locked memory is touched. Memory that callers register, or other processes share, is not
//     moved.
//
// Info().TotalMemory is the machine's memory, or that of Options.Node, or Options.Total.
//
// Invariants: allocated = the sum of the blocks' rounded sizes + the sum of the pages that are not dropped or still
// mapped, without imported ones, <= total. done <= queued on every stream. Mapped ranges lie in one reservation each
// and do not overlap.
//
// Errors: a call whose addresses are not all in one block, or in mapped pages of one reservation, is driver.ErrInvalid
// at once; so is the launch of a graph whose memory was freed. The first error of the queued work of each stream is
// kept until that stream's next Sync or Close returns it; CopyOut returns it too, and keeps it. It is a *driver.Error
// whose Code is the error of a kernel, ErrPanic if the kernel panicked or ended its goroutine, or ErrFault if the
// memory was unmapped before queued work used it (or the machine had no memory left for it). Later work of the stream
// is done all the same.
//
// Locks: graph.mu, device.exporting or an event's, then device.mu, then a stream's (all of them, by number, only where
// streams are stopped), then a capture's. Those of pins and stamps are leaves. No lock except device.exporting is held
// while work runs or is waited for. A kernel that calls its device may wait for itself for ever, as package driver
// warns.

// These are the failures of queued work, as the Code of an error of Sync, Close or CopyOut.
var (
	ErrFault = errors.New("memory fault in queued work")
	ErrPanic = errors.New("kernel panicked")
)

// Options describe a device. The zero value is the whole machine.
type Options struct {
	Total       int64 // bytes that Alloc and Create may allocate; 0: the memory of the machine, or of Node
	Granularity int64 // bytes, a power of two and at least the system's page size; 0: 2 MiB, as on NVIDIA's devices
	Ordinal     int   // Info().Ordinal: for programs that open several and tell them apart

	// Node is the NUMA node from which memory is taken, its number in Nodes; nil: the node near to the processor that
	// first touches a page, as the system decides. Linux only. It is a preference: if the node is full, the system
	// takes memory of others. If the system cannot bind memory, as in a sandbox, Open ignores Node, and Info().Name
	// shows that.
	Node *int

	// Strict takes memory from Node alone, and Open fails with ErrUnsupported if the system cannot. A full node is not
	// an error then: the system reclaims and swaps memory, and at last kills a process, perhaps this one. So keep Total
	// below the free memory of the node: beyond Total the device returns ErrNoMemory.
	Strict bool
}

const defaultGranularity = 2 << 20

// Open opens a device. Each device has its own streams and budget, and can use the memory of others only through Peers.
func Open(o Options) (driver.Device, error) {
	invalid := func(format string, args ...any) error {
		return &driver.Error{Call: "Open", Code: driver.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
	}
	if o.Ordinal < 0 {
		return nil, invalid("ordinal %d: want a number from 0", o.Ordinal)
	}
	if o.Total < 0 {
		return nil, invalid("total of %d bytes: want a positive size", o.Total)
	}
	o.Granularity = cmp.Or(o.Granularity, defaultGranularity)
	if o.Granularity < pageSize || bits.OnesCount64(uint64(o.Granularity)) != 1 {
		return nil, invalid("granularity of %d bytes: want a power of two, at least %d", o.Granularity, pageSize)
	}
	place, err := o.place(sys(), numa.Bind)
	if err != nil {
		return nil, err
	}
	if o.Total == 0 {
		total, err := totalMemory()
		if err != nil {
			return nil, &driver.Error{
				Call: "Open", Code: driver.ErrUnsupported,
				Detail: fmt.Sprintf("size of the machine's memory: %v", err),
			}
		}
		o.Total = total
	}
	pages, err := openPhysical(place)
	if err != nil {
		return nil, &driver.Error{Call: "Open", Code: driver.ErrUnsupported, Detail: err.Error()}
	}
	d := newDevice(o, pages)
	d.place = place
	d.info.Name += place.String()
	return d, nil
}

// pageSize is the operating system's: blocks from Alloc are rounded up to it and aligned by it.
var pageSize = int64(os.Getpagesize())

func deviceName() string { return "host memory, " + runtime.GOOS + "/" + runtime.GOARCH }

type hostDriver struct{}

func init() { driver.Register("host", hostDriver{}) }

// Open reads "total=SIZE,granularity=SIZE,ordinal=NUMBER,node=NUMBER,near=PCI,strict=on", all optional: the names of
// Options, except near=0000:1b:00.0: it sets Node to the node near to that device of the PCI bus, if the system knows
// it.
func (hostDriver) Open(args string) (driver.Device, error) {
	var o Options
	for field := range strings.SplitSeq(args, ",") {
		if strings.TrimSpace(field) == "" {
			continue
		}
		if err := o.set(field); err != nil {
			return nil, &driver.Error{Call: "Open", Code: driver.ErrInvalid, Detail: fmt.Sprintf("%s: %v", field, err)}
		}
	}
	return Open(o)
}

func (o *Options) set(field string) (err error) {
	key, value, _ := strings.Cut(field, "=")
	switch strings.TrimSpace(key) {
	case "total":
		o.Total, err = positiveSize(value)
	case "granularity":
		o.Granularity, err = positiveSize(value)
	case "ordinal":
		if o.Ordinal, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
			err = fmt.Errorf("want a number from 0")
		}
	case "node":
		var node int
		if node, err = strconv.Atoi(strings.TrimSpace(value)); err != nil || node < 0 {
			return fmt.Errorf("want a number from 0")
		}
		o.Node = &node
	case "near":
		node, err := NodeNear(strings.TrimSpace(value))
		if err == nil {
			o.Node = &node
		} else if errors.Is(err, driver.ErrInvalid) {
			return err
		}
	case "strict":
		if o.Strict = strings.TrimSpace(value) == "on"; !o.Strict && strings.TrimSpace(value) != "off" {
			err = fmt.Errorf("want on or off")
		}
	default:
		scratch := *o
		if before, after, ok := strings.Cut(key, ":"); ok && scratch.set(before+"="+after) == nil {
			return fmt.Errorf("unknown setting %q: write %s=%s, with an equals sign", key, before, after)
		}
		err = fmt.Errorf("unknown setting %q: the host driver has total=SIZE, granularity=SIZE, ordinal=NUMBER, "+
			"node=NUMBER, near=PCI and strict=on", key)
	}
	return err
}

func positiveSize(text string) (int64, error) {
	size, err := bytesize.Parse(text)
	if err == nil && size == 0 {
		err = fmt.Errorf("want a positive size")
	}
	return size, err
}
