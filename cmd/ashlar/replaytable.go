package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
)

// rowName is the name of a row in tables.
func rowName(c *replay.Comparison, spec string) string {
	if c.Work.Script && spec == replay.AsRecorded {
		return "PyTorch's defaults" // nothing was recorded
	}
	return displayName(spec)
}

// displayName is the name of an allocator in messages: for the caching allocator its settings alone.
func displayName(spec string) string {
	settings, caching := strings.CutPrefix(spec, "caching:")
	switch {
	case spec == replay.AsRecorded:
		return "as recorded"
	case spec == replay.Bound:
		return "lower bound"
	case caching && settings == "":
		return "PyTorch's defaults"
	case caching:
		return settings
	}
	return spec
}

// writeComparison writes a table with a sentence above it and some below.
func writeComparison(p *page, in *input, c *replay.Comparison, device string, severalDevices bool) {
	title := in.name()
	if severalDevices {
		title += fmt.Sprintf(", device %d", c.Work.Device)
	}
	stats := c.Work.Program.Stats()
	place := "simulated"
	if device != simulated {
		place = "real"
	}
	limit := "no limit"
	if c.Limit > 0 {
		limit = "a limit of " + bytesize.Format(c.Limit)
	}
	switch {
	case c.LimitRecorded && c.Work.LimitKnown:
		limit += ", as it was recorded"
	case c.LimitRecorded && c.Limit == c.Work.RecordedReserved:
		limit += ": the most that was reserved before the recorded run ran out of memory"
	case c.LimitRecorded:
		limit += ": what the recorded run had when it ran out of memory"
	case c.Limit > c.Capacity:
		limit += ", which is more than there is"
	}
	p.paragraph("", fmt.Sprintf("%s: %s on %s; replayed on %s of %s memory with %s.",
		title, plural(stats.Allocs, "allocation"), plural(c.Work.Program.Streams, "stream"),
		bytesize.Format(c.Capacity), place, limit))
	fmt.Fprintln(p)

	t := table{
		marked:   c.Best,
		spare:    []int{colNs, colLaterStalls, colShare, colAllocated, colRetries},
		optional: []int{colWaste, colTime, colLaterTime, colReserved},
	}
	columns := numColumns
	if c.Bound.SmallestLimit == 0 {
		columns = colSmallest // nothing was searched
	} else {
		t.spare = append(t.spare, colWaste)
	}
	t.header = headers[:columns]
	for _, r := range slices.Concat(c.Rows, []replay.Row{c.Bound}) {
		cells := rowCells(c, &r)
		t.rows = append(t.rows, cells[:columns])
	}
	t.write(p)
	sentences := replaySentences(c)
	if len(sentences) > 0 {
		fmt.Fprintln(p)
	}
	for _, sentence := range sentences {
		p.paragraph("", sentence)
	}
	writeFailures(p, in, c)
	notes := c.Work.Notes
	for i := range c.Rows {
		notes = append(notes[:len(notes):len(notes)], c.Rows[i].Notes...)
	}
	for _, note := range notes {
		p.paragraph("Note: ", note)
	}
}

// The columns of a row.
const (
	colSettings = iota
	colRequested
	colAllocated
	colReserved
	colWaste
	colCalls
	colTime
	colLaterCalls
	colLaterTime
	colShare
	colStalls
	colLaterStalls
	colRetries
	colOOM
	colNs
	colSmallest
	colOver
	numColumns
)

// headers are those of tables. Later is after the first third.
var headers = []string{
	"settings", "requested", "allocated", "reserved", "waste", "driver\ncalls", "driver\ntime", "later\ncalls",
	"later\ntime",
	"of the\nrun", "stalls", "later\nstalls", "re-\ntries", "out of\nmemory", "ns/op", "smallest\nlimit",
	"of the\nbound",
}

// minTimed is the number of operations from which the time of one is shown.
const minTimed = 1000

// rowCells are the cells of a row.
func rowCells(c *replay.Comparison, r *replay.Row) (cells [numColumns]string) {
	for i := range cells {
		cells[i] = "-" // not known
	}
	ops := len(c.Work.Program.Ops)
	cells[colSettings] = rowName(c, r.Allocator)
	cells[colRequested], cells[colAllocated] = bytesize.Format(r.RequestedPeak), bytesize.Format(r.AllocatedPeak)
	if r.ReservedPeak >= 0 {
		cells[colReserved] = bytesize.Format(r.ReservedPeak)
	}
	if r.RequestedPeak > 0 && r.ReservedPeak >= 0 {
		cells[colWaste] = fmt.Sprintf("%.3f", r.Waste())
	}
	cells[colCalls], cells[colStalls] = count(r.DriverCalls), count(r.Stalls)
	took := func(d time.Duration) string {
		switch {
		case d < 0:
			return "-"
		case d == 0:
			return "0"
		}
		return duration(d)
	}
	cells[colTime] = took(r.DriverTime)
	if l := r.Later; l != nil {
		cells[colLaterCalls], cells[colLaterStalls] = count(l.DriverCalls), count(l.Stalls)
		cells[colLaterTime] = took(l.DriverTime)
		if share := l.Share(); share >= 0 {
			cells[colShare] = smallPercent(share)
		}
	}
	if r.Allocator != replay.Bound {
		cells[colRetries], cells[colOOM] = count(r.Retries), "no"
	}
	if r.OOMs > 0 {
		cells[colOOM] = "yes"
		if r.FirstOOM >= 0 {
			cells[colOOM] = fmt.Sprintf("at %d%%", 100*r.FirstOOM/max(ops, 1))
		}
	}
	if r.NsPerOp > 0 && ops >= minTimed {
		cells[colNs] = fmt.Sprintf("%.0f", r.NsPerOp)
	}
	if r.SmallestLimit > 0 {
		cells[colSmallest] = bytesize.Format(r.SmallestLimit)
	}
	if over := c.OverBound(r); over > 0 {
		cells[colOver] = fmt.Sprintf("%.4f", over)
	}
	return cells
}
