package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/holders/export"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
	"golang.org/x/term"
)

type exportCmd struct {
	To string `required:"" enum:"pickle,json,jsonl,script,pprof,perfetto,flamegraph,parquet" placeholder:"FORMAT" help:"pickle, json, jsonl, script, pprof, perfetto, flamegraph or parquet."`
	momentArgs
	Output   string `short:"o" default:"-" placeholder:"FILE" help:"Write to FILE instead of standard output."`
	Force    bool   `help:"Replace FILE if it exists."`
	Ordinal  int    `default:"-1" placeholder:"N" help:"With --to script: the device to write, if the trace has several."`
	Snapshot string `arg:"" name:"trace" help:"A memory snapshot of PyTorch; - is standard input."`
}

// Help implements kong.HelpProvider.
func (*exportCmd) Help() string {
	return `Writes a memory snapshot in a form that another tool reads:

    pickle     for Python, torch.cuda._memory_viz and https://pytorch.org/memory_viz: protocol 4, not compressed;
               keys that ashlar does not know are included. With --at it is the snapshot that would have been taken at the
               moment: the segments and blocks of then, and the events before it
    json       the same dicts and lists as JSON, with stacks written out, so this may be large. An error if shared parts
               of the file, written out, take more than 64 MiB and 32 KiB for each entry, segment and block
    jsonl      only the events, one JSON object a line, with the device: for jq, DuckDB and Polars
    script     the requests of one device as text, one a line, which ashlar replay, pack and plan read: see ashlar replay --help
    pprof      for go tool pprof: bytes and blocks by stack, with the labels device, stream, pool, category and tag. In use
               at the moment of --at, the peak if it is missing; allocated in all; and freed soon after the moment, that is
               before the memory has fallen by a tenth. Stacks begin at your own innermost line; --frames all keeps all
    flamegraph a picture for any browser (SVG): the memory in use at the moment of --at, the peak if it is missing, by stack;
               frames that --frames leaves out are not shown
    parquet    a table for DuckDB, Polars and Spark, with a row for each block: bytes, line, stack, category, stream, pool, the
               events and times of its allocation and free, and whether it is active at the moment of --at
    perfetto   for https://ui.perfetto.dev and chrome://tracing: memory over time, blocks with their whole stacks, segments,
               annotations, and a mark at the moment of --at. Your own innermost line names a block; --frames says otherwise

Examples:

    ashlar export --to pickle -o plain.pickle run.pickle.zst
    ashlar export --to pickle --at peak -o peak.pickle run.pickle
    ashlar export --to json run.pickle | jq '.segments | length'
    ashlar export --to jsonl run.pickle | jq -c 'select(.action == "oom")'
    ashlar export --to script -o run.script run.pickle
    ashlar export --to pprof -o run.pb.gz run.pickle && go tool pprof -http : run.pb.gz
    ashlar export --to pprof --at oom -o run.pb.gz run.pickle && go tool pprof -top run.pb.gz
    ashlar export --to flamegraph --at oom -o oom.svg run.pickle
    ashlar export --to parquet -o run.parquet run.pickle
    duckdb -c "SELECT line, sum(bytes) FROM 'run.parquet' WHERE active GROUP BY line ORDER BY 2 DESC"
    ashlar export --to perfetto --at peak -o run.json run.pickle

` + momentHelp
}

// exporters write a snapshot in each format.
var exporters = map[string]func(*snapshot.Snapshot, io.Writer) error{
	"pickle": (*snapshot.Snapshot).WritePickle,
	"json":   (*snapshot.Snapshot).WriteJSON,
}

// momentExporters write the memory at a moment in each format.
var momentExporters = map[string]func(io.Writer, ...*holders.View) error{
	"pprof":      export.WriteProfile,
	"flamegraph": export.WriteFlameGraph,
	"parquet":    export.WriteParquet,
}

