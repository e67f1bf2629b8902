package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay/verify"
)

type infoCmd struct {
	traceArgs
	momentArgs
	By   []string `enum:"line,function,module,stack,category,stream,pool,tag" placeholder:"KEY" help:"Print the holders of the memory by line, function, module, stack, category, stream, pool or tag; several make groups."`
	Top  uint     `default:"20" placeholder:"N" help:"Print at most N holders (default: ${default}); 0 prints all."`
	JSON bool     `name:"json" help:"Print one JSON object for each device of each trace."`
}

// maxHolders is the value of --top if none is given.
const maxHolders = 20

// Help implements kong.HelpProvider.
func (*infoCmd) Help() string {
	return `Prints for each device: the time that was recorded, streams, pools, settings, counts of events, peaks, live blocks at the
end, the biggest allocations (with the code that requested them, if stacks were recorded), and a chart of the memory over
time. A snapshot without a history has its segments listed. For a report of a failed request (in Go: snapshot.ReportOOM) the
error is printed. Unknown parts of the file are counted. Long files take little memory. Standard input, and recordings of
several devices, with gaps or without completions of frees, are kept in memory, in 13 bytes an entry.

With --at or --by it prints instead what holds the memory at a moment, at the peak if --at is missing: by your own innermost
line that requested it, or by other keys. The bytes add up to the requested memory. "(no stack)" is memory whose request has
no stack: PyTorch records none in the backward pass.

` + momentHelp + `

Examples:

    ashlar info run.pickle
    ashlar info --at peak run.pickle
    ashlar info --at oom --by category --by line run.pickle
    ashlar info --json *.pickle | jq .peaks`
}

// Run implements the command.
func (c *infoCmd) Run(s *streams) error {
	ofMoment := c.At != "" || len(c.By) > 0
	switch {
	case !ofMoment && c.Top != maxHolders:
		return usageError{errors.New("--top: only with --at or --by")}
	case !ofMoment && c.Frames != "user":
		return usageError{errors.New("--frames: only with --at or --by")}
	}
	first := true
	keys, err := holderKeys(c.By)
	if err != nil {
		return err
	}
	read := readSurveyed
	if ofMoment {
		read = readCompact
	}
	return c.eachRead(s, read, func(in *input, p *progress) error {
		if in.script != nil {
			return errors.New("info reads memory snapshots, not scripts")
		}
		if ofMoment {
			views, err := c.views(in.snapshot)
			p.end()
			if err == nil && len(views) == 0 {
				err = verify.ErrNoHistory
			}
			if err != nil {
				return err
			}
			return c.writeHolders(s, in, views, keys, &first)
		}
		sums := summaries(in)
		p.end()
		return c.writeSummaries(s, in, sums, &first)
	})
}

// writeSummaries writes the summaries of a trace's devices. A warning follows if none has a history.
func (c *infoCmd) writeSummaries(s *streams, in *input, sums []summary, first *bool) error {
	for i := range sums {
		sums[i].Trace = in.path
		if c.JSON {
			if err := json.NewEncoder(s.out).Encode(&sums[i]); err != nil {
				return err
			}
			continue
		}
		if !*first {
			fmt.Fprintln(s.out)
		}
		*first = false
		writeSummary(s.out, in, &sums[i], len(sums) > 1)
	}
	report := in.snapshot.OutOfMemory
	if len(sums) == 0 && !c.JSON {
		fmt.Fprintf(s.out, "%s: a memory snapshot without segments and without history\n", in.name())
		if report != nil {
			fmt.Fprintln(s.out)
			writeOutOfMemory(s.out, report.Text)
		}
	}
	if report == nil && !slices.ContainsFunc(sums, func(d summary) bool { return d.Entries > 0 }) {
		s.fail(displayPath(in.path), errors.New("there is no allocation history in the snapshot, only its final "+
			"state; to record one, call torch.cuda.memory._record_memory_history() before the first allocation"))
	}
	return nil
}

