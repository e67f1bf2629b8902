package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// freeMemory is how many bytes of the machine's memory can be filled: what Linux says is available, within the limit of
// the container; elsewhere all that the machine has.
func freeMemory() (int64, error) {
	dev, err := driver.Open("host")
	if err != nil {
		return 0, err
	}
	free := dev.Info().TotalMemory
	if err := dev.Close(); err != nil {
		return 0, err
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

// hostReserve is what is left to the rest of the machine.
const hostReserve = 256 << 20

// tellFrom is how many bytes of requests take long enough to be told of.
const tellFrom = 4 << 30

// hostCost says how much a replay of w on real memory writes and reads, if that takes more than a few seconds.
func hostCost(w *replay.Work, rows int) string {
	var bytes int64
	for i := range w.Program.Ops {
		if w.Program.Ops[i].Kind == trace.OpAlloc {
			bytes += w.Program.Ops[i].Size
		}
	}
	if bytes*int64(rows) < tellFrom {
		return ""
	}
	each := ""
	if rows > 1 {
		each = fmt.Sprintf(" for each of %d rows", rows)
	}
	return fmt.Sprintf("--device host fills every block and checks it: %s to write and as much to read%s; "+
		"--device sim takes a moment", bytesize.Format(bytes), each)
}

// fits refuses work that needs more memory than opts.Capacity, as a simulated device shows without any.
func fits(w *replay.Work, opts *replay.CompareOptions) error {
	c, err := replay.Compare(w, replay.CompareOptions{Specs: opts.Specs, Limit: opts.Limit})
	if err != nil {
		return err
	}
	for i := range c.Rows {
		if need := c.Rows[i].ReservedPeak + hostReserve; need > opts.Capacity {
			return fmt.Errorf("%s needs %s of real memory under --device host, and %s is there: choose a smaller trace, give a "+
				"--limit, or use --device sim, which needs none", rowName(c, c.Rows[i].Allocator), bytesize.Format(need),
				bytesize.Format(opts.Capacity))
		}
	}
	return nil
}
