package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/replay"
)

type replayCmd struct {
	traceArgs
	Allocators []string `name:"allocator" short:"a" sep:"none" placeholder:"NAME[:SETTINGS]" help:"An allocator to compare; may be repeated. NAME is caching, PyTorch's policy: alone with the recorded settings, with a colon and nothing after it with PyTorch's defaults, or with SETTINGS in the syntax of PYTORCH_CUDA_ALLOC_CONF; bfc, TensorFlow's policy; arena, which compacts by moving blocks when its memory is full; paged, which remaps pages instead; planned, which follows a plan of the trace, or the plan in the file SETTINGS; or direct, which calls the driver for each block."`
	Device     string   `default:"sim" placeholder:"DEVICE" help:"Where to replay: sim is simulated and needs no memory; host, or a device that \"ashlar devices\" lists, such as cuda:0, is real memory, and every block is filled and checked, which takes longer."`
	Capacity   size     `placeholder:"SIZE" help:"Memory of the device (default: an H200's, 139.8GiB; of a real device its free memory)."`
	Limit      limit    `placeholder:"SIZE" help:"Limit of the memory that each allocator reserves: a size, or a multiple of the lower bound, such as 1.004x."`
	Smallest   bool     `help:"Search for the smallest limit under which the trace completes, to 1 MiB."`
	JSON       bool     `name:"json" xor:"form" help:"Print one JSON object for each row."`
	Markdown   bool     `xor:"form" help:"Print one Markdown table of all traces, without measured times."`

	free int64 // of the device, if it is a real one
}

// Help implements kong.HelpProvider.
func (*replayCmd) Help() string {
	return `Replays the recorded requests on each allocator and prints a row for each:

    requested, allocated, reserved   the peaks of memory, in bytes
    waste                            reserved over requested
    driver calls, driver time        calls to the driver for memory, and the time they would take
    later                            the same after the first third of the work; the time also as a part of the
                                     recorded time
    stalls                           calls that waited for work of the device
    retries                          requests that needed the cache freed first
    ns/op                            the measured time of an operation

A row that ran out of memory shows how far it got. The best row is marked with *: of the rows that complete, the one that
reserves the least or, with --smallest, the one that completes under the smallest limit. That limit is also printed as a
multiple of the bound. The last row is the lower bound: the requested peak, without driver calls. A request that failed when
it was recorded counts in the bound, with the memory in use at that moment, since a row that completes has room for it too.
In 100 columns, or on a narrower terminal, some columns are left out; --json has all of them.

For stalls, a simulated device assumes the slowest possible program: work on a block begins when the block is allocated, and
continues after its free until a call waits for it.

Without --allocator the rows are: the recorded settings, expandable segments, size rounding and a split limit (the best of a
few values) and, if there is a limit, garbage collection.

--allocator arena moves blocks to make room, which the program must permit (in Go: mem.Movable). Blocks of private pools are
not moved, because captured graphs contain their addresses. A note below the table reports the moves. SETTINGS are
round=SIZE, page=SIZE, size=SIZE, limit=SIZE, bounce=SIZE and compact=off.

--allocator direct calls the driver for each block. SETTINGS are limit=SIZE and session=on, which keeps freed blocks until the
cache is emptied or a request finds no room. Arena and direct reuse memory at once that other streams still use, and wait for
those streams. They may therefore reserve less than the requested peak, which counts memory until no stream uses it.

--allocator paged does not move blocks: it maps pages of memory where they are needed. SETTINGS are limit=SIZE, page=SIZE,
keep=SIZE, spare=SIZE, addresses=SIZE and aliases=off. --allocator planned places all requests of the trace in advance
("ashlar plan" writes such plans), and serves requests outside the plan from paged memory.

If the recorded run ran out of memory and neither --limit nor --capacity is given, the other rows may reserve as much as that
run did. If no row completes, the smallest limits under which they would complete are searched.

A file whose name ends in .script is text with one request a line, to try an idea or to report a bug:

    device sim total=1GiB    # the amount of memory; optional
    alloc a 300MiB
    alloc b 20KiB on=s1      # on another stream
    free a

--device host or cuda:0 writes a pattern into every block and checks it. For each row this takes as long as writing and
reading the bytes of all requests. The driver's time is then measured, and calls can stall only for the writing of patterns.

--limit 1.004x is 1.004 times the lower bound, rounded down to a whole byte.

Examples:

    ashlar replay run.pickle
    ashlar replay --smallest -a caching -a caching:expandable_segments:True run.pickle
    ashlar replay --smallest -a caching -a arena -a paged -a planned run.pickle
    ashlar replay --limit 18.2GiB -a 'caching:max_split_size_mb:256,garbage_collection_threshold:0.8' run.pickle
    ashlar replay --device host small.pickle
    ashlar replay --device cuda:0 -a caching run.pickle
    ashlar replay --device cuda:0 --limit 1.004x -a arena run.pickle
    ashlar replay --json run.pickle | jq .reserved_peak
    ashlar replay --markdown --smallest -a caching -a bfc *.pickle`
}