func writeSummary(w *page, in *input, d *summary, several bool) {
	title := fmt.Sprintf("%s: a memory snapshot, %s", in.name(), bytesize.Format(in.bytes))
	if several {
		title += fmt.Sprintf(", device %d", d.Device)
	}
	fmt.Fprintf(w, "%s\n\n", title)
	field := func(name, format string, args ...any) {
		w.paragraph(pad("  "+name, -14), fmt.Sprintf(format, args...))
	}
	if !several {
		field("device", "%d", d.Device)
	}
	if d.Entries > 0 {
		field("recorded", "%s, in %s", recordedText(d.StartUS, d.EndUS), entriesText(d.Entries))
		var counts []string
		for a := range mem.NumActions {
			if n := d.Counts[a.String()]; n > 0 {
				counts = append(counts, count(n)+" "+a.String())
			}
		}
		field("entries", "%s", strings.Join(counts, ", "))
	}
	var handles []string
	for _, s := range d.Streams {
		handles = append(handles, fmt.Sprintf("%#x", s))
	}
	field("streams", "%d: %s", len(d.Streams), strings.Join(handles, ", "))
	var pools []string
	for _, p := range d.Pools {
		pools = append(pools, poolName(p))
	}
	field("pools", "%d: %s", len(d.Pools), strings.Join(pools, ", "))
	field("settings", "%s", d.settingsText())
	if d.Limit != nil {
		field("limit", "%s of memory reserved", bytesize.Format(*d.Limit))
	}
	if d.Entries > 0 {
		field("peaks", "%s requested, %s reserved (%.3f of it)", bytesize.Format(d.Peaks.Requested),
			bytesize.Format(d.Peaks.Reserved), ratio(d.Peaks.Reserved, d.Peaks.Requested))
	}
	field("at the end", "%s live, of %s; %s reserved, in %s", plural(d.Live.Blocks, "block"),
		bytesize.Format(d.Live.Requested), bytesize.Format(d.Live.Reserved), plural(d.Live.Segments, "segment"))
	if d.Late > 0 {
		field("starts late", "%s in use and %s reserved before the first entry", bytesize.Format(d.Late),
			bytesize.Format(d.LateReserved))
	}
	for i := range d.Failures {
		field("no room for", "%s", failureText(&d.Failures[i], in.snapshot.Stacks)+"."+limitText(&d.Failures[i]))
	}
	if n := d.NumFailures - len(d.Failures); n > 0 {
		field("", "and %s more", count(n))
	}
	if n := d.Contradictions; n > 0 {
		field("contradicts", "%s; the first: %s", entriesText(n), d.contradiction)
	}
	if n := d.Oversized; n > 0 {
		field("oversized", "%s of more than was ever reserved, which the sums leave out; the first: %s", entriesText(n),
			d.oversized)
	}
	for _, s := range d.Skipped {
		field("skipped", "%s: %s", s.What, plural(s.Count, "time"))
	}
	if d.OutOfMemory != "" {
		fmt.Fprintln(w)
		writeOutOfMemory(w, d.OutOfMemory)
	}
	writeBiggest(w, d)
	if d.Entries > 0 {
		fmt.Fprintln(w)
		d.chart.write(w)
	} else {
		writeSegments(w, d.Segments)
	}
}

// writeOutOfMemory writes the text of an error that the file is a report of, line by line.
func writeOutOfMemory(w *page, text string) {
	fmt.Fprintln(w, "  this is the report of a request that found no room")
	for line := range strings.Lines(text) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		w.paragraph(strings.Repeat(" ", 4+min(indent, 8)), line)
	}
}

// recordedText is the time of the recording, and its duration.
func recordedText(start, end int64) string {
	at := "at an unknown time"
	if from := time.UnixMicro(start).UTC(); from.Year() >= 2000 && from.Year() < 10000 {
		at = from.Format("2006-01-02 15:04:05 UTC")
	}
	if start == end {
		return at
	}
	return at + ", for " + duration(timeSpan(start, end))
}

// timeSpan returns the time from start to end, in microseconds, or the longest one that there is if that is less.
func timeSpan(start, end int64) time.Duration {
	if n := uint64(end) - uint64(start); n <= uint64(math.MaxInt64/time.Microsecond) {
		return time.Duration(n) * time.Microsecond
	}
	return time.Duration(math.MaxInt64).Truncate(time.Second)
}

func entriesText(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return count(n) + " entries"
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func writeBiggest(w *page, d *summary) {
	if len(d.Biggest) == 0 {
		return
	}
	fmt.Fprintln(w, "\n  biggest allocations")
	for _, b := range d.Biggest {
		line := fmt.Sprintf("  %s %8s x", pad(bytesize.Format(b.Size), 12), count(b.Count))
		switch {
		case b.Where != "":
			line += "  " + clean(b.Where, max(w.width-len(line)-5, 20))
		case d.stacks:
			line += "  (no stack)"
		}
		fmt.Fprintln(w, line)
	}
}

// settingsText is the settings for display.
func (d *summary) settingsText() string {
	if d.Settings == nil {
		return "not in the file"
	}
	if *d.Settings == "" {
		return "default"
	}
	return *d.Settings
}
