package plot

import (
	"strings"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// fonts are the Go fonts in one size. Not safe for concurrent use.
type fonts struct{ regular, bold font.Face }

var parsedFonts = sync.OnceValue(func() [2]*opentype.Font {
	var parsed [2]*opentype.Font
	for i, ttf := range [][]byte{goregular.TTF, gobold.TTF} {
		f, err := opentype.Parse(ttf)
		if err != nil {
			panic("plot: the Go fonts cannot be read: " + err.Error())
		}
		parsed[i] = f
	}
	return parsed
})

func newFonts(size float64) *fonts {
	face := func(f *opentype.Font) font.Face {
		face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingNone})
		if err != nil {
			panic("plot: the Go fonts have no face: " + err.Error())
		}
		return face
	}
	parsed := parsedFonts()
	return &fonts{face(parsed[0]), face(parsed[1])}
}

// drawer returns a drawer of text in a style, without destination.
func (f *fonts) drawer(s textStyle) *font.Drawer {
	if s == textBold {
		return &font.Drawer{Face: f.bold}
	}
	return &font.Drawer{Face: f.regular}
}

// otherFonts is the most by which text in the font of a reader's browser is wider: that of DejaVu Sans.
const otherFonts = 1.2

// width returns the width of text in pixels, in the widest font that it may be shown in.
func (f *fonts) width(s textStyle, text string) float64 {
	return float64(f.drawer(s).MeasureString(text)) / 64 * otherFonts
}

// fit cuts text so that it is at most as wide as width. A stack is known by its beginning, which is cut last, and a
// path by its ends.
func (f *fonts) fit(s textStyle, text string, width float64) string {
	if f.width(s, text) <= width {
		return text
	}
	runes := []rune(text)
	for n := min(len(runes)-1, 400); n > 1; n-- {
		tail := n - n/3
		if strings.Contains(text, " ← ") {
			tail = 0
		}
		cut := string(runes[:n-tail]) + "…" + string(runes[len(runes)-tail:])
		if f.width(s, cut) <= width {
			return cut
		}
	}
	return "…"
}
