package plot

import (
	"fmt"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// Memory returns a chart of the requested and the reserved memory over time, whose bands are groups of blocks.
// Beside it are the groups at one moment, which add up to the requested memory. Steps, failed requests and gaps are
// marked. The error is that of holders.History.Moment for the moments in o.
func Memory(h *holders.History, o Options) (Panel, error) {
	x, err := newHistory(h, o, chartWidth)
	if err != nil {
		return nil, err
	}
	return &memoryPanel{x}, nil
}

type memoryPanel struct{ *history }

func (x *memoryPanel) extent() float64 {
	most := int64(1)
	for i, e := range x.columns.moments {
		most = max(most, x.most[i], x.h.ActiveBytes(int(e)))
	}
	return float64(most) * roomOnTop
}

func (x *memoryPanel) note() []string {
	return append([]string{
		fmt.Sprintf("Colors: memory that the program requested, by %s.", x.groups.keysText()),
		"Line: memory that the allocator reserved. The area between the colors and the line was not in use.",
	}, x.notes()...)
}

// summary is the line below the title.
func (x *memoryPanel) summary() string {
	requested, reserved := int64(0), int64(0)
	for i, e := range x.columns.moments {
		requested, reserved = max(requested, x.h.ActiveBytes(int(e))), max(reserved, x.most[i])
	}
	text := fmt.Sprintf("Memory over time: at most %s requested and %s reserved.", sizeText(requested), sizeText(reserved))
	failures := x.columns.failures()
	switch n := len(failures); {
	case n == 1:
		text += fmt.Sprintf(" A request of %s failed.", sizeText(x.h.Trace.At(failures[0]).Size))
	case n > 1:
		text += fmt.Sprintf(" %s requests failed.", grouped(n))
	}
	return text
}

func (x *memoryPanel) draw(p *painter, y, extent float64) {
	x.groups.choosePaints(p.palette)
	p.heading(y, historyWidth, x.o.Title, x.summary())
	bottom := y + chartBottom
	at := func(bytes int64) float64 { return bottom - float64(bytes)/extent*chartHeight }
	sizeLines(extent, func(bytes float64, text string) {
		p.line(paintGrid, 1, point{chartLeft, at(int64(bytes))}, point{chartRight, at(int64(bytes))})
		p.text(label{x: chartLeft - 8, y: at(int64(bytes)) + 4, text: text, style: textNote, align: alignRight})
	})
	reserved := steps(x.most, at)
	p.add(polygon{paint: paintFree, title: "reserved, not in use", points: append(reserved,
		point{chartRight, bottom}, point{chartLeft, bottom})})
	x.bands(p, at)
	p.line(paintReserved, 1.5, reserved...)
	x.markMoment(p, y+chartTop, bottom)
	x.frame(p, y)
	x.bar(p, y, at)
}

// bands draws the groups.
func (x *memoryPanel) bands(p *painter, at func(int64) float64) {
	below := make([]int64, len(x.columns.moments))
	lower := steps(below, at)
	for i := range x.groups.all {
		g := &x.groups.all[i]
		for c := range below {
			below[c] += g.bytes[c]
		}
		upper := steps(below, at)
		points := append([]point{}, upper...)
		for n := len(lower) - 1; n >= 0; n-- {
			points = append(points, lower[n])
		}
		p.add(polygon{paint: g.paint(p.palette), title: g.label, points: points})
		lower = upper
	}
}

// steps returns the line over the columns of a chart.
func steps(values []int64, at func(int64) float64) (points []point) {
	for c, v := range values {
		if c > 0 && v == values[c-1] && c < len(values)-1 {
			continue
		}
		if c > 0 {
			points = append(points, point{chartLeft + float64(c), at(values[c-1])})
		}
		points = append(points, point{chartLeft + float64(c), at(v)})
	}
	return append(points, point{chartRight, at(values[len(values)-1])})
}

// bar draws the moment: its groups on top of each other, with their names.
func (x *memoryPanel) bar(p *painter, y float64, at func(int64) float64) {
	p.text(label{x: momentLeft, y: y + stepsTop + 12, text: x.momentText(), style: textBold})
	m := x.groups.moment
	if x.h.Trace.Len() > 0 {
		p.dashed(paintMoment, 1, point{x.momentX(), at(m.Bytes)}, point{momentLeft, at(m.Bytes)})
		p.dashed(paintMoment, 1, point{chartRight, at(0)}, point{momentLeft, at(0)})
	}
	var entries []entry
	bytes := int64(0)
	part := func(paint paint, size int64, name string, share bool) {
		top, bottom := at(bytes+size), at(bytes)
		p.rect(paint, name, rect{momentLeft, top, momentWidth, bottom - top})
		entries = append([]entry{{(top + bottom) / 2, size, share, name}}, entries...)
		bytes += size
	}
	for i := range x.groups.all {
		if g := &x.groups.all[i]; g.at > 0 {
			part(g.paint(p.palette), g.at, g.label, true)
		}
	}
	if free := x.reserved - m.Bytes; free > 0 {
		part(paintFree, free, "reserved, not in use", false)
	}
	p.line(paintAxis, 1, point{momentLeft, at(bytes)}, point{momentLeft + momentWidth, at(bytes)},
		point{momentLeft + momentWidth, at(0)}, point{momentLeft, at(0)}, point{momentLeft, at(bytes)})
	p.names(entries, m.Bytes, y+chartTop, y+chartBottom)
}

// names writes the sizes, the shares and the names of entries beside the bar of the moment.
func (p *painter) names(entries []entry, whole int64, top, bottom float64) {
	ys := make([]float64, len(entries))
	for i := range entries {
		ys[i] = entries[i].y
	}
	spread(ys, top+lineHeight/2, bottom-lineHeight/2)
	for i, e := range entries {
		y := ys[i]
		p.line(paintAxis, 1, point{momentLeft + momentWidth, e.y}, point{namesLeft - 14, y}, point{namesLeft - 4, y})
		p.text(label{x: sizesRight, y: y + 4, text: sizeText(e.bytes), style: textBold, align: alignRight})
		if e.share {
			p.text(label{x: sharesRight, y: y + 4, text: bytesize.Percent(e.bytes, whole), style: textNote, align: alignRight})
		}
		p.text(label{
			x: labelsLeft, y: y + 4, text: p.fonts.fit(textPlain, e.label, historyWidth-margin-labelsLeft), title: e.label,
		})
	}
}

// An entry is a part of the bar of the moment, whose middle is at y.
type entry struct {
	y     float64
	bytes int64
	share bool // it has a part of the requested memory
	label string
}

// spread moves ascending positions apart, to distances of at least a line between top and bottom, as far as they fit.
func spread(ys []float64, top, bottom float64) {
	least := top
	for i := range ys {
		ys[i] = max(ys[i], least)
		least = ys[i] + lineHeight
	}
	most := bottom
	for i := len(ys) - 1; i >= 0; i-- {
		ys[i] = min(ys[i], most)
		most = ys[i] - lineHeight
	}
}
