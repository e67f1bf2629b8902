package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

const (
	chartColumns = 72
	chartRows    = 12
)

// A chart is memory over time: for each column, the maximum of the requested and of the reserved bytes.
type chart struct {
	requested, reserved [chartColumns]int64
	top                 int64         // the peak of what was reserved or requested
	span                time.Duration // 0: the entries have no times, and columns are entries
	entries             int
}

// newChart returns the chart of the entries that d sums up.
func newChart(d *summary, m *memoryOverTime) chart {
	c := chart{
		entries: d.Entries, span: timeSpan(d.StartUS, d.EndUS), top: max(d.Peaks.Reserved, d.Peaks.Requested),
	}
	before := sums{d.Late, d.LateReserved}
	column, last, current := 0, chartColumns-1, before
	c.add(0, current)
	for _, k := range m.moments {
		at := 0
		if c.span > 0 {
			at = int((float64(k.at) - float64(d.StartUS)) / (float64(d.EndUS) - float64(d.StartUS)) * chartColumns)
		} else {
			at = int(k.at) * chartColumns / d.Entries
		}
		for at = min(at, last); column < at; {
			column++
			c.add(column, current)
		}
		c.add(column, before.plus(k.most))
		current = before.plus(k.after)
	}
	for column < last {
		column++
		c.add(column, current)
	}
	return c
}

// add makes a column at least as high as s.
func (c *chart) add(column int, s sums) {
	c.requested[column] = max(c.requested[column], s.requested)
	c.reserved[column] = max(c.reserved[column], s.reserved)
}

// narrow reduces values to a number of columns, each with the maximum of its values.
func narrow(values []int64, columns int) []int64 {
	out := make([]int64, columns)
	for x := range columns {
		out[x] = slices.Max(values[x*len(values)/columns : (x+1)*len(values)/columns])
	}
	return out
}

// write draws the chart, the scale at the left and time below.
func (c *chart) write(w *page) {
	columns := max(min(chartColumns, w.width-14), 1)
	requested, reserved := narrow(c.requested[:], columns), narrow(c.reserved[:], columns)
	for row := chartRows; row > 0; row-- {
		label := ""
		if row%4 == 0 {
			label = bytesize.Format(c.top/chartRows*int64(row) + c.top%chartRows*int64(row)/chartRows)
		}
		var b strings.Builder
		for x := range columns {
			// A cell is filled if what it stands for reaches its middle.
			level := c.top/chartRows*int64(row-1) + c.top/chartRows/2
			switch {
			case requested[x] > level:
				b.WriteString("█")
			case reserved[x] > level:
				b.WriteString("░")
			default:
				b.WriteByte(' ')
			}
		}
		fmt.Fprintln(w, strings.TrimRight(pad(label, 12)+" |"+b.String(), " "))
	}
	fmt.Fprintf(w, "%s +%s\n", pad("0", 12), strings.Repeat("-", columns))
	end := duration(c.span)
	if c.span == 0 {
		end = entriesText(c.entries)
	}
	fmt.Fprintf(w, "%s0%s\n", strings.Repeat(" ", 14), pad(end, columns-1))
	fmt.Fprintf(w, "%s█ requested   ░ reserved beyond that\n", strings.Repeat(" ", 14))
}
