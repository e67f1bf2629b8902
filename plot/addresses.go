package plot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// A map of addresses has cells of cellSize pixels.
const (
	cellSize    = 2
	mapColumns  = chartWidth / cellSize
	mapRows     = chartHeight / cellSize
	maxDividers = 64 // between ranges of addresses
)

// Addresses returns a map of the reserved memory over time: addresses upward, time to the right. It shows the groups of
// blocks where they lay, the free memory between them, and the memory that was not reserved. Addresses that were never
// reserved during the picture are left out. The error is that of holders.History.Moment for the moments in o.
func Addresses(h *holders.History, o Options) (Panel, error) {
	x, err := newHistory(h, o, mapColumns)
	if err != nil {
		return nil, err
	}
	a := &addressesPanel{history: x}
	a.findRanges()
	return a, nil
}

type addressesPanel struct {
	*history
	ranges []addressRange // ascending, without overlap
	total  int64          // bytes
}

// An addressRange is a range of addresses, all of which were reserved at some time. Before is the sum of those below.
type addressRange struct {
	ptr, end driver.Pointer
	before   int64
}

// findRanges joins the segments that overlap or lie side by side.
func (x *addressesPanel) findRanges() {
	for i := range x.segments {
		s := &x.segments[i]
		if int(s.Start) <= x.columns.last && int(s.End) > x.columns.first && s.Size > 0 {
			x.ranges = append(x.ranges, addressRange{ptr: s.Ptr, end: s.Ptr + driver.Pointer(s.Size)})
		}
	}
	slices.SortFunc(x.ranges, func(a, b addressRange) int { return cmp.Compare(a.ptr, b.ptr) })
	joined := x.ranges[:0]
	for _, r := range x.ranges {
		if n := len(joined); n > 0 && r.ptr <= joined[n-1].end {
			joined[n-1].end = max(joined[n-1].end, r.end)
			continue
		}
		joined = append(joined, r)
	}
	x.ranges = joined
	for i := range x.ranges {
		x.ranges[i].before = x.total
		x.total += int64(x.ranges[i].end - x.ranges[i].ptr)
	}
}

// offset returns the place of an address in the ranges, in bytes.
func (x *addressesPanel) offset(p driver.Pointer) (int64, bool) {
	n, _ := slices.BinarySearchFunc(x.ranges, p, func(r addressRange, p driver.Pointer) int {
		if r.end <= p {
			return -1
		}
		return 1
	})
	if n == len(x.ranges) || x.ranges[n].ptr > p {
		return 0, false
	}
	return x.ranges[n].before + int64(p-x.ranges[n].ptr), true
}

func (x *addressesPanel) extent() float64 { return 0 } // every map has its own scale

func (x *addressesPanel) note() []string {
	return append([]string{
		fmt.Sprintf("Colors: blocks that the program requested, by %s, at their addresses.", x.groups.keysText()),
		"Blank: not reserved from the device at that time. Addresses that were never reserved are left out.",
	}, x.notes()...)
}

// summary is the line below the title.
func (x *addressesPanel) summary() string {
	what := "Addresses over time"
	if x.h.Trace.Len() == 0 {
		what = "Addresses at the end, which is all that the recording has"
	}
	return fmt.Sprintf("%s: %s, in %s.", what, sizeText(x.total), rangesText(len(x.ranges)))
}

func rangesText(n int) string {
	if n == 1 {
		return "one range"
	}
	return grouped(n) + " separate ranges"
}

func (x *addressesPanel) draw(p *painter, y, _ float64) {
	x.groups.choosePaints(p.palette)
	p.heading(y, historyWidth, x.o.Title, x.summary())
	bottom := y + chartBottom
	scale := chartHeight / float64(max(x.total, 1))
	sizeLines(float64(x.total), func(bytes float64, text string) {
		at := bottom - bytes*scale
		p.line(paintAxis, 1, point{chartLeft - 5, at}, point{chartLeft, at})
		p.text(label{x: chartLeft - 8, y: at + 4, text: text, style: textNote, align: alignRight})
	})
	for n, all := range newGrid(x).rects(chartLeft, y+chartTop) {
		if len(all) > 0 {
			paint, title := paintFree, "reserved, free"
			if n < len(x.groups.all) {
				paint, title = x.groups.all[n].paint(p.palette), x.groups.all[n].label
			}
			p.add(rects{paint: paint, title: title, all: all})
		}
	}
	if len(x.ranges) <= maxDividers {
		for _, r := range x.ranges[min(1, len(x.ranges)):] {
			at := bottom - float64(r.before)*scale
			p.line(paintAxis, 0.5, point{chartLeft, at}, point{chartRight, at})
		}
	}
	x.markMoment(p, y+chartTop, bottom)
	x.frame(p, y)
	x.legend(p, y)
}

// legend names the groups at the moment and the free memory.
func (x *addressesPanel) legend(p *painter, y float64) {
	p.text(label{x: momentLeft, y: y + stepsTop + 12, text: x.momentText(), style: textBold})
	at := y + chartTop
	line := func(paint paint, bytes int64, share, name string) {
		p.rect(paint, name, rect{momentLeft, at + 3, 12, 12})
		p.text(label{x: sizesRight - 24, y: at + 14, text: sizeText(bytes), style: textBold, align: alignRight})
		p.text(label{x: sharesRight - 24, y: at + 14, text: share, style: textNote, align: alignRight})
		p.text(label{
			x: labelsLeft - 24, y: at + 14, text: p.fonts.fit(textPlain, name, historyWidth-margin-labelsLeft+24), title: name,
		})
		at += lineHeight
	}
	for _, g := range x.groups.bySize() {
		if g.at > 0 {
			line(g.paint(p.palette), g.at, bytesize.Percent(g.at, x.groups.moment.Bytes), g.label)
		}
	}
	if free := x.reserved - x.groups.moment.Bytes; free > 0 {
		line(paintFree, free, "", "reserved, free")
	}
}
