package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	stdcolor "image/color"
	"image/png"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// panel is the panel of a recording.
func panel(t testing.TB, draw func(*holders.History, Options) (Panel, error), path string, o Options) Panel {
	t.Helper()
	if o.Title == "" {
		o.Title = path[strings.LastIndex(path, "/")+1:]
	}
	x, err := draw(recorded(t, path), o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// compared is the comparison of a script under a limit.
func compared(t testing.TB, text string, o replay.CompareOptions) Panel {
	t.Helper()
	s, err := trace.ReadScript(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	w, err := replay.ScriptWork(s)
	if err != nil {
		t.Fatal(err)
	}
	c, err := replay.Compare(w, o)
	if err != nil {
		t.Fatal(err)
	}
	return Comparison("a script", c)
}

const script = `device sim total=1GiB
alloc a 300MiB
alloc b 30MiB
alloc c 300MiB
free a
free c
alloc d 500MiB
`

// svg writes a picture as SVG, and checks that it is well-formed and links to nothing.
func svg(t testing.TB, p *Picture) string {
	t.Helper()
	var b strings.Builder
	if err := p.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !slices.Contains([]string{"svg", "title", "style", "rect", "path", "text"}, e.Name.Local) {
			t.Errorf("element %s", e.Name.Local)
		}
		for _, a := range e.Attr {
			if strings.Contains(a.Value, "://") && a.Name.Local != "xmlns" || strings.HasPrefix(a.Name.Local, "on") {
				t.Errorf("attribute %s=%q", a.Name.Local, a.Value)
			}
		}
	}
}

// The pictures equal the reviewed ones.
func TestPictures(t *testing.T) {
	all := replay.CompareOptions{
		Specs: []string{"caching", "caching:expandable_segments:True", "bfc", "arena", "paged:page=2MiB", "direct"},
		Limit: 700 << 20, Smallest: true,
	}
	for name, panels := range map[string][]Panel{
		"memory": {panel(t, Memory, cause("leak"), Options{})},
		"ranks":  {panel(t, Memory, cause("rank1"), Options{}), panel(t, Memory, cause("rank2"), Options{})},
		"oom": {panel(t, Memory, cause("limit"), Options{
			At: "oom", By: []holders.Key{holders.ByLine, holders.ByStream},
		})},
		"addresses": {panel(t, Addresses, cause("fragmentation"), Options{})},
		"compare":   {compared(t, script, all), compared(t, script, replay.CompareOptions{})},
	} {
		t.Run(name, func(t *testing.T) {
			p := Draw(panels...)
			out := svg(t, p)
			golden.File(t, "testdata/"+name+".svg", out)
			if again := svg(t, Draw(panels...)); again != out {
				t.Error("a second picture differs")
			}
		})
	}
}

// Names from a recording are text in the picture, whatever they contain, and fit.
func TestHostileNames(t *testing.T) {
	const evil = "</text><script>alert(1)</script>\x00\x1b]8;;\" onload=\"x"
	stacks := &trace.StackSet{}
	long := strings.Repeat("long", 10_000)
	ids := []trace.StackID{
		stacks.Add([]trace.Frame{{Name: evil, Filename: "/home/u/" + evil + ".py", Line: 3}}),
		stacks.Add([]trace.Frame{{Name: long, Filename: "/home/u/" + long + ".py", Line: 4}}),
	}
	h := made(t)
	n := 0
	for i := range h.Trace.Events {
		if e := &h.Trace.Events[i]; e.Action == mem.ActionAlloc {
			e.Stack = ids[n%2]
			n++
		}
	}
	h.Trace.Stacks = stacks.Table()
	s := &snapshot.Snapshot{Traces: []*trace.Trace{h.Trace}, Stacks: h.Trace.Stacks}
	h, err := holders.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, draw := range []func(*holders.History, Options) (Panel, error){Memory, Addresses} {
		x, err := draw(h, Options{Title: evil})
		if err != nil {
			t.Fatal(err)
		}
		p := Draw(x)
		if out := svg(t, p); !strings.Contains(out, "&lt;/text&gt;&lt;script&gt;alert") {
			t.Error("the name is not in the picture")
		}
		f := newFonts(textSize)
		for _, s := range p.shapes {
			if l, ok := s.(label); ok && l.align == alignLeft && l.x+f.width(l.style, l.text)/otherFonts > p.Width {
				t.Errorf("a label leaves the picture: %.40s", l.text)
			}
		}
		if err := p.WritePNG(io.Discard, Light); err != nil {
			t.Error(err)
		}
	}
}

// pixels decodes the PNG of a picture. The function returns the color at a place.
func pixels(t *testing.T, p *Picture, theme Theme) func(x, y float64) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.WritePNG(&b, theme); err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if m.Bounds() != image.Rect(0, 0, int(p.Width)*2, int(p.Height)*2) {
		t.Fatalf("bounds %v of a picture of %v by %v", m.Bounds(), p.Width, p.Height)
	}
	return func(x, y float64) string {
		c := stdcolor.RGBAModel.Convert(m.At(int(x*2), int(y*2))).(stdcolor.RGBA)
		return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
	}
}

// The pixels of a PNG are those of the data: 20, 40 and 60 MiB are requested of 40 and 80 MiB that are reserved.
func TestPixelsShowTheData(t *testing.T) {
	for _, theme := range []Theme{Light, Dark} {
		of := func(p paint) string {
			if theme == Dark {
				return colors[p].dark
			}
			return colors[p].light
		}
		x, err := Memory(made(t), Options{Axis: AxisEvents})
		if err != nil {
			t.Fatal(err)
		}
		at := pixels(t, Draw(x), theme)
		for quarter, sizes := range [][2]float64{{0, 40}, {20, 40}, {40, 40}, {60, 80}} {
			cx := chartLeft + (float64(quarter)+0.5)*chartWidth/4
			for level := 3.0; level < 80; level += 4 {
				want := paintBackground
				switch {
				case level < sizes[0]:
					want = paintBand
				case level < sizes[1]:
					want = paintFree
				}
				y := chartBottom - level/(80*roomOnTop)*chartHeight
				if got := at(cx, y); got != of(want) {
					t.Errorf("theme %d, quarter %d, %v MiB: %s, want %s", theme, quarter, level, got, of(want))
				}
			}
		}
		if got := at(momentLeft+momentWidth/2, chartBottom-30/(80*roomOnTop)*chartHeight); got != of(paintBand) {
			t.Errorf("the bar is %s", got)
		}
		if got := at(chartLeft+398.0/399*chartWidth, chartTop-6); got != of(paintAlarm) {
			t.Errorf("the mark of the failed request is %s", got)
		}
	}
}

// A label has one color in all charts of a picture, and panels of one type have one scale.
func TestChartsOfAPictureAgree(t *testing.T) {
	p := Draw(panel(t, Memory, cause("rank0"), Options{}), panel(t, Memory, cause("rank2"), Options{}))
	paints := map[string]paint{}
	var reserved []float64 // the upper ends of the bars
	for _, s := range p.shapes {
		if r, ok := s.(rects); ok && r.title != "" {
			if before, known := paints[r.title]; known && before != r.paint {
				t.Errorf("%s has two colors", r.title)
			}
			paints[r.title] = r.paint
			if r.paint == paintFree {
				reserved = append(reserved, r.all[0].y)
			}
		}
	}
	if len(paints) < 5 || len(reserved) != 2 {
		t.Fatalf("%d colors, %d bars", len(paints), len(reserved))
	}
	zero, second := float64(chartBottom), float64(historyEnd+chartBottom)
	got := (second - reserved[1]) / (zero - reserved[0])
	if want := 518.0 / 262; got < want*0.99 || got > want*1.01 { // MiB that were reserved
		t.Errorf("the bars have a ratio of %.3f, want %.3f", got, want)
	}
}

// The size of a picture is bounded by its charts, not by the recording.
func TestLongRecordingsMakeSmallPictures(t *testing.T) {
	for _, draw := range []func(*holders.History, Options) (Panel, error){Memory, Addresses} {
		if n := len(svg(t, Draw(panel(t, draw, sample("gpt2"), Options{})))); n > 200_000 { // 86,000 events
			t.Errorf("the picture has %d bytes", n)
		}
		h := made(t)
		once, err := draw(h, Options{Axis: AxisEvents})
		if err != nil {
			t.Fatal(err)
		}
		var failures []trace.Event
		for range 100_000 {
			failures = append(failures, trace.Event{Action: mem.ActionOOM, Size: 1, TimeUS: 398_000})
			h.Trace.Gaps = append(h.Trace.Gaps, len(failures))
		}
		h.Trace.Events = append(failures, h.Trace.Events...)
		h, err = holders.New(&snapshot.Snapshot{Traces: []*trace.Trace{h.Trace}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		often, err := draw(h, Options{Axis: AxisEvents})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(Draw(often).shapes) - len(Draw(once).shapes); n > 4*chartWidth {
			t.Errorf("100,000 failures and gaps are %d shapes", n)
		}
	}
}

// Long names keep the part by which they are known.
func TestLongNamesAreCut(t *testing.T) {
	f := newFonts(textSize)
	for text, want := range map[string]string{
		"train.py:80 forward": "train.py:80 forward",
		"a/very/long/path/to/the/models/of/a/program/encoder/block.py:80 forward": "…encoder/block.py:80 forward",
		"block.py:80 forward ← model.py:7 forward ← train.py:166 <module>":        "block.py:80 forward ← model.py:7",
	} {
		got := f.fit(textPlain, text, 320)
		end, cut := strings.CutPrefix(want, "…")
		if f.width(textPlain, got) > 320 || cut && !strings.HasSuffix(got, end) || !cut && !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNamesDoNotOverlap(t *testing.T) {
	for _, ys := range [][]float64{
		{100}, {100, 100, 100}, {0, 1, 400}, {390, 395, 399, 400}, {100, 101, 150, 151, 152, 300},
	} {
		spread(ys, 90, 384)
		for i, y := range ys {
			if y < 90 || y > 384 || i > 0 && y < ys[i-1]+lineHeight {
				t.Errorf("%v", ys)
			}
		}
	}
}

func TestScales(t *testing.T) {
	for top, want := range map[float64]string{
		0: "0", 4: "0 1 B 2 B 3 B 4 B", 1000: "0 200 B 400 B 600 B 800 B 1000 B",
		26 << 30:         "0 5 GiB 10 GiB 15 GiB 20 GiB 25 GiB",
		1.95 * (1 << 30): "0 0.5 GiB 1 GiB 1.5 GiB",
		1.2 * (1 << 30):  "0 500 MiB 1000 MiB",
	} {
		var got []string
		sizeLines(top, func(_ float64, text string) { got = append(got, text) })
		if strings.Join(got, " ") != want {
			t.Errorf("%v: %q, want %q", top, got, want)
		}
	}
	for span, want := range map[time.Duration]string{
		7 * time.Microsecond: "2µs", 900 * time.Millisecond: "200ms", 5 * time.Second: "1s", 59 * time.Second: "10s",
		100 * time.Second: "20s", 5 * time.Minute: "1m", time.Hour: "10m", 5 * time.Hour: "1h", 50 * time.Hour: "10h",
	} {
		if got := timeText(timeStep(span)); got != want {
			t.Errorf("%v: lines every %s, want %s", span, got, want)
		}
	}
}

// errWriter fails.
type errWriter struct{}

func (errWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestErrorsOfWriters(t *testing.T) {
	p := Draw(panel(t, Memory, cause("leak"), Options{}))
	for _, err := range []error{p.WriteSVG(errWriter{}), p.WritePNG(errWriter{}, Light)} {
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v", err)
		}
	}
}
