package main

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
)

// rowName is how tables name a row.
func rowName(c *replay.Comparison, spec string) string {
	if c.Work.Script && spec == replay.AsRecorded {
		return "PyTorch's defaults" // nothing was recorded
	}
	return displayName(spec)
}

// displayName is how messages name an allocator: the settings alone of the caching allocator.
func displayName(spec string) string {
	settings, caching := strings.CutPrefix(spec, "caching:")
	switch {
	case spec == replay.AsRecorded:
		return "as recorded"
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

	t := table{marked: c.Best, optional: []int{9, 6, 2}, header: []string{
		"settings", "requested", "allocated", "reserved", "waste",
		"driver\ncalls", "driver\ntime", "re-\ntries", "out of\nmemory", "ns/op",
	}}
	searched := false
	for i := range c.Rows {
		searched = searched || c.Rows[i].SmallestLimit != 0
	}
	if searched {
		t.header = append(t.header, "smallest\nlimit")
	}
	for i := range c.Rows {
		t.rows = append(t.rows, rowCells(c, &c.Rows[i], len(c.Work.Program.Ops), searched))
	}
	t.write(p)
	sentences := explain(c)
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

// minTimed is how many operations a time of one is worth showing for.
const minTimed = 1000

// rowCells are the cells of a row; ops is how many the work has.
func rowCells(c *replay.Comparison, r *replay.Row, ops int, searched bool) []string {
	reserved, waste, calls, time, oom, ns := "-", "-", "-", "-", "no", "-"
	if r.ReservedPeak >= 0 {
		reserved = bytesize.Format(r.ReservedPeak)
	}
	if r.RequestedPeak > 0 && r.ReservedPeak >= 0 {
		waste = fmt.Sprintf("%.3f", r.Waste())
	}
	if r.Priced {
		calls, time = count(r.DriverCalls), duration(r.DriverTime)
	}
	if r.OOMs > 0 {
		oom = "yes"
		if r.FirstOOM >= 0 {
			oom = fmt.Sprintf("at %d%%", 100*r.FirstOOM/max(ops, 1))
		}
	}
	if r.NsPerOp > 0 && ops >= minTimed {
		ns = fmt.Sprintf("%.0f", r.NsPerOp)
	}
	cells := []string{
		rowName(c, r.Allocator), bytesize.Format(r.RequestedPeak), bytesize.Format(r.AllocatedPeak), reserved, waste,
		calls, time, count(r.Retries), oom, ns,
	}
	if !searched {
		return cells
	}
	if r.SmallestLimit > 0 {
		return append(cells, bytesize.Format(r.SmallestLimit))
	}
	return append(cells, "-")
}
