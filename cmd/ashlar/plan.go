package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

type planCmd struct {
	Trace   string        `arg:"" help:"A memory snapshot of PyTorch, or a .script; - is standard input."`
	Output  string        `name:"output" short:"o" required:"" placeholder:"PLAN" help:"Write the plan to this file; - is standard output."`
	Force   bool          `help:"Replace PLAN if it exists."`
	Ordinal int           `default:"-1" placeholder:"N" help:"The device to plan, if the trace has several."`
	Device  string        `placeholder:"DEVICE" help:"The device that the plan is for: one that \"ashlar devices\" lists, or sim (default: any). mem/planned refuses the plan on other devices."`
	Room    int           `placeholder:"PERCENT" help:"How much larger or smaller than recorded a request may be (default: as recorded)."`
	Apart   bool          `help:"Give each stream a part of the region for itself: for streams whose requests come in no fixed order."`
	Time    time.Duration `placeholder:"TIME" help:"Time limit of the search for a better packing, such as 30s (default: a few attempts)."`
	JSON    bool          `name:"json" help:"Print one JSON object."`
}

// Help implements kong.HelpProvider.
func (*planCmd) Help() string {
	return `Places the blocks of a trace in one region of nearly the smallest possible size, and writes the plan. In Go, planned.Read
reads it, and planned.New opens an allocator that serves the expected requests from the region in a few nanoseconds, and other
requests from another allocator.

The requests repeat if at least half of them form two or more equal rounds, and few requests follow the rounds. The plan then has
the requests before the rounds, and one round. Otherwise it has all requests in order, and serves repeated steps in any order.

Streams share the region: their requests must come in the recorded order, as they do when one goroutine makes them, and a stream
that gets another one's memory waits for it on the device. With --apart, streams run in any order, and the region is larger.

A request that failed in the recording is planned too, if the device is large enough for it. Without --device, the memory is that
of the recorded device or, if it is unknown, of an H200.

A plan with room also serves requests of other sizes: with --room 50, of up to 1.5 times the recorded size and down to two thirds
of it. Its region is larger by the same factor.

Examples:

    ashlar plan run.pickle -o run.plan
    ashlar plan --time 30s --device cuda:0 run.pickle -o run.plan
    ashlar plan --room 25 --json run.pickle -o run.plan | jq .region
    ashlar plan --apart run.pickle -o run.plan`
}

// packSteps is the number of orders that packing tries without a time limit.
const packSteps = 20

// A planSummary is the output of --json. Sizes are bytes.
type planSummary struct {
	Trace         string       `json:"trace"`
	Device        int          `json:"device"`
	Plan          string       `json:"plan"`
	PlanBytes     int64        `json:"plan_bytes"`
	Requests      int          `json:"requests"`       // of the trace, including failed ones
	TracePeak     int64        `json:"trace_peak"`     // requested bytes, including failed requests
	Slots         int          `json:"slots"`          // requests that the plan expects; it counts one round
	Placed        int          `json:"placed"`         // slots that the region serves
	RequestedPeak int64        `json:"requested_peak"` // of the placed slots, summed over the parts
	Bound         int64        `json:"bound"`
	Region        int64        `json:"region"`
	Room          int          `json:"room"`
	Streams       []planSummed `json:"streams"`
}

// A planSummed is the part of a plan for one stream, or for several that share memory.
type planSummed struct {
	Streams  []int   `json:"streams"`
	Requests int     `json:"requests"`
	Prologue int     `json:"prologue"` // slots before the rounds, or all slots
	Round    int     `json:"round"`    // slots of a round; 0: no rounds
	Rounds   float64 `json:"rounds"`   // in the trace
	Region   int64   `json:"region"`
}

// Run implements the command.
func (c *planCmd) Run(s *streams) error {
	if c.Room < 0 || c.Room > 1000 {
		return usageError{fmt.Errorf("--room %d: want 0 to 1000", c.Room)}
	}
	if c.Time < 0 {
		return usageError{fmt.Errorf("--time %v: want no less than 0", c.Time)}
	}
	device, err := c.device()
	if err != nil {
		return err
	}
	out, err := s.openOutput(c.Output, c.Force, append(specFiles(c.Device), c.Trace)...)
	if err != nil {
		return err
	}
	args := traceArgs{Traces: []string{c.Trace}}
	return args.each(s, func(in *input, p *progress) error {
		w, err := c.work(in)
		if err != nil {
			return err
		}
		p.at("planning " + in.name())
		ctx, steps := context.Background(), packSteps
		if c.Time > 0 {
			limited, cancel := context.WithTimeout(ctx, c.Time)
			defer cancel()
			ctx, steps = limited, -1
		}
		program := w.Program.Within(cmp.Or(device.TotalMemory, w.Capacity, replay.H200Memory))
		plan, err := planned.Make(ctx, program, planned.Options{
			Trace: in.name(), Device: device, Room: c.Room,
			Apart: c.Apart, Steps: steps,
		})
		if err != nil {
			return err
		}
		var n int64
		if err := out.write(func(w io.Writer) error { n, err = plan.WriteTo(w); return err }); err != nil {
			return err
		}
		p.end()
		sum := c.summary(in, w.Device, program, plan, n)
		if c.JSON {
			return json.NewEncoder(out.report(s)).Encode(&sum)
		}
		sum.write(out.report(s), in, device.Name)
		return nil
	})
}

