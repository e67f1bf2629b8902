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
