// Package host is a device made of the memory of the machine that the program runs on, with goroutines as streams.
//
// It is registered as "host" and shows to real bytes what driver/sim shows on paper: what a driver hands out can be
// written, what is read was written, and streams run at the same time as their callers and as each other.
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
//
// Info().TotalMemory is the machine's memory, or Options.Total. It is a budget: Available is the total less what this
// device has handed out, whatever other programs hold, and the operating system finds memory only as it is touched. A
// program that touches more than the machine has is at its mercy, as ever: set a total. Limits of containers are not
// looked at.
//
// Invariants: handed out = the sum of the blocks' rounded sizes + the sum of the pages that are not dropped or still
// mapped <= total. done <= queued on every stream. Mapped ranges lie in one reservation each and do not overlap.
//
// Errors: a call whose addresses are not all in one block, or in mapped pages of one reservation, is driver.ErrInvalid
// at once. What fails while queued work runs is kept, the first of each stream, until that stream's next Sync or Close
// returns it; CopyOut returns it too, without taking it. It is a *driver.Error whose Code is the error of a kernel,
// ErrPanic if the kernel panicked or ended its goroutine, or ErrFault if the memory was unmapped under queued work (or
// the machine had none left for it). Later work of the stream is done all the same.
//
// Locks: device.mu, then stream.mu. No lock is held while work runs or is waited for. A kernel that calls its device
// may wait for itself for ever, as package driver warns.
//
// It does not run on operating systems other than Linux, macOS and Windows (Open says driver.ErrUnsupported), give
// priorities to streams, or check that accesses of two streams are ordered: driver/sim does that.
package host

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// What can happen to queued work, as the Code of an error from Sync, Close or CopyOut.
var (
	ErrFault = errors.New("memory fault in queued work")
	ErrPanic = errors.New("kernel panicked")
)

// Options describe a device. The zero value is the whole machine.
type Options struct {
	Total       int64 // bytes that Alloc and Create may hand out; 0: the memory of the machine
	Granularity int64 // bytes, a power of two and at least the system's page size; 0: 2 MiB, as on NVIDIA's devices
}

const defaultGranularity = 2 << 20

// Open opens a device. Each has its own streams and budget; devices do not know of each other.
func Open(o Options) (driver.Device, error) {
	invalid := func(format string, args ...any) error {
		return &driver.Error{Call: "Open", Code: driver.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
	}
	if o.Total < 0 {
		return nil, invalid("total of %d bytes: want a positive size", o.Total)
	}
	if o.Granularity == 0 {
		o.Granularity = defaultGranularity
	}
	if o.Granularity < pageSize || bits.OnesCount64(uint64(o.Granularity)) != 1 {
		return nil, invalid("granularity of %d bytes: want a power of two, at least %d", o.Granularity, pageSize)
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
	pages, err := openPhysical()
	if err != nil {
		return nil, &driver.Error{Call: "Open", Code: driver.ErrUnsupported, Detail: err.Error()}
	}
	return newDevice(o, pages), nil
}

// pageSize is the operating system's: blocks from Alloc are rounded up to it and aligned by it.
var pageSize = int64(os.Getpagesize())

func deviceName() string { return "host memory, " + runtime.GOOS + "/" + runtime.GOARCH }

type hostDriver struct{}

func init() { driver.Register("host", hostDriver{}) }

// Open reads "total=SIZE,granularity=SIZE", both optional.
func (hostDriver) Open(args string) (driver.Device, error) {
	var o Options
	for field := range strings.SplitSeq(args, ",") {
		if strings.TrimSpace(field) == "" {
			continue
		}
		key, value, _ := strings.Cut(field, "=")
		size, err := bytesize.Parse(value)
		switch key = strings.TrimSpace(key); {
		case key != "total" && key != "granularity":
			err = fmt.Errorf("unknown setting %q: the host driver has total=SIZE and granularity=SIZE", key)
		case err == nil && size == 0:
			err = fmt.Errorf("want a positive size")
		case key == "total":
			o.Total = size
		default:
			o.Granularity = size
		}
		if err != nil {
			return nil, &driver.Error{Call: "Open", Code: driver.ErrInvalid, Detail: fmt.Sprintf("%s: %v", field, err)}
		}
	}
	return Open(o)
}
