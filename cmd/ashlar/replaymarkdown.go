package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
)

// writeMarkdownHeader begins the table of replay --markdown. The bound is the requested peak, including requests that
// failed when they were recorded: no allocator completes with less, except one that reuses memory before other streams
// are done with it. Later is after the first third.
func writeMarkdownHeader(w io.Writer, searched bool) {
	cells := []string{
		"trace", "settings", "bound", "allocated", "reserved", "of the bound", "driver calls", "driver time",
		"later calls",
		"later time", "of the run", "stalls", "later stalls", "out of memory",
	}
	if searched {
		cells = append(cells, "smallest limit", "of the bound")
	}
	markdownRow(w, cells)
	rule := make([]string, len(cells))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0], rule[1] = "---", "---"
	markdownRow(w, rule)
}

// writeMarkdownRows writes the rows of one comparison.
func writeMarkdownRows(w io.Writer, in *input, c *replay.Comparison, searched, severalDevices bool) {
	name := in.name()
	if severalDevices {
		name += fmt.Sprintf(", device %d", c.Work.Device)
	}
	if c.Limit > 0 {
		name += ", within " + bytesize.Format(c.Limit)
	}
	for _, r := range slices.Concat(c.Rows, []replay.Row{c.Bound}) {
		all := rowCells(c, &r)
		reserved := "-"
		if r.ReservedPeak > 0 && c.Bound.RequestedPeak > 0 {
			reserved = fmt.Sprintf("%.3f", float64(r.ReservedPeak)/float64(c.Bound.RequestedPeak))
		}
		cells := []string{
			name, all[colSettings], bytesize.Format(c.Bound.RequestedPeak), all[colAllocated], all[colReserved],
			reserved,
			all[colCalls], all[colTime], all[colLaterCalls], all[colLaterTime], all[colShare], all[colStalls],
			all[colLaterStalls],
			all[colOOM],
		}
		if searched {
			cells = append(cells, all[colSmallest], all[colOver])
		}
		markdownRow(w, cells)
	}
}

func markdownRow(w io.Writer, cells []string) {
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(cell, "|", `\|`)
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}
