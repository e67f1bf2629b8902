package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
)

// displayName is how tables name an allocator: the settings alone of the caching allocator.
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
func writeComparison(w io.Writer, in *input, c *replay.Comparison, device string, severalDevices bool) {
	title := in.name()
	if severalDevices {
		title += fmt.Sprintf(", device %d", c.Work.Device)
	}
	stats := c.Work.Program.Stats()
	place := "simulated"
	if device == "host" {
		place = "real"
	}
	limit := "no limit"
	if c.Limit > 0 {
		limit = "a limit of " + bytesize.Format(c.Limit)
	}
	paragraph(w, "", fmt.Sprintf("%s: %s on %s; replayed on %s of %s memory with %s.",
		title, plural(stats.Allocs, "allocation"), plural(c.Work.Program.Streams, "stream"),
		bytesize.Format(c.Capacity), place, limit))
	fmt.Fprintln(w)

	t := table{marked: c.Best, header: []string{
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
		t.rows = append(t.rows, rowCells(&c.Rows[i], len(c.Work.Program.Ops), searched))
	}
	t.write(w, pageWidth)
	sentences := explain(c)
	if len(sentences) > 0 {
		fmt.Fprintln(w)
	}
	for _, sentence := range sentences {
		paragraph(w, "", sentence)
	}
	notes := c.Work.Notes
	for i := range c.Rows {
		notes = append(notes[:len(notes):len(notes)], c.Rows[i].Notes...)
	}
	for _, note := range notes {
		paragraph(w, "Note: ", note)
	}
}

// rowCells are the cells of a row; ops is how many the work has.
func rowCells(r *replay.Row, ops int, searched bool) []string {
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
	if r.NsPerOp > 0 {
		ns = fmt.Sprintf("%.0f", r.NsPerOp)
	}
	cells := []string{
		displayName(r.Allocator), bytesize.Format(r.RequestedPeak), bytesize.Format(r.AllocatedPeak), reserved, waste,
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

// explain says in words where the memory of the recorded run went, and which row would have saved how much of it.
func explain(c *replay.Comparison) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	r := c.RecordedRow()
	if r != nil && r.AtPeak.Reserved > 0 {
		u := r.AtPeak
		over := r.ReservedPeak - r.RequestedPeak
		say("As recorded, %s was reserved for at most %s in use at a time: %s (%s) more than needed.",
			bytesize.Format(r.ReservedPeak), bytesize.Format(r.RequestedPeak), bytesize.Format(over),
			percent(over, r.ReservedPeak))
		say("When the reserved memory reached its peak, %s of it was in use, %s lay in free segments that did not suit the "+
			"request, %s was free beside live blocks in the same segments, and %s was rounding.",
			bytesize.Format(u.Requested), bytesize.Format(u.Free), bytesize.Format(u.Stranded), bytesize.Format(u.Rounding))
	}
	switch {
	case c.Best < 0:
		say("No row completed: try a higher --limit or --capacity, or other settings.")
	case r == nil || len(c.Rows) == 1:
	case !r.Completed():
		b := &c.Rows[c.Best]
		say("%s would have let it complete, with %s reserved.", setting(b), bytesize.Format(b.ReservedPeak))
	case c.Saving() > 0:
		b := &c.Rows[c.Best]
		say("%s would have saved %s (%s).", setting(b), bytesize.Format(c.Saving()), percent(c.Saving(), r.ReservedPeak))
	default:
		say("None of the other rows reserves less than the recorded settings.")
	}
	return out
}

// setting is what a person sets to get a row.
func setting(r *replay.Row) string {
	settings, caching := strings.CutPrefix(r.Allocator, "caching:")
	switch {
	case caching && settings == "":
		return "An empty PYTORCH_CUDA_ALLOC_CONF"
	case caching:
		return "PYTORCH_CUDA_ALLOC_CONF=" + settings
	}
	return "The allocator " + r.Allocator
}