// now is the clock for measured times.
var now = time.Now

// rowLine is the output of --json. Unknown values are null.
type rowLine struct {
	Trace         string   `json:"trace"`
	Device        int      `json:"device"`
	Limit         *int64   `json:"limit"` // of every row; of the recorded one if it could be other than recorded
	Allocator     string   `json:"allocator"`
	Allocs        int      `json:"allocs"`
	RequestedPeak int64    `json:"requested_peak"`
	AllocatedPeak int64    `json:"allocated_peak"`
	ReservedPeak  *int64   `json:"reserved_peak"`
	SmallestLimit *int64   `json:"smallest_limit"`
	DriverCalls   int64    `json:"driver_calls"`
	DriverNS      *int64   `json:"driver_ns"` // modelled, or measured on a real device
	Stalls        int64    `json:"stalls"`
	Retries       int64    `json:"retries"`
	OOMs          int      `json:"ooms"`
	Compactions   *int64   `json:"compactions"` // of an allocator that moves blocks
	MovedBytes    *int64   `json:"moved_bytes"`
	NsPerOp       *float64 `json:"ns_per_op"`

	OverBound    *float64 `json:"smallest_over_requested"` // the smallest limit, over what the row "bound" requests
	LaterCalls   *int64   `json:"driver_calls_after_third"`
	LaterNS      *int64   `json:"driver_ns_after_third"`
	LaterPercent *float64 `json:"driver_percent_after_third"` // of the time that was recorded
	LaterStalls  *int64   `json:"stalls_after_third"`
}

