package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/driver/drivercost"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// moving are the calls whose speed is given in bytes per second.
var moving = []sim.Call{
	sim.CallCopy, sim.CallFill, sim.CallCopyIn, sim.CallCopyOut, sim.CallCopyInAsync, sim.CallCopyOutAsync,
}

// writeCosts writes the costs of a device's calls, and the fitted lines.
func writeCosts(w *page, spec string, r *drivercost.Report, m *sim.CostModel) {
	fmt.Fprintf(w, "%s: %s, %s\n\n", clean(spec, maxWord), clean(r.Info.Name, maxWord),
		bytesize.Format(r.Info.TotalMemory))
	t := table{
		marked: -1, optional: []int{6, 4, 5, 2},
		header: []string{"call", "bytes", "n", "median", "p10", "p90", "rate"},
	}
	measured := map[string]bool{}
	for i := range r.Figures {
		f := &r.Figures[i]
		measured[f.Call] = true
		t.rows = append(t.rows, costRow(f))
	}
	t.write(w)
	fmt.Fprintln(w)
	var lines []string
	for _, c := range moving {
		if curve := m.Calls[c]; measured[c.String()] && len(curve) == 2 {
			lines = append(lines, fmt.Sprintf("%s %s and %s", c, duration(curve[0].Cost),
				rate(curve[1].Size-curve[0].Size, curve[1].Cost-curve[0].Cost)))
		}
	}
	if len(lines) > 0 {
		w.paragraph("Fitted: ", strings.Join(lines, "; ")+".")
	}
	if measured[sim.CallMap.String()] {
		w.paragraph("Pages:  ", fmt.Sprintf("each further one of a call costs %s to map and %s to unmap.",
			duration(m.MapNext), duration(m.UnmapNext)))
	}
	for _, text := range r.Absent {
		w.paragraph("Absent: ", text+".")
	}
}

// costRow is a line of the table.
func costRow(f *drivercost.Figure) []string {
	name, size, n, speed := f.Call, "", "", ""
	if f.Done {
		name += ", until done"
	}
	if f.Note != "" {
		name += ", " + f.Note
	}
	if f.Size > 0 {
		size = bytesize.Format(f.Size)
	}
	if f.N > 0 {
		n = count(f.N)
	}
	for _, c := range moving {
		if f.Call == c.String() && f.Size >= 1<<20 {
			speed = rate(f.Size, f.Median)
		}
	}
	return []string{name, size, n, duration(f.Median), duration(f.P10), duration(f.P90), speed}
}

// rate formats bytes per time with decimal units: 55.5GB/s.
func rate(size int64, took time.Duration) string {
	if took <= 0 {
		return "-"
	}
	switch perSecond := float64(size) / took.Seconds(); {
	case perSecond >= 1e12:
		return bytesize.ThreeDigits(perSecond/1e12) + "TB/s"
	case perSecond >= 1e9:
		return bytesize.ThreeDigits(perSecond/1e9) + "GB/s"
	default:
		return bytesize.ThreeDigits(perSecond/1e6) + "MB/s"
	}
}
