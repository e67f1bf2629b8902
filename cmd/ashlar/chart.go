package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
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

// newChart returns the chart of t, and sets the peaks of d. It calls each for each entry that counts.
func newChart(t *trace.Trace, d *summary, each func(e *trace.Event)) chart {
	c := chart{entries: t.Len(), span: timeSpan(d.StartUS, d.EndUS)}
	sums := trace.Totals{
		Requested: mem.Stat{Current: d.Late, Peak: d.Late},
		Reserved:  mem.Stat{Current: d.LateReserved, Peak: d.LateReserved},
	}
	column, last := 0, chartColumns-1
	c.requested[0], c.reserved[0] = sums.Requested.Current, sums.Reserved.Current
	r := t.Reader(trace.FieldTime, trace.FieldSize, trace.FieldStack, trace.FieldAction)
	for i := range t.Len() {
		e := r.At(i)
		at := i * chartColumns / t.Len()
		if c.span > 0 {
			at = int((float64(e.TimeUS) - float64(d.StartUS)) / (float64(d.EndUS) - float64(d.StartUS)) * chartColumns)
		}
		for at = min(at, last); column < at; { // time does not run back
			column++
			c.requested[column], c.reserved[column] = sums.Requested.Current, sums.Reserved.Current
		}
		if d.implausible(e) {
			if d.Oversized++; d.Oversized == 1 {
				d.oversized = fmt.Sprintf("entry %s: %v of %s bytes", count(i), e.Action, count(e.Size))
			}
		} else {
			sums.Add(e.Action, e.Size)
			each(e)
		}
		c.requested[column] = max(c.requested[column], sums.Requested.Current)
		c.reserved[column] = max(c.reserved[column], sums.Reserved.Current)
	}
	d.Peaks.Requested, d.Peaks.Reserved = sums.Requested.Peak, sums.Reserved.Peak
	for column < last {
		column++
		c.requested[column], c.reserved[column] = sums.Requested.Current, sums.Reserved.Current
	}
	c.top = max(d.Peaks.Reserved, d.Peaks.Requested)
	return c
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
