package plot

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// textSize is the size of letters in pixels, and lineHeight the distance of lines.
const (
	textSize   = 13
	lineHeight = 18
)

// WriteSVG writes p as an SVG that needs no other file. Its colors follow the reader's choice of a light or dark page.
// The same picture is written as the same bytes. The error is that of w.
func (p *Picture) WriteSVG(w io.Writer) error {
	x := &svgWriter{w: bufio.NewWriter(w)}
	x.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]s %[2]s" width="%[1]s" height="%[2]s" role="img">`+
		"\n<title>%[3]s</title>\n<style>\n", number(p.Width), number(p.Height), escape(p.Title))
	x.printf("text { font: %dpx system-ui, sans-serif; white-space: pre }\n.t%d { font-weight: 600 }\n"+
		".m { text-anchor: middle }\n.e { text-anchor: end }\n", textSize, textBold)
	used := p.paints()
	x.colors(used, func(c color) string { return c.light })
	x.printf("@media (prefers-color-scheme: dark) {\n")
	x.colors(used, func(c color) string { return c.dark })
	x.printf("}\n</style>\n")
	x.printf(`<rect class="p%d" width="%s" height="%s"/>`+"\n", paintBackground, number(p.Width), number(p.Height))
	for _, s := range p.shapes {
		x.shape(s)
	}
	x.printf("</svg>\n")
	return x.w.Flush()
}

// paints returns which paints the picture has.
func (p *Picture) paints() (used [numPaints]bool) {
	used[paintBackground] = true
	for _, s := range p.shapes {
		switch s := s.(type) {
		case rects:
			used[s.paint] = true
		case polygon:
			used[s.paint] = true
		case polyline:
			used[s.paint] = true
		}
	}
	return used
}

// An svgWriter writes an SVG. Its buffer keeps the first error.
type svgWriter struct{ w *bufio.Writer }

func (x *svgWriter) printf(format string, args ...any) { fmt.Fprintf(x.w, format, args...) }

// colors writes the rules of one theme.
func (x *svgWriter) colors(used [numPaints]bool, of func(color) string) {
	for i, c := range colors {
		if used[i] {
			x.printf(".p%d { fill: %s } .l%d { stroke: %s }\n", i, of(c), i, of(c))
		}
	}
	for i, c := range textColors {
		x.printf(".t%d { fill: %s }\n", i, of(c))
	}
}

func (x *svgWriter) shape(s shape) {
	switch s := s.(type) {
	case rects:
		x.rects(s)
	case polygon:
		x.printf(`<path class="p%d" d="`, s.paint)
		x.path(s.points)
		x.end("path", `z"`, s.title)
	case polyline:
		dash := ""
		if s.dash {
			dash = ` stroke-dasharray="4 3"`
		}
		x.printf(`<path class="l%d" fill="none" stroke-width="%s"%s d="`, s.paint, number(s.width), dash)
		x.path(s.points)
		x.printf("\"/>\n")
	case label:
		class := "t" + strconv.Itoa(int(s.style)) + [...]string{"", " m", " e"}[s.align]
		x.printf(`<text class="%s" x="%s" y="%s"`, class, number(s.x), number(s.y))
		x.printf(">")
		if s.title != "" {
			x.printf("<title>%s</title>", escape(s.title))
		}
		x.printf("%s</text>\n", escape(s.text))
	}
}

func (x *svgWriter) rects(s rects) {
	if len(s.all) == 1 {
		r := s.all[0]
		x.printf(`<rect class="p%d" x="%s" y="%s" width="%s" height="%s`, s.paint, number(r.x), number(r.y),
			number(r.width), number(r.height))
		x.end("rect", `"`, s.title)
		return
	}
	x.printf(`<path class="p%d" d="`, s.paint)
	for _, r := range s.all {
		x.printf("M%s %sh%sv%sh%sz", number(r.x), number(r.y), number(r.width), number(r.height), number(-r.width))
	}
	x.end("path", `"`, s.title)
}

// end ends a tag, with a title if there is one.
func (x *svgWriter) end(tag, before, title string) {
	if title == "" {
		x.printf("%s/>\n", before)
		return
	}
	x.printf("%s><title>%s</title></%s>\n", before, escape(title), tag)
}

// path writes the commands for a line through points. Points that number writes alike are left out.
func (x *svgWriter) path(points []point) {
	lastX, lastY := "", ""
	for _, p := range points {
		px, py := number(p.x), number(p.y)
		switch {
		case lastX == "":
			x.printf("M%s %s", px, py)
		case px == lastX && py == lastY:
		case py == lastY:
			x.printf("H%s", px)
		case px == lastX:
			x.printf("V%s", py)
		default:
			x.printf("L%s %s", px, py)
		}
		lastX, lastY = px, py
	}
}

// number writes a length with at most one decimal.
func number(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(math.Round(v*10)/10+0, 'f', 1, 64), ".0")
}

// escape returns text for XML. Characters that XML cannot have are replaced.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder cannot fail
	return b.String()
}