// writer returns the function that writes a snapshot in the format.
func (c *exportCmd) writer(s *snapshot.Snapshot, p *progress) (func(io.Writer) error, error) {
	var views []*holders.View
	write := momentExporters[c.To]
	if write != nil || c.At != "" {
		var err error
		if views, err = c.views(s); err != nil {
			return nil, err
		}
	}
	switch {
	case write != nil:
		return func(w io.Writer) error { return write(w, views...) }, nil
	case exporters[c.To] != nil:
		cut := export.Snapshot(s, views...)
		return func(w io.Writer) error { return exporters[c.To](cut, w) }, nil
	case c.To == "jsonl":
		cut := export.Snapshot(s, views...)
		all := int64(0)
		for _, t := range cut.Traces {
			if t != nil {
				all += int64(t.Len())
			}
		}
		return func(w io.Writer) error {
			return cut.WriteJSONLines(w, func(events int) { p.update(min(1, ratio(int64(events), all))) })
		}, nil
	case c.To == "script":
		program, err := c.program(export.Snapshot(s, views...))
		if err != nil {
			return nil, err
		}
		return func(w io.Writer) error {
			return program.WriteScript(w, func(ops int) { p.update(ratio(int64(ops), int64(len(program.Ops)))) })
		}, nil
	}
	frames := holders.NewFrames(s.Stacks)
	frames.Fold(foldings[c.Frames])
	o := snapshot.TimelineOptions{Name: frames.Line}
	for _, v := range views {
		o.Marks = append(o.Marks, snapshot.TimelineMark{
			Device: v.Device(), Event: v.Moment.Event, Name: v.Moment.String(),
		})
	}
	return func(w io.Writer) error { return s.WriteTimeline(w, o) }, nil
}

// program returns the requests of a device with a history.
func (c *exportCmd) program(s *snapshot.Snapshot) (*trace.Program, error) {
	var devices []int
	for device, t := range s.Traces {
		if t != nil && t.Len() > 0 {
			devices = append(devices, device)
		}
	}
	if len(devices) == 0 {
		return nil, verify.ErrNoHistory
	}
	i, err := chooseDevice(devices, c.Ordinal)
	if err != nil {
		return nil, err
	}
	return s.Program(devices[i], programOptions)
}

// Run implements the command.
func (c *exportCmd) Run(s *streams) error {
	if err := c.check(s); err != nil {
		return usageError{err}
	}
	out, err := s.openOutput(c.Output, c.Force, c.Snapshot)
	if err != nil {
		return err
	}
	traces := traceArgs{Traces: []string{c.Snapshot}}
	return traces.eachRead(s, c.readStreamed, func(in *input, p *progress) error {
		if in.script != nil {
			return errors.New("a script has no addresses to export; use replay")
		}
		p.at("writing " + c.To)
		if lost := c.leftOut(in.snapshot); lost != "" {
			p.say("ashlar: unknown and left out: " + clean(lost, 10*maxWord))
		}
		if x := in.streamed; x != nil {
			return out.write(func(w io.Writer) error { return x.write(w, p) })
		}
		write, err := c.writer(in.snapshot, p)
		if err != nil {
			return err
		}
		return out.write(write)
	})
}

// check checks the flags.
func (c *exportCmd) check(s *streams) error {
	binary := c.To == "pickle" || c.To == "pprof" || c.To == "parquet"
	if f, ok := s.out.w.(*os.File); ok && binary && c.Output == "-" && term.IsTerminal(int(f.Fd())) {
		return fmt.Errorf("%s is not for a terminal: name a file with --output", c.To)
	}
	folds := c.To == "perfetto" || momentExporters[c.To] != nil
	if !folds && c.Frames != "user" {
		return errors.New("--frames: only with --to pprof, flamegraph, parquet or perfetto")
	}
	if c.To != "script" && c.Ordinal >= 0 {
		return errors.New("--ordinal: only with --to script")
	}
	return nil
}

// leftOut lists the unknown parts of a snapshot that the format leaves out, or returns "".
func (c *exportCmd) leftOut(s *snapshot.Snapshot) string {
	keepsUnknown := c.To == "pickle" || c.To == "json" || c.To == "jsonl"
	var lost []string
	for _, skip := range s.Skipped {
		if !keepsUnknown || skip.Dropped {
			lost = append(lost, fmt.Sprintf("%s (%s)", skip.What, plural(skip.Count, "time")))
		}
	}
	return strings.Join(lost, ", ")
}
