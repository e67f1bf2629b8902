package plot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/holders"
)

// Distances from the top of a panel over time, in pixels.
const (
	stepsTop    = 58 // the numbers of steps
	chartTop    = 84
	chartBottom = chartTop + chartHeight
	historyEnd  = chartBottom + 44
	roomOnTop   = 1.04 // of the scale
)

// A history is what the panels over time have in common.
type history struct {
	o        Options
	h        *holders.History
	columns  *columns
	groups   *groups
	segments []holders.Segment
	most     []int64 // reserved bytes, in each column
	reserved int64   // at the moment
}

// newHistory divides the recording into n columns.
func newHistory(h *holders.History, o Options, n int) (*history, error) {
	first, err := boundary(h, o.From, min(0, h.Trace.Len()-1), func(s holders.Step) int { return s.First })
	if err != nil {
		return nil, err
	}
	last, err := boundary(h, o.To, h.Trace.Len()-1, func(s holders.Step) int { return s.Last })
	if err != nil {
		return nil, err
	}
	if last < first || last == first && o.From+o.To != "" {
		return nil, fmt.Errorf("plot: the picture would end at event %d and begin at event %d", last, first)
	}
	x := &history{o: o, h: h, columns: newColumns(h, first, last, n, o.Axis), segments: h.Segments()}
	moment, err := x.moment()
	if err != nil {
		return nil, err
	}
	x.groups = newGroups(x.columns, o.By, moment)
	x.most, x.reserved = x.columns.reserved(x.segments, moment.Event)
	return x, nil
}

// boundary returns the event of a moment, or a default for an empty name. A step begins and ends the picture with
// its own first and last event.
func boundary(h *holders.History, name string, usual int, of func(holders.Step) int) (int, error) {
	if name == "" {
		return usual, nil
	}
	m, err := h.Moment(name)
	if number, ok := strings.CutPrefix(name, "step:"); ok && err == nil {
		for _, s := range h.Steps().List {
			if strconv.Itoa(s.Number) == number {
				return of(s), nil
			}
		}
	}
	return m.Event, err
}

// moment returns the moment whose groups are named.
func (x *history) moment() (holders.Moment, error) {
	if x.o.At == "" && x.h.Trace.Len() == 0 {
		return x.h.Moment("end")
	}
	if x.o.At == "" || x.o.At == "peak" {
		m, err := x.h.Moment(fmt.Sprintf("event:%d", x.columns.peak()))
		m.Name = "the peak"
		return m, err
	}
	m, err := x.h.Moment(x.o.At)
	if err == nil && (m.Event < x.columns.first || m.Event > x.columns.last) {
		return m, fmt.Errorf("plot: the moment %q is not between the beginning and the end of the picture", x.o.At)
	}
	return m, err
}

func (x *history) title() string { return x.o.Title }

func (x *history) size() (width, height float64) { return historyWidth, historyEnd }

// notes are those of all panels over time.
func (x *history) notes() (notes []string) {
	if slices.ContainsFunc(x.groups.all, func(g group) bool { return strings.HasPrefix(g.label, holders.NoStack(true)) }) {
		notes = append(notes, holders.NoStack(true)+": no stack was recorded, such as in PyTorch's backward pass.")
	}
	if len(x.columns.failures()) > 0 {
		notes = append(notes, "Red: a request failed.")
	}
	if x.h.Trace.Len() > 0 {
		notes = append(notes, "Each column of pixels shows the moment of the most requested memory in it.")
	}
	return notes
}

// momentText is the heading of the names: "At the peak, 3.952s: 7.86 GiB requested".
func (x *history) momentText() string {
	m := x.groups.moment
	when := ""
	if _, err := time.ParseDuration(m.Name); err != nil && m.Since > 0 { // the name is not a time itself
		when = ", " + m.Since.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("At %s%s: %s requested", m.Name, when, sizeText(m.Bytes))
}

// momentX is the place of the moment.
func (x *history) momentX() float64 {
	return chartLeft + x.columns.position(x.groups.moment.Event)*chartWidth
}

// markMoment draws a line at the moment, from y to the lower edge of the chart.
func (x *history) markMoment(p *painter, y, bottom float64) {
	if x.h.Trace.Len() > 0 {
		p.dashed(paintMoment, 1, point{x.momentX(), y}, point{x.momentX(), bottom})
	}
}

// frame draws the scale of time, the steps above the chart, the failed requests and the gaps. Y is the top of the
// panel.
func (x *history) frame(p *painter, y float64) {
	p.axis(x.columns, y+chartBottom)
	x.steps(p, y+stepsTop)
	drawn := marks{}
	for _, g := range x.h.Trace.Gaps {
		if g <= x.columns.first || g > x.columns.last || !drawn.first(x.columns.position(g)*chartWidth) {
			continue
		}
		from, to := x.columns.position(g-1)*chartWidth, x.columns.position(g)*chartWidth
		p.rect(paintAxis, "recording was off", rect{chartLeft + from, y + chartBottom - 3, max(to-from, 1), 3})
	}
	drawn = marks{}
	for _, e := range x.columns.failures() {
		at := chartLeft + x.columns.position(e)*chartWidth
		if !drawn.first(at) {
			continue
		}
		title := fmt.Sprintf("out of memory: a request of %s failed", sizeText(x.h.Trace.At(e).Size))
		p.line(paintAlarm, 1, point{at, y + chartTop - 4}, point{at, y + chartBottom})
		p.add(polygon{paint: paintAlarm, title: title, points: []point{
			{at - 5, y + chartTop - 10}, {at + 5, y + chartTop - 10}, {at, y + chartTop - 1},
		}})
	}
}

// marks are the columns of pixels that have a mark, so that each gets one, however many events it has.
type marks map[int]bool

// first reports whether the column at x has no mark yet.
func (m marks) first(x float64) bool {
	marked := m[int(x)]
	m[int(x)] = true
	return !marked
}

// steps writes the numbers of the steps, as many as there is room for.
func (x *history) steps(p *painter, y float64) {
	steps := x.h.Steps()
	var shown []holders.Step
	for _, s := range steps.List {
		if s.First >= x.columns.first && s.First <= x.columns.last {
			shown = append(shown, s)
		}
	}
	if len(shown) == 0 {
		return
	}
	name := "step"
	if steps.Inferred {
		name = "repetition"
	}
	p.text(label{x: chartLeft - 8, y: y + 12, text: name, style: textNote, align: alignRight, title: steps.Source})
	free, drawn := 0.0, marks{}
	for _, s := range shown {
		from := chartLeft + x.columns.position(s.First)*chartWidth
		if !drawn.first(from / 2) {
			continue
		}
		p.line(paintAxis, 1, point{from, y + chartTop - stepsTop - 5}, point{from, y + chartTop - stepsTop})
		text := fmt.Sprint(s.Number)
		if from >= free {
			p.text(label{x: from, y: y + 12, text: text, style: textNote, align: alignMiddle})
			free = from + p.fonts.width(textNote, text) + 8
		}
	}
}