// device returns the device of the plan.
func (c *planCmd) device() (planned.Device, error) {
	if c.Device == "" {
		return planned.Device{}, nil
	}
	dev, err := openDevice(c.Device)
	if err != nil {
		return planned.Device{}, err
	}
	info := dev.Info()
	return planned.Device{Name: info.Name, TotalMemory: info.TotalMemory, Alignment: info.Alignment}, dev.Close()
}

// work returns the work to plan.
func (c *planCmd) work(in *input) (*replay.Work, error) {
	works, err := in.works()
	if err != nil {
		return nil, err
	}
	devices := make([]int, len(works))
	for i, w := range works {
		devices[i] = w.Device
	}
	i, err := chooseDevice(devices, c.Ordinal)
	if err != nil {
		return nil, err
	}
	return works[i], nil
}

func (c *planCmd) summary(in *input, device int, work *trace.Program, p *planned.Plan, n int64) planSummary {
	requests := make([]int, work.Streams)
	all := 0
	for i := range work.Ops {
		if kind := work.Ops[i].Kind; kind == trace.OpAlloc || kind == trace.OpTry {
			requests[work.Ops[i].Stream]++
			all++
		}
	}
	sum := planSummary{
		Trace: in.path, Device: device, Plan: c.Output, PlanBytes: n, Requests: all, TracePeak: work.LowerBound(),
		RequestedPeak: p.Requested(), Bound: p.Bound(), Region: p.Size(), Room: p.Room, Streams: []planSummed{},
	}
	sum.Placed, sum.Slots = p.Slots()
	for i := range p.Streams {
		l := &p.Streams[i]
		one := planSummed{Streams: l.Numbers(), Prologue: len(l.Slots), Region: l.Size}
		for _, n := range one.Streams {
			one.Requests += requests[n]
		}
		if l.Loop >= 0 {
			one.Prologue, one.Round = l.Loop, len(l.Slots)-l.Loop
			one.Rounds = float64(one.Requests-one.Prologue) / float64(one.Round)
		}
		sum.Streams = append(sum.Streams, one)
	}
	return sum
}

func (sum *planSummary) write(w *page, in *input, device string) {
	streams := 0
	for _, l := range sum.Streams {
		streams += len(l.Streams)
	}
	fmt.Fprintf(w, "%s: a plan of %s on %s\n\n", in.name(), plural(sum.Requests, "request"),
		plural(streams, "stream"))
	field := func(name, format string, args ...any) {
		w.paragraph(pad("  "+name, -14), fmt.Sprintf(format, args...))
	}
	for _, l := range sum.Streams {
		name := "repeats"
		if len(sum.Streams) > 1 {
			name = fmt.Sprintf("stream %d", l.Streams[0])
		}
		if l.Round == 0 {
			field(name, "no rounds: %s in order, repeated steps in any order; %s",
				plural(l.Prologue, "request"), bytesize.Format(l.Region))
			continue
		}
		field(name, "%s once, then rounds of %s, of which the trace has %.1f; %s", plural(l.Prologue, "request"),
			count(l.Round), l.Rounds, bytesize.Format(l.Region))
	}
	field("served", "%s from the region, %s by the fallback", plural(sum.Placed, "request"),
		count(sum.Slots-sum.Placed))
	field("requested", "%s at the peak of the served requests, %s of the whole trace", bytesize.Format(sum.RequestedPeak),
		bytesize.Format(sum.TracePeak))
	field("bound", "%s: no region can be smaller", bytesize.Format(sum.Bound))
	field("region", "%s (%.4f of the requested peak)", bytesize.Format(sum.Region),
		ratio(sum.Region, sum.RequestedPeak))
	if sum.Room > 0 {
		field("room", "%d %% for sizes other than recorded", sum.Room)
	}
	device = cmp.Or(device, "any")
	field("device", "%s", device)
	field("written", "%s, %s", displayOutput(sum.Plan), bytesize.Format(sum.PlanBytes))
}
