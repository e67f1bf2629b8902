// Package plot draws recordings of allocators and the results of replays as pictures, without a browser: as SVG, or as
// PNG for places that do not show SVG.
//
//	histories, err := holders.All(s) // of a snapshot
//	...
//	memory, err := plot.Memory(histories[0], plot.Options{Title: "train.py"})
//	...
//	err = plot.Draw(memory).WriteSVG(file)
//
// Memory shows the requested and the reserved memory over time, and the holders of one moment. Addresses shows where
// the blocks lay in the reserved memory over time. Comparison shows the memory that each row of a replay needs. Each is
// a Panel; Draw puts one below the other.
//
// A picture depends on its panels alone: the same recording gives the same bytes. Its size is bounded, however long the
// recording is: a column of pixels shows one moment, that with the most requested memory in the column's time. Sizes
// are bytes, written with binary units. Panels and pictures do not change, so several goroutines may use them at once.
package plot

import (
	"reflect"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// A panel has a chart at the left and the names of what it shows at the right. Lengths are pixels.
const (
	historyWidth = 1180
	margin       = 16

	chartLeft   = 84
	chartWidth  = 540 // as many columns
	chartRight  = chartLeft + chartWidth
	chartHeight = 300

	momentLeft  = chartRight + 32 // the bar of one moment
	momentWidth = 24
	namesLeft   = momentLeft + momentWidth + 28
	sizesRight  = namesLeft + 92
	sharesRight = sizesRight + 48
	labelsLeft  = sharesRight + 12
)

// A Panel is one chart with its title and its names: the result of Memory, Addresses or Comparison.
type Panel interface {
	size() (width, height float64)
	// extent is the largest value of the chart. Panels of one type have one scale, which ends at the largest extent.
	extent() float64
	// draw draws the panel between y and y plus its height. The scale ends at extent.
	draw(p *painter, y, extent float64)
	title() string
	// note explains what the chart shows, in sentences. A note that several panels have is written once.
	note() []string
}

// Options say what Memory and Addresses show.
type Options struct {
	Title string // such as the name of the recording

	// By are the keys by which blocks are grouped. Nil means holders.ByLine if the blocks at the moment have stacks,
	// holders.ByCategory if they have categories, and otherwise holders.ByStream.
	By []holders.Key

	// At is the moment whose groups are named, as for holders.History.Moment. Empty means the peak, of the part from
	// From to To.
	At string

	// From and To are moments at which the picture begins and ends. A step (step:3) is shown from its beginning and to
	// its end. Empty means the whole recording.
	From, To string
	Axis     Axis
}

// An Axis says how the events of a recording are spread over the width of a chart.
type Axis uint8

// The axes.
const (
	// AxisAuto is AxisTime or, if nothing happens during more than a quarter of the time, AxisEvents.
	AxisAuto Axis = iota
	AxisTime
	AxisEvents // at equal distances; also if the events have no times
)

// Draw returns the picture of some panels, from the top to the bottom.
func Draw(panels ...Panel) *Picture {
	extents := map[reflect.Type]float64{}
	var titles []string
	for _, x := range panels {
		t := reflect.TypeOf(x)
		extents[t] = max(extents[t], x.extent())
		titles = append(titles, x.title())
	}
	p := &painter{
		picture: &Picture{Title: strings.Join(titles, "; ")},
		fonts:   newFonts(textSize),
		palette: newPalette(),
	}
	y := 0.0
	var notes []string
	seen := map[string]bool{}
	for _, x := range panels {
		x.draw(p, y, extents[reflect.TypeOf(x)])
		width, height := x.size()
		p.picture.Width = max(p.picture.Width, width)
		y += height
		for _, note := range x.note() {
			if !seen[note] {
				seen[note] = true
				notes = append(notes, note)
			}
		}
	}
	for _, line := range p.wrap(strings.Join(notes, " "), p.picture.Width-2*margin) {
		p.text(label{x: margin, y: y + lineHeight, text: line, style: textNote})
		y += lineHeight
	}
	p.picture.Height = y + margin
	return p.picture
}

// A painter adds shapes to a picture.
type painter struct {
	picture *Picture
	fonts   *fonts
	palette *palette
}

func (p *painter) add(s shape)  { p.picture.shapes = append(p.picture.shapes, s) }
func (p *painter) text(l label) { p.add(l) }

func (p *painter) rect(paint paint, title string, r rect) {
	p.add(rects{paint: paint, title: title, all: []rect{r}})
}

func (p *painter) line(paint paint, width float64, points ...point) {
	p.add(polyline{paint: paint, width: width, points: points})
}

func (p *painter) dashed(paint paint, width float64, points ...point) {
	p.add(polyline{paint: paint, width: width, dash: true, points: points})
}

// heading writes the title of a panel and a line below it.
func (p *painter) heading(y, width float64, title, below string) {
	width -= 2 * margin
	p.text(label{x: margin, y: y + 26, text: p.fonts.fit(textBold, title, width), style: textBold, title: title})
	p.text(label{x: margin, y: y + 46, text: p.fonts.fit(textNote, below, width), style: textNote})
}

// wrap divides text into lines of a width.
func (p *painter) wrap(text string, width float64) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		longer := strings.TrimPrefix(line+" "+word, " ")
		if line != "" && p.fonts.width(textNote, longer) > width {
			lines = append(lines, line)
			longer = word
		}
		line = longer
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// sizeText writes 17.89 GiB.
func sizeText(bytes int64) string {
	text := bytesize.Format(bytes)
	unit := strings.TrimLeft(text, "0123456789.-")
	return strings.TrimSuffix(text, unit) + " " + unit
}
