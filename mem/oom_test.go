package mem_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1024 bytes", 1025: "1.00 KiB", 1 << 20: "1024.00 KiB", 1<<20 + 1: "1.00 MiB",
		1 << 30: "1024.00 MiB", 1<<30 + 1: "1.00 GiB", 5 << 39: "2560.00 GiB",
	} {
		if got := mem.FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestOutOfMemoryMatches(t *testing.T) {
	cause := &driver.Error{Call: "Alloc", Code: driver.ErrLost}
	var err error = &mem.OutOfMemory{Requested: 1, Cause: cause}
	if !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, driver.ErrNoMemory) || !errors.Is(err, driver.ErrLost) {
		t.Error("the error does not match what it means and what caused it")
	}
	if errors.Is(err, driver.ErrClosed) {
		t.Error("the error matches what it does not mean")
	}
	if !strings.Contains(err.Error(), "the device said: driver: Alloc: device lost") {
		t.Errorf("the message lacks the cause:\n%v", err)
	}
}

// An error concludes with one cause: that of the figures, and never two that contradict each other.
func TestDefect04_AnErrorNamesOneCause(t *testing.T) {
	const mib = 1 << 20
	causes := []string{
		"expandable-segment reserve", "no setting would have let it through: it alone is more than the 1024.00 MiB that the device has",
		"your own limit of 300.00 MiB was reached, the GPU had 700.00 MiB free; the request needed 320.00 MiB in all",
		"live blocks leave too little room: 280.00 MiB is allocated of the 300.00 MiB", "what is free lies in pieces",
		"would have fitted with x: y",
	}
	base := mem.OutOfMemory{
		Requested: 20 * mib, Rounded: 20 * mib, Segment: 20 * mib, Total: 1024 * mib, Free: 700 * mib, Allowed: 300 * mib,
		Allocated: 280 * mib, Reserved: 300 * mib,
	}
	for i, change := range []func(e *mem.OutOfMemory){
		0: func(e *mem.OutOfMemory) { e.Addresses = 10 * mib },
		1: func(e *mem.OutOfMemory) { e.Segment, e.Rounded, e.Needed = 1025*mib, 1025*mib, 1325*mib },
		2: func(e *mem.OutOfMemory) { e.Needed = 320 * mib },
		3: func(e *mem.OutOfMemory) { e.Rounded = 21 * mib },
		4: func(*mem.OutOfMemory) {},
		5: func(e *mem.OutOfMemory) { e.Remedies = []mem.Remedy{{Name: "x", Reason: "y"}} },
	} {
		e := base
		change(&e)
		for j, cause := range causes {
			if strings.Contains(e.Error(), cause) != (i == j) {
				t.Errorf("%d: %q, found %v, in:\n%v", i, cause, i != j, &e)
			}
		}
	}
}

// The figures of PyTorch's message, in its order.
func TestOutOfMemoryHasPyTorchsFigures(t *testing.T) {
	const gib = 1 << 30
	err := &mem.OutOfMemory{
		Requested: 19 * gib / 10, Rounded: 19 * gib / 10, Segment: 2 * gib,
		Device: 3, Total: 140 * gib, Free: 10 * gib, Allowed: 70 * gib, Allocated: 60 * gib, Reserved: 69 * gib, PrivatePools: gib / 2,
		Processes: []mem.ProcessMemory{{PID: 12, Bytes: 5 * gib}, {PID: 13, Self: true, Bytes: 70 * gib}},
	}
	want := "Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 140.00 GiB of which 10.00 GiB is free. " +
		"Process 12 has 5.00 GiB memory in use. Including memory from elsewhere, this process has 70.00 GiB memory in use. " +
		"70.00 GiB allowed; 60.00 GiB is allocated, 512.00 MiB cached in private pools, and 8.50 GiB is reserved but unallocated."
	if !strings.Contains(err.Error(), want) {
		t.Errorf("the message lacks %q:\n%v", want, err)
	}
	if want := "the request: 1.90 GiB (2040109465 bytes) on stream 0"; !strings.Contains(err.Error(), want) {
		t.Errorf("the message lacks %q:\n%v", want, err)
	}
}