// Run implements the command.
func (c *replayCmd) Run(s *streams) error {
	for _, spec := range c.Allocators {
		if err := checkAllocator(spec); err != nil {
			return err
		}
	}
	if err := checkDevice(c.Device); err != nil {
		return err
	}
	if c.Device != simulated {
		var err error
		if c.free, err = freeMemory(c.Device); err != nil {
			return err
		}
	}
	first := true
	return c.each(s, func(in *input, p *progress) error {
		p.at("replaying " + in.name())
		works, err := in.works()
		if err != nil {
			return err
		}
		var results []*replay.Comparison
		for _, w := range works {
			result, err := c.compare(w, in, p)
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		p.end()
		for _, result := range results {
			if err := c.write(s.out, in, result, first, len(works) > 1); err != nil {
				return err
			}
			first = false
		}
		if !slices.ContainsFunc(results, noneCompleted) {
			return nil
		}
		return exit(exitNoRoom)
	})
}

// write writes the comparison of one device: the first of all, or a later one, of a trace with one or several devices.
func (c *replayCmd) write(to *page, in *input, result *replay.Comparison, first, several bool) error {
	switch {
	case c.JSON:
		return writeRows(to, in, result)
	case c.Markdown:
		if first {
			writeMarkdownHeader(to, c.Smallest)
		}
		writeMarkdownRows(to, in, result, c.Smallest, several)
	default:
		if !first {
			fmt.Fprintln(to)
		}
		writeComparison(to, in, result, c.Device, several)
	}
	return nil
}

func completed(r replay.Row) bool { return r.Completed() }

func noneCompleted(c *replay.Comparison) bool { return !slices.ContainsFunc(c.Rows, completed) }

// checkAllocator returns an error for a spec that names no allocator: wrong usage, unless the file of a plan is wrong.
func checkAllocator(spec string) error {
	_, err := replay.ParseSpec(spec, caching.Default())
	var plan *planned.FileError
	var unread *os.PathError
	switch {
	case errors.As(err, &plan), errors.As(err, &unread): // the file of a plan
		return err
	case err != nil:
		return usageError{err}
	}
	return nil
}

func (c *replayCmd) compare(w *replay.Work, in *input, p *progress) (*replay.Comparison, error) {
	opts := replay.CompareOptions{
		Specs: c.Allocators, Limit: c.Limit.of(w), Capacity: int64(c.Capacity), Smallest: c.Smallest,
		Now: now, Progress: p.update,
	}
	if c.Device != simulated {
		if err := c.onReal(w, &opts); err != nil {
			return nil, err
		}
		if text := fillCost(c.Device, w, len(opts.Specs)); text != "" {
			p.say("ashlar: " + in.name() + ": " + text)
		}
	}
	return replay.Compare(w, opts)
}

// onReal sets opts to replay on real memory, if there is enough.
func (c *replayCmd) onReal(w *replay.Work, opts *replay.CompareOptions) error {
	if opts.Limit == 0 && opts.Capacity == 0 {
		opts.Limit = w.RecordedLimit
	}
	if opts.Capacity == 0 && w.Capacity > 0 {
		opts.Capacity = w.Capacity
	}
	if opts.Capacity == 0 || opts.Capacity > c.free {
		opts.Capacity = c.free
	}
	if opts.Specs == nil {
		var err error
		if opts.Specs, err = replay.DefaultSpecs(w, replay.CompareOptions{Limit: opts.Limit}); err != nil {
			return err
		}
	}
	if err := fits(c.Device, w, opts); err != nil {
		return err
	}
	opts.Contents = replay.WholeContents
	opts.OpenDevice = func(capacity int64) (driver.Device, error) { return openReal(c.Device, capacity) }
	return nil
}

func writeRows(w io.Writer, in *input, c *replay.Comparison) error {
	known := func(n int64, ok bool) *int64 {
		if !ok {
			return nil
		}
		return &n
	}
	var failures []error
	for _, r := range slices.Concat(c.Rows, []replay.Row{c.Bound}) {
		line := rowLine{
			Trace: in.path, Device: c.Work.Device, Limit: known(c.Limit, c.Limit > 0), Allocator: r.Allocator,
			Allocs:        r.Allocs,
			RequestedPeak: r.RequestedPeak, AllocatedPeak: r.AllocatedPeak,
			ReservedPeak:  known(r.ReservedPeak, r.ReservedPeak >= 0),
			SmallestLimit: known(r.SmallestLimit, r.SmallestLimit > 0),
			DriverCalls:   r.DriverCalls, DriverNS: known(int64(r.DriverTime), r.DriverTime >= 0), Stalls: r.Stalls,
			Retries: r.Retries, OOMs: r.OOMs,
		}
		if over := c.OverBound(&r); over > 0 {
			line.OverBound = &over
		}
		if l := r.Later; l != nil {
			line.LaterCalls, line.LaterStalls = &l.DriverCalls, &l.Stalls
			line.LaterNS = known(int64(l.DriverTime), l.DriverTime >= 0)
			if share := l.Share(); share >= 0 {
				share *= 100
				line.LaterPercent = &share
			}
		}
		if r.Moves != nil {
			line.Compactions, line.MovedBytes = &r.Moves.Compactions, &r.Moves.Bytes
		}
		if r.NsPerOp > 0 {
			line.NsPerOp = &r.NsPerOp
		}
		failures = append(failures, json.NewEncoder(w).Encode(line))
	}
	return errors.Join(failures...)
}
