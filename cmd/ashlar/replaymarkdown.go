package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
)

// writeMarkdownHeader begins the one table of replay --markdown. The bound is the most that the whole work asks for at a time:
// nothing completes in less, but what hands memory out before other streams are done with it.
func writeMarkdownHeader(w io.Writer, searched bool) {
	cells := []string{
		"trace", "settings", "bound", "allocated", "reserved", "of the bound", "driver calls", "driver time", "out of memory",
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
	bound := c.Work.Program.Stats().PeakBytes
	part := func(size int64) string {
		if size <= 0 || bound <= 0 {
			return "-"
		}
		return fmt.Sprintf("%.3f", float64(size)/float64(bound))
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		all := rowCells(c, r, len(c.Work.Program.Ops), true)
		cells := []string{name, all[0], bytesize.Format(bound), all[2], all[3], part(r.ReservedPeak), all[5], all[6], all[8]}
		if searched {
			cells = append(cells, all[10], part(r.SmallestLimit))
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
