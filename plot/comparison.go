package plot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/replay"
)

// The geometry of bars, in pixels.
const (
	barLeft   = 345
	barWidth  = 330 // of the extent
	barsWidth = 900 // of the picture
	barTop    = 78  // of the first bar
	barStep   = 24
	barSize   = 16
	barMargin = 18 // below the last bar
)

// Comparison returns a chart of the memory that the rows of a replay reserve, beside the peak of the requested memory,
// which no row can be below for its whole run. If the smallest limits were searched, they are written at the right.
// The title names the recording.
func Comparison(title string, c *replay.Comparison) Panel { return &comparisonPanel{title, c} }

type comparisonPanel struct {
	name string
	c    *replay.Comparison
}

func (x *comparisonPanel) title() string { return x.name }

func (x *comparisonPanel) size() (width, height float64) {
	return barsWidth, barTop + float64(len(x.c.Rows))*barStep + barMargin
}

// extent is the longest bar, as a multiple of the requested peak.
func (x *comparisonPanel) extent() float64 {
	most := max(x.c.Limit, 1)
	if x.c.Limit > 2*x.bound() {
		most = 1 // the limit is far away
	}
	for i := range x.c.Rows {
		most = max(most, x.c.Rows[i].ReservedPeak)
	}
	return max(float64(most)/float64(x.bound()), 1)
}

func (x *comparisonPanel) bound() int64 { return max(x.c.Bound.RequestedPeak, 1) }

func (x *comparisonPanel) searched() bool { return x.c.Bound.SmallestLimit != 0 }

func (x *comparisonPanel) note() []string {
	notes := []string{"Bars: peak of the memory reserved from the device, grey for the policies of others and blue for " +
		"Ashlar's allocators. Dashed line: peak of the memory that the program requested."}
	if x.searched() {
		notes = append(notes, "Completes within: the smallest limit under which no request fails.")
	}
	if x.c.Best >= 0 {
		notes = append(notes, "Bold: the row that needs the least.")
	}
	if x.c.Limit > 0 {
		notes = append(notes, "Red line: limit of the reserved memory.")
	}
	if slices.ContainsFunc(x.c.Rows, func(r replay.Row) bool { return !r.Completed() }) {
		notes = append(notes, "Fails: a request found no room, and the program would have ended there.")
	}
	return notes
}

func (x *comparisonPanel) draw(p *painter, y, extent float64) {
	below := fmt.Sprintf("%s requested at the peak", sizeText(x.bound()))
	if x.c.Limit > 0 {
		below += fmt.Sprintf("; with a limit of %s", sizeText(x.c.Limit))
	}
	p.heading(y, barsWidth, x.name, below)
	if x.searched() {
		p.text(label{x: barsWidth - margin, y: y + 46, text: "completes within", style: textNote, align: alignRight})
	}
	at := func(bytes int64) float64 { return barLeft + float64(bytes)/float64(x.bound())/extent*barWidth }
	for i := range x.c.Rows {
		x.row(p, i, y+barTop+float64(i)*barStep-barStep/2, at)
	}
	top, bottom := y+barTop-barStep/2-4, y+barTop+float64(len(x.c.Rows)-1)*barStep+barSize/2
	p.dashed(paintReserved, 1.5, point{at(x.bound()), top}, point{at(x.bound()), bottom})
	if x.c.Limit > 0 && at(x.c.Limit) <= barLeft+barWidth+1 {
		p.line(paintAlarm, 1.5, point{at(x.c.Limit), top}, point{at(x.c.Limit), bottom})
	}
}

// row draws a row, whose bar begins at y.
func (x *comparisonPanel) row(p *painter, i int, y float64, at func(int64) float64) {
	r := &x.c.Rows[i]
	style, base := textPlain, y+13
	if i == x.c.Best {
		style = textBold
	}
	name, paint := rowName(x.c, r.Allocator)
	p.text(label{
		x: barLeft - 8, y: base, text: p.fonts.fit(style, name, barLeft-8-margin), title: name,
		style: style, align: alignRight,
	})
	end, text := float64(barLeft), "not known"
	if r.ReservedPeak >= 0 {
		end, text = at(r.ReservedPeak), sizeText(r.ReservedPeak)
		p.rect(paint, "", rect{barLeft, y, end - barLeft, barSize})
	}
	if !r.Completed() {
		style, text = textAlarm, text+", fails"
	}
	end += 6
	for _, line := range []float64{at(x.bound()), at(x.c.Limit)} {
		if end < line+6 && line < end+p.fonts.width(style, text) {
			end = line + 6
		}
	}
	p.text(label{x: end, y: base, text: text, style: style})
	switch {
	case r.SmallestLimit > 0:
		p.text(label{
			x: barsWidth - margin, y: base, text: sizeText(r.SmallestLimit), style: style, align: alignRight,
		})
	case r.SmallestLimit < 0:
		p.text(label{x: barsWidth - margin, y: base, text: "none", style: textAlarm, align: alignRight})
	}
}

// rowName returns the name of a row for readers who do not know specs, and the color of its bar.
func rowName(c *replay.Comparison, spec string) (string, paint) {
	name, settings, has := strings.Cut(spec, ":")
	switch name {
	case replay.AsRecorded:
		switch {
		case settings != "":
			return "PyTorch, " + settings, paintTheirs
		case has || c.Work.Script:
			return "PyTorch's defaults", paintTheirs
		}
		return "PyTorch, as recorded", paintTheirs
	case "bfc":
		name = "TensorFlow (bfc)"
	case "direct":
		name = "one driver call each (direct)"
	default:
		return strings.TrimSuffix("Ashlar, "+name+", "+settings, ", "), paintOurs
	}
	return strings.TrimSuffix(name+", "+settings, ", "), paintTheirs
}
