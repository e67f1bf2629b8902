package plot

import "github.com/ashlar-go/ashlar/holders"

// A Picture is drawn with shapes and texts, in the order of their drawing. Lengths are pixels, from the top left.
type Picture struct {
	Width, Height float64
	Title         string // for readers who do not see the picture

	shapes []shape
}

// A shape is one element of a picture.
type shape interface{}

type point struct{ x, y float64 }

// rects are filled rectangles of one paint.
type rects struct {
	paint paint
	title string // shown by browsers under the pointer; may be empty
	all   []rect
}

type rect struct{ x, y, width, height float64 }

// A polygon is a filled area.
type polygon struct {
	paint  paint
	title  string
	points []point
}

// A polyline is a line of a width, dashed if dash is set.
type polyline struct {
	paint  paint
	width  float64
	dash   bool
	points []point
}

// A label is one line of text. Y is that of the base line.
type label struct {
	x, y  float64
	text  string
	style textStyle
	align align
	title string
}

type align uint8

const (
	alignLeft align = iota
	alignMiddle
	alignRight
)

type textStyle uint8

const (
	textPlain textStyle = iota
	textBold
	textNote  // smaller emphasis: explanations and scales
	textAlarm // failures
)

// A paint is a color, by its meaning.
type paint uint8

const (
	paintBackground paint = iota
	paintGrid             // lines of scales
	paintAxis             // lines around charts, and from labels to what they name
	paintReserved         // the line of reserved memory
	paintFree             // memory that is reserved and free
	paintAlarm            // failed requests, and limits
	paintMoment           // the moment that is labelled
	paintOther            // the groups that have no color of their own
	paintTheirs           // allocators of others
	paintOurs             // Ashlar's own
	paintBand             // the first of the colors of groups

	numBands  = 10
	numPaints = paintBand + numBands
)

// A color has a value on a light and on a dark background, as #rrggbb.
type color struct{ light, dark string }

var colors = [numPaints]color{
	paintBackground: {"#ffffff", "#0d1117"},
	paintGrid:       {"#e4e8ec", "#2a313a"},
	paintAxis:       {"#8c959f", "#768390"},
	paintReserved:   {"#1f2328", "#e6edf3"},
	paintFree:       {"#e9d9d4", "#4a3733"},
	paintAlarm:      {"#cf222e", "#ff7b72"},
	paintMoment:     {"#1f2328", "#e6edf3"},
	paintOther:      {"#b6bec7", "#616b76"},
	paintTheirs:     {"#afb8c1", "#6e7681"},
	paintOurs:       {"#2f81f7", "#388bfd"},

	// Neighbors differ in lightness, so that they also differ in grey.
	paintBand + 0: {"#2f6fb0", "#4d8fd6"}, // blue
	paintBand + 1: {"#f0b849", "#d9a441"}, // yellow
	paintBand + 2: {"#7a4ea3", "#8f63bd"}, // violet
	paintBand + 3: {"#8fc98a", "#7fb97a"}, // green
	paintBand + 4: {"#b5452c", "#c65a41"}, // rust
	paintBand + 5: {"#7fcbd6", "#6fb9c4"}, // cyan
	paintBand + 6: {"#37715f", "#3f8a72"}, // dark green
	paintBand + 7: {"#cfd66b", "#b9c05a"}, // lime
	paintBand + 8: {"#5b5b8f", "#7272ad"}, // slate
	paintBand + 9: {"#f2a7c0", "#d98fa9"}, // pink
}

var textColors = [...]color{
	textPlain: {"#1f2328", "#e6edf3"},
	textBold:  {"#1f2328", "#e6edf3"},
	textNote:  {"#59636e", "#9198a1"},
	textAlarm: {"#cf222e", "#ff7b72"},
}

// categoryPaints are the colors of categories, which are the same in every picture.
var categoryPaints = map[string]paint{
	holders.Weights.String():        paintBand,
	holders.Activations.String():    paintBand + 1,
	holders.OptimizerState.String(): paintBand + 2,
	holders.Gradients.String():      paintBand + 3,
	holders.Workspace.String():      paintBand + 4,
	holders.Temporaries.String():    paintBand + 5,
	holders.Unknown.String():        paintOther,
}

// A palette gives each label a color, in the order of their first use, so that a label has one color in all charts of a
// picture.
type palette struct {
	paints map[string]paint
	used   int
}

func newPalette() *palette { return &palette{paints: map[string]paint{}} }

func (p *palette) of(label string) paint {
	c, ok := categoryPaints[label]
	if ok {
		return c
	}
	if c, ok = p.paints[label]; !ok {
		c = paintBand + paint(p.used%numBands)
		p.paints[label] = c
		p.used++
	}
	return c
}
