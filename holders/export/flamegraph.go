package export

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/xml"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/trace"
)

// Dimensions of a flame graph in pixels.
const (
	flameWidth  = 1200
	flameRow    = 18
	flameHeader = 60
	flameLetter = 6.6 // of the font
	leastFlame  = 0.5 // width of a box
	maxFlames   = 256 // frames of a stack

	maxFlameName = 200 // letters of a name
)

// flameScript zooms into the box that is clicked.
//
//go:embed flamegraph.js
var flameScript string

// A flame is a box of a flame graph: blocks whose stacks begin with the same frames, from the outermost one on.
type flame struct {
	name     string
	kind     string // the category for the innermost box, or ""
	bytes    int64
	blocks   int
	children map[string]*flame
}

func (f *flame) child(name, kind string) *flame {
	c := f.children[name]
	if c == nil {
		c = &flame{name: name, kind: kind}
		if f.children == nil {
			f.children = map[string]*flame{}
		}
		f.children[name] = c
	}
	return c
}

func (f *flame) add(b *holders.Block) {
	f.bytes += b.Size
	f.blocks++
}

// sorted returns the children, the largest first.
func (f *flame) sorted() []*flame {
	all := make([]*flame, 0, len(f.children))
	for _, c := range f.children {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *flame) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), strings.Compare(a.name, b.name))
	})
	return all
}

// WriteFlameGraph writes views, each of another device, as a flame graph: one SVG that needs no other file and that
// every browser shows. The width of a box is the requested memory of all blocks whose stacks contain its frame below
// the same frames. The outermost frames are at the bottom. Only frames that are not folded appear
// (holders.Frames.Shown), above them the category of the blocks if it is known, and at most the 256 outermost ones.
// Boxes of less than half a pixel are left out. A click on a box makes it as wide as the picture.
//
// The error is that of w.
func WriteFlameGraph(w io.Writer, views ...*holders.View) error {
	root := &flame{name: "all devices"}
	var titles []string
	for _, v := range views {
		base := root
		if len(views) > 1 {
			base = root.child(fmt.Sprintf("device %d", v.Device()), "")
			titles = append(titles, fmt.Sprintf("Device %d: %v.", v.Device(), v.Moment))
		} else {
			root.name = "all"
			titles = append(titles, v.Moment.String())
		}
		addFlames(root, base, v)
	}
	x := &flameWriter{w: bufio.NewWriter(w), total: max(root.bytes, 1)}
	x.height = flameHeader + flameRow*x.depth(root)
	x.start(strings.Join(titles, " "))
	x.box(root, 0, 0)
	x.printf("</g>\n<script><![CDATA[\n%s]]></script>\n</svg>\n", flameScript)
	return x.w.Flush()
}

// addFlames adds the blocks of a view to the boxes above base, which is root or above it.
func addFlames(root, base *flame, v *holders.View) {
	h := v.History()
	paths := map[trace.StackID][]string{}
	for i := range v.Blocks {
		b := &v.Blocks[i]
		path, known := paths[b.Stack]
		if !known {
			path = flamePath(h, b.Stack)
			paths[b.Stack] = path
		}
		if len(path) == 0 {
			path = []string{holders.NoStack(b.Recorded)}
		}
		root.add(b)
		if base != root {
			base.add(b)
		}
		f := base
		for _, name := range path {
			f = f.child(name, "")
			f.add(b)
		}
		if b.Category != holders.Unknown {
			f.child(b.Category.String(), b.Category.String()).add(b)
		}
	}
}

// flamePath returns the labels of the frames of a stack, outermost first.
func flamePath(h *holders.History, id trace.StackID) []string {
	shown := h.Frames.Shown(id)
	slices.Reverse(shown)
	path := make([]string, 0, min(len(shown), maxFlames))
	for _, f := range shown[:min(len(shown), maxFlames)] {
		path = append(path, shorten(h.Frames.Label(f), maxFlameName))
	}
	return path
}

// A flameWriter writes the SVG. Y is 0 at the top; rows count from the bottom.
type flameWriter struct {
	w      *bufio.Writer // keeps the first error
	total  int64
	height int
}

func (x *flameWriter) printf(format string, args ...any) { fmt.Fprintf(x.w, format, args...) }

// width returns the width of a number of bytes.
func (x *flameWriter) width(bytes int64) float64 {
	return float64(bytes) / float64(x.total) * flameWidth
}

// depth returns the number of rows of a box and those above it.
func (x *flameWriter) depth(f *flame) (rows int) {
	if x.width(f.bytes) < leastFlame {
		return 0
	}
	for _, c := range f.children {
		rows = max(rows, x.depth(c))
	}
	return rows + 1
}

func (x *flameWriter) start(title string) {
	x.printf(`<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="100%%" font-family="monospace" font-size="11">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="8" y="20" font-size="14">%s</text>
<text x="8" y="40" fill="#666">Width: requested memory. Click a box to widen it, the lowest one to return.</text>
<g id="boxes">
`, flameWidth, x.height, escape(title))
}

// box writes a box and those above it, beginning at the byte from.
func (x *flameWriter) box(f *flame, row int, from int64) {
	width := x.width(f.bytes)
	if width < leastFlame {
		return
	}
	left, y := x.width(from), x.height-flameRow*(row+1)
	text := ""
	if letters := int((width - 6) / flameLetter); letters > 2 {
		text = shorten(f.name, letters)
	}
	blocks := "1 block"
	if f.blocks != 1 {
		blocks = fmt.Sprintf("%d blocks", f.blocks)
	}
	x.printf(`<g class="f" data-x="%.3f" data-w="%.3f" data-n="%s"><title>%s: %s in %s, %.1f %%</title>`+
		`<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="#fff"/>`+
		`<text x="%.2f" y="%d">%s</text></g>`+"\n",
		left, width, escape(f.name), escape(f.name), bytesize.Format(f.bytes), blocks,
		100*float64(f.bytes)/float64(x.total), left, y, width, flameRow, f.color(), left+3, y+13, escape(text))
	for _, c := range f.sorted() {
		x.box(c, row+1, from)
		from += c.bytes
	}
}

// categoryColors are the colors of the innermost boxes.
var categoryColors = map[string]string{
	holders.Weights.String():        "#7fa7d9",
	holders.Gradients.String():      "#9fd08c",
	holders.OptimizerState.String(): "#b9a2dc",
	holders.Activations.String():    "#f2c46d",
	holders.Temporaries.String():    "#d9d9d9",
	holders.Workspace.String():      "#c7b299",
}

// color returns the color of a box: that of the category, or one that depends on the file, lighter or darker by line.
func (f *flame) color() string {
	if c := categoryColors[f.kind]; c != "" {
		return c
	}
	file, line, _ := strings.Cut(f.name, ":")
	return fmt.Sprintf("hsl(%d,70%%,%d%%)", hash(file)%24*15, 72+hash(line)%14)
}

func hash(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // cannot fail
	return h.Sum32()
}

// shorten cuts text to a number of letters.
func shorten(text string, letters int) string {
	runes := []rune(text)
	if len(runes) <= letters {
		return text
	}
	return string(runes[:letters-2]) + ".."
}

// escape returns text for XML. Characters that XML cannot have are replaced.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder cannot fail
	return b.String()
}