// The whole message of an error that has everything to say.
func TestOutOfMemoryExplains(t *testing.T) {
	const mib = 1 << 20
	err := &mem.OutOfMemory{
		Requested: 3*mib - 100, Rounded: 3 * mib, Segment: 20 * mib, Device: 1, Total: 1024 * mib, Free: 10 * mib,
		Allocated: 500 * mib, Reserved: 600 * mib, Stream: 4, Pool: mem.PoolID{0, 7}, LargestFree: 2 * mib,
		Cached: []mem.CachedMemory{
			{Stream: 4, Pool: mem.PoolID{0, 7}, Bytes: 5 * mib, Blocks: 3, Largest: 2 * mib},
			{Stream: 5, Small: true, Bytes: 95 * mib, Blocks: 60, Largest: mib},
		},
		Stranded: 40 * mib,
		Pinning: []mem.PinningBlock{
			{Ptr: 0x1000, Size: 1024, SegmentSize: 30 * mib, Stranded: 29 * mib, Live: 1},
			{Ptr: 0x2000, Size: 2048, SegmentSize: 20 * mib, Stranded: 11 * mib, Live: 3},
			{Ptr: 0x3000, Size: 4096, SegmentSize: 20 * mib, Stranded: 9 * mib, Live: 1, Pending: true},
		},
		Remedies: []mem.Remedy{{Name: "a", Reason: "why"}, {Name: "b", Reason: "because", Estimate: true}},
		Cause:    &mem.LimitError{Want: 20 * mib, Block: 20 * mib, Live: 600 * mib, Limit: 610 * mib},
	}
	const want = `mem: out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 1024.00 MiB of which 10.00 MiB is free. 500.00 MiB is allocated, and 100.00 MiB is reserved but unallocated.
  the request: 3.00 MiB (3145628 bytes) on stream 4, large pool of private pool (0, 7); largest free block there: 2.00 MiB
  cached on stream 4, large pool of private pool (0, 7): 5.00 MiB in 3 blocks, the largest 2.00 MiB
  cached on stream 5, small pool: 95.00 MiB in 60 blocks, the largest 1024.00 KiB
  stranded: 40.00 MiB is free but shares a segment with blocks in use
    a block of 1024 bytes at 0x1000 pins 29.00 MiB of a segment of 30.00 MiB
    a block of 2.00 KiB at 0x2000 pins 11.00 MiB of a segment of 20.00 MiB (with 2 more)
    a freed block of 4.00 KiB, which a stream may still use, at 0x3000 pins 9.00 MiB of a segment of 20.00 MiB
  would have fitted with a: why
  would have fitted with b, by estimate: because
  a limit refused it: mem: out of memory: 20.00MiB asked for, 600.00MiB of the limit of 610.00MiB allocated; free blocks or raise the limit`
	if got := err.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for want, e := range map[string]mem.OutOfMemory{
		"mem: out of memory. Tried to allocate more than 1EB memory (1152921504606846977 bytes)": {TooLarge: true, Requested: 1<<60 + 1},
		"on stream 0, small pool; largest free block there: 0 bytes":                             {Small: true},
		"the expandable-segment reserve of 5.00 MiB is too small for it: a block lies in one segment; raise expandable_segments_reserve": {
			Addresses: 5 * mib,
		},
		`the expandable-segment reserve of 5.00 MiB for class "big" is too small for it: a block lies in one segment; raise the class's entry in expandable_segments_reserve_by_class`: {
			Addresses: 5 * mib, ReserveClass: "big",
		},
		"the engine's limit of 3.00 MiB was reached": {Needed: 5 * mib, Allowed: 3 * mib, LimitName: "the engine's limit"},
		"and 0 bytes is reserved but unallocated":    {Allocated: 5 * mib, Reserved: 4 * mib},
	} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("the message lacks %q:\n%v", want, &e)
		}
	}
}

// Processes whose memory is not known are left out, and so are all if the driver does not tell.
func TestAddProcesses(t *testing.T) {
	known := []mem.ProcessMemory{{PID: 1, Bytes: 5}, {PID: 2, Bytes: -1}, {PID: 3, Bytes: 0, Self: true}}
	var e mem.OutOfMemory
	e.AddProcesses(inUse{processes: known, err: driver.ErrUnsupported})
	if len(e.Processes) != 0 {
		t.Errorf("a driver that does not tell: %+v", e.Processes)
	}
	e.AddProcesses(inUse{processes: known})
	if len(e.Processes) != 2 || e.Processes[0] != known[0] || e.Processes[1] != known[2] {
		t.Errorf("%+v", e.Processes)
	}
}

// inUse is a device that these processes use.
type inUse struct {
	driver.Device
	processes []mem.ProcessMemory
	err       error
}

func (d inUse) Processes() ([]mem.ProcessMemory, error) { return d.processes, d.err }
