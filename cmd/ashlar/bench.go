package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivercost"
	"github.com/ashlar-go/ashlar/driver/sim"
)

type benchCmd struct {
	What   string `arg:"" enum:"driver" help:"driver: the cost of each call of a device to its caller."`
	Device string `default:"cuda:0" placeholder:"DEVICE" help:"The device: cuda:0, host or sim, with or without settings, such as host:total=1GiB (default: ${default})."`
	Output string `short:"o" placeholder:"FILE" help:"Write the costs to FILE (- is standard output). sim:cost=FILE is a simulated device with these costs."`
	Force  bool   `help:"Replace FILE if it exists."`
	JSON   bool   `name:"json" help:"Print one JSON object for each figure."`
}

// Help implements kong.HelpProvider.
func (*benchCmd) Help() string {
	return `Measures the cost of each call of a device: memory and pages by size, mapping by the number of pages, streams and marks,
copies, page-locked memory, empty kernels (where kernels are Go functions), timestamps and graphs. Each figure is for a single
call: the median of up to 31 samples after warming up, with the tenth and the ninetieth percentile. A call "until done" is
timed with the wait for its work, any other until it returns. The command takes up to half a minute on a GPU, which should be
otherwise idle.

The times of sim are virtual: those of its own cost model.

Examples:

    ashlar bench driver -o h200.json
    ashlar bench driver --device host
    ashlar bench driver --device sim:cost=h200.json
    ashlar bench driver --json | jq 'select(.call == "Alloc") | [.size, .median_ns]'`
}

// benchLine is the output of --json. Size and n are 0 for calls without them.
type benchLine struct {
	Device    string `json:"device"`
	Call      string `json:"call"`
	Size      int64  `json:"size"`
	N         int    `json:"n"`
	UntilDone bool   `json:"until_done"`
	Note      string `json:"note"`
	MedianNS  int64  `json:"median_ns"`
	P10NS     int64  `json:"p10_ns"`
	P90NS     int64  `json:"p90_ns"`
	Samples   int    `json:"samples"`
}

// Run implements the command.
func (c *benchCmd) Run(s *streams) error {
	out, err := s.openOutput(c.Output, c.Force, specFiles(c.Device)...)
	if err != nil {
		return err
	}
	to := out.report(s)
	p := newProgress(s.err, "opening "+c.Device)
	defer p.end()
	report, err := c.measure(p)
	if err != nil {
		return err
	}
	p.end()
	model, kept := report.Model(sim.H200(), "")
	model.About = c.about(report, kept)
	if c.JSON {
		err = c.writeLines(to, report)
	} else {
		writeCosts(to, c.Device, report, model)
	}
	if err != nil || out == nil {
		return err
	}
	if err := out.write(func(w io.Writer) error { _, err := model.WriteTo(w); return err }); err != nil {
		return err
	}
	if !c.JSON && to == s.out {
		text := fmt.Sprintf("The costs are in %s: sim:cost=%[1]s is a simulated device that has them.",
			displayPath(c.Output))
		if len(kept) > 0 {
			text += " What could not be measured is as in the built-in model: " + strings.Join(kept, ", ") + "."
		}
		fmt.Fprintln(s.out)
		s.out.paragraph("", text)
	}
	return nil
}

// opens is how often a device is opened to time that.
const opens = 3

// measure opens the device and measures it.
func (c *benchCmd) measure(p *progress) (*drivercost.Report, error) {
	var d driver.Device
	var times []time.Duration
	for range opens {
		if d != nil {
			if err := d.Close(); err != nil {
				return nil, err
			}
		}
		begun := now()
		var err error
		if d, err = openDevice(c.Device); err != nil {
			return nil, err
		}
		times = append(times, now().Sub(begun))
	}
	begun := now()
	clock := func() time.Duration { return now().Sub(begun) }
	simulated, virtual := d.(*sim.Device)
	if virtual {
		clock = simulated.Now
	}
	report, err := drivercost.Measure(d, drivercost.Options{Now: clock, Progress: func(what string, done float64) {
		p.at("measuring " + c.Device + ", " + what)
		p.update(done)
	}})
	if err == nil && !virtual {
		report.Figures = append([]drivercost.Figure{drivercost.Summarize("Open", times)}, report.Figures...)
	}
	return report, errors.Join(err, d.Close())
}

// about returns the description of the cost model.
func (c *benchCmd) about(r *drivercost.Report, kept []string) string {
	text := fmt.Sprintf("%s, %d bytes: medians, measured by \"ashlar bench driver --device %s\".", r.Info.Name,
		r.Info.TotalMemory, c.Device)
	if len(kept) > 0 {
		text += " Not measured, and of another model: " + strings.Join(kept, ", ") + "."
	}
	return text
}

func (c *benchCmd) writeLines(w *page, r *drivercost.Report) error {
	for i := range r.Figures {
		f := &r.Figures[i]
		err := json.NewEncoder(w).Encode(benchLine{
			Device: c.Device, Call: f.Call, Size: f.Size, N: f.N, UntilDone: f.Done, Note: f.Note,
			MedianNS: int64(f.Median), P10NS: int64(f.P10), P90NS: int64(f.P90), Samples: f.Samples,
		})
		if err != nil {
			return err
		}
	}
	return nil
}
