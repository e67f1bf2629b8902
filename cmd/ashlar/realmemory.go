package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// simulated is the name of the device that needs no memory.
const simulated = "sim"

// checkDevice reports a device that work cannot be replayed on: an unknown driver, or a simulated device with settings.
func checkDevice(spec string) error {
	name, _, _ := strings.Cut(spec, ":")
	if spec == simulated || name != simulated && driver.Lookup(name) != nil {
		return nil
	}
	return usageError{fmt.Errorf("--device %q: want sim, host or a device of \"ashlar devices\"", spec)}
}

// openDevice opens a device that the command line names.
func openDevice(spec string) (driver.Device, error) {
	dev, err := driver.Open(spec)
	if err != nil {
		return nil, deviceError(spec, err)
	}
	return dev, nil
}

// deviceError returns the error for a device that could not be opened. It is wrong usage, unless the device is
// unavailable or a file that the spec names is wrong.
func deviceError(spec string, err error) error {
	if !errors.Is(err, driver.ErrUnknown) && !errors.Is(err, driver.ErrInvalid) {
		return err
	}
	for _, path := range specFiles(spec) {
		f, opened := os.Open(path)
		if opened != nil {
			return fmt.Errorf("%s: %w", displayPath(path), withoutPath(opened))
		}
		defer f.Close()
		if _, read := sim.ReadCostModel(f); read != nil {
			return fmt.Errorf("%s: %w", displayPath(path), withoutPath(read))
		}
	}
	return usageError{err}
}

// openReal opens a device with real memory, at most capacity bytes of it.
func openReal(spec string, capacity int64) (driver.Device, error) {
	name, args, _ := strings.Cut(spec, ":")
	if strings.Contains(args, "total=") {
		return openDevice(spec)
	}
	if args != "" {
		args += ","
	}
	return openDevice(fmt.Sprintf("%s:%stotal=%d", name, args, capacity))
}

// openFree opens a device with the part of its memory that is free. (The system kills a process that uses more of the
// host's memory.)
func openFree(spec string) (driver.Device, error) {
	free, err := freeMemory(spec)
	if err != nil {
		return nil, err
	}
	return openReal(spec, max(free-reserve, 1))
}

// freeMemory returns how many bytes of a device can be filled. On Linux, the host has what the system says is
// available, within the limit of the container. On other systems it has all memory of the machine.
func freeMemory(spec string) (int64, error) {
	dev, err := openDevice(spec)
	if err != nil {
		return 0, err
	}
	free, _, err := dev.Available()
	if err = errors.Join(err, dev.Close()); err != nil {
		return 0, err
	}
	if spec != "host" {
		return free, nil
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
				free = min(free, kib<<10)
			}
		}
	}
	limit, err1 := readNumber("/sys/fs/cgroup/memory.max")
	used, err2 := readNumber("/sys/fs/cgroup/memory.current")
	if err1 == nil && err2 == nil && limit > used {
		free = min(free, limit-used)
	}
	return free, nil
}

func readNumber(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// reserve is the memory left for everything else.
const reserve = 256 << 20

// reportFrom is the number of requested bytes from which the time is reported.
const reportFrom = 4 << 30

// fillCost describes how much a replay of w on real memory writes and reads, if that takes more than a few seconds.
func fillCost(device string, w *replay.Work, rows int) string {
	var bytes int64
	for i := range w.Program.Ops {
		if w.Program.Ops[i].Kind == trace.OpAlloc {
			bytes += w.Program.Ops[i].Size
		}
	}
	if bytes*int64(rows) < reportFrom {
		return ""
	}
	each := ""
	if rows > 1 {
		each = fmt.Sprintf(" for each of %d rows", rows)
	}
	return fmt.Sprintf("--device %s fills every block and checks it: %s to write and as much to read%s; "+
		"--device sim takes a moment", device, bytesize.Format(bytes), each)
}

// errNoRoom is matched by the error for work that a device has too little memory for.
var errNoRoom = errors.New("no room")

// fits refuses work that needs more memory than opts.Capacity, as a simulated device shows without any.
func fits(device string, w *replay.Work, opts *replay.CompareOptions) error {
	c, err := replay.Compare(w, replay.CompareOptions{Specs: opts.Specs, Limit: opts.Limit})
	if err != nil {
		return err
	}
	for i := range c.Rows {
		if need := c.Rows[i].ReservedPeak + reserve; need > opts.Capacity {
			return fmt.Errorf("%w: %s needs %s of real memory under --device %s, and %s is available: choose a "+
				"smaller trace, give a --limit, or use --device sim, which needs none", errNoRoom,
				rowName(c, c.Rows[i].Allocator), bytesize.Format(need), device, bytesize.Format(opts.Capacity))
		}
	}
	return nil
}
