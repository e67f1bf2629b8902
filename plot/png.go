package plot

import (
	"fmt"
	"image"
	stdcolor "image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strconv"

	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// A Theme is a choice of colors.
type Theme uint8

// The themes of WritePNG.
const (
	Light Theme = iota
	Dark
)

// pngScale is the number of pixels of a PNG for one of the picture, so that text is sharp on screens of high density.
const pngScale = 2

// WritePNG writes p as a PNG with two pixels for each of p, and the colors of a theme. Letters other than Latin, Greek
// and Cyrillic ones are shown as boxes. The error is that of w.
func (p *Picture) WritePNG(w io.Writer, theme Theme) error {
	return png.Encode(w, p.image(theme))
}

func (p *Picture) image(theme Theme) *image.RGBA {
	x := &rasterizer{
		image: image.NewRGBA(image.Rect(0, 0, int(math.Ceil(p.Width*pngScale)), int(math.Ceil(p.Height*pngScale)))),
		theme: theme,
		fonts: newFonts(textSize * pngScale),
	}
	x.rect(paintBackground, rect{0, 0, p.Width, p.Height})
	for _, s := range p.shapes {
		switch s := s.(type) {
		case rects:
			for _, r := range s.all {
				x.rect(s.paint, r)
			}
		case polygon:
			x.fill(s.paint, s.points)
		case polyline:
			x.stroke(s)
		case label:
			x.text(s)
		}
	}
	return x.image
}

type rasterizer struct {
	image *image.RGBA
	theme Theme
	fonts *fonts
}

// source returns the color c of the theme.
func (x *rasterizer) source(c color) *image.Uniform {
	text := c.light
	if x.theme == Dark {
		text = c.dark
	}
	n, err := strconv.ParseUint(text[1:], 16, 24)
	if err != nil {
		panic(fmt.Sprintf("plot: color %q", text))
	}
	return image.NewUniform(stdcolor.RGBA{R: uint8(n >> 16), G: uint8(n >> 8), B: uint8(n), A: 0xff})
}

// rect fills whole pixels.
func (x *rasterizer) rect(p paint, r rect) {
	at := func(v float64) int { return int(math.Round(v * pngScale)) }
	to := image.Rect(at(r.x), at(r.y), at(r.x+r.width), at(r.y+r.height))
	draw.Draw(x.image, to.Intersect(x.image.Bounds()), x.source(colors[p]), image.Point{}, draw.Src)
}

// fill fills an area with smooth edges.
func (x *rasterizer) fill(p paint, points []point) {
	if len(points) == 0 {
		return
	}
	left, top, right, bottom := points[0].x, points[0].y, points[0].x, points[0].y
	for _, q := range points {
		left, right = min(left, q.x), max(right, q.x)
		top, bottom = min(top, q.y), max(bottom, q.y)
	}
	box := image.Rect(int(math.Floor(left*pngScale)), int(math.Floor(top*pngScale)),
		int(math.Ceil(right*pngScale)), int(math.Ceil(bottom*pngScale))).Intersect(x.image.Bounds())
	if box.Empty() {
		return
	}
	z := vector.NewRasterizer(box.Dx(), box.Dy())
	at := func(q point) (float32, float32) {
		return float32(q.x*pngScale) - float32(box.Min.X), float32(q.y*pngScale) - float32(box.Min.Y)
	}
	z.MoveTo(at(points[0]))
	for _, q := range points[1:] {
		z.LineTo(at(q))
	}
	z.ClosePath()
	z.Draw(x.image, box, x.source(colors[p]), image.Point{})
}

// stroke draws a line, piece by piece.
func (x *rasterizer) stroke(l polyline) {
	const dash, gap = 4, 3
	for i := 1; i < len(l.points); i++ {
		from, to := l.points[i-1], l.points[i]
		length := math.Hypot(to.x-from.x, to.y-from.y)
		if length == 0 {
			continue
		}
		if !l.dash {
			x.piece(l, from, to, length, l.width/2)
			continue
		}
		at := func(d float64) point {
			return point{from.x + (to.x-from.x)*d/length, from.y + (to.y-from.y)*d/length}
		}
		for d := 0.0; d < length; d += dash + gap {
			end := min(d+dash, length)
			x.piece(l, at(d), at(end), end-d, 0)
		}
	}
}

// piece draws a straight line that begins and ends a distance before and after its points.
func (x *rasterizer) piece(l polyline, from, to point, length, more float64) {
	dx, dy := (to.x-from.x)/length, (to.y-from.y)/length
	from, to = point{from.x - dx*more, from.y - dy*more}, point{to.x + dx*more, to.y + dy*more}
	sx, sy := -dy*l.width/2, dx*l.width/2
	x.fill(l.paint, []point{
		{from.x + sx, from.y + sy}, {to.x + sx, to.y + sy}, {to.x - sx, to.y - sy}, {from.x - sx, from.y - sy},
	})
}

func (x *rasterizer) text(l label) {
	d := x.fonts.drawer(l.style)
	d.Dst, d.Src = x.image, x.source(textColors[l.style])
	d.Dot = fixed.Point26_6{X: fixed.Int26_6(l.x * pngScale * 64), Y: fixed.Int26_6(l.y * pngScale * 64)}
	switch l.align {
	case alignMiddle:
		d.Dot.X -= d.MeasureString(l.text) / 2
	case alignRight:
		d.Dot.X -= d.MeasureString(l.text)
	}
	d.DrawString(l.text)
}
