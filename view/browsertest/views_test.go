package browsertest

import (
	"fmt"
	"image"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/chromedp/chromedp"
)

// A place is a point of the page, in pixels.
type place struct{ X, Y float64 }

// at returns the place on the page of an event, or another point of the horizontal axis, and a number of bytes.
func (b *tab) at(x, y float64) place {
	b.t.Helper()
	return eval[place](b, fmt.Sprintf(`(() => { const p = ashlarView.current.plot, r = p.canvas.getBoundingClientRect()
		return { X: r.left + p.toX(%g), Y: r.top + p.toY(%g) } })()`, x, y))
}

// swatches returns the colours of the legend, by label.
func (b *tab) swatches() map[string][3]int {
	b.t.Helper()
	b.wait(`document.querySelector('#details .legend .swatch')`)
	out := map[string][3]int{}
	for label, text := range eval[map[string]string](b, `Object.fromEntries(
		[...document.querySelectorAll('#details .legend li')]
		.filter((e) => e.querySelector('.swatch')).map((e) => [(e.querySelector('.label') ?? e).textContent,
		getComputedStyle(e.querySelector('.swatch')).backgroundColor]))`) {
		var c [3]int
		if _, err := fmt.Sscanf(text, "rgb(%d, %d, %d)", &c[0], &c[1], &c[2]); err != nil {
			b.t.Fatalf("the colour of %s is %s", label, text)
		}
		out[label] = c
	}
	return out
}

// tolerance is how much the colours of blocks of one group may differ from that of the group.
const tolerance = 13

func (b *tab) checkPixel(p image.Image, x, y float64, what string, want [3]int, tolerance int) {
	b.t.Helper()
	at := b.at(x, y)
	if c := p.At(int(at.X), int(at.Y)); !near(c, want, tolerance) {
		b.t.Errorf("event %.2f, %.2f MiB (pixel %.0f, %.0f) has the colour %v, want %v, that of %s",
			x, y/mib, at.X, at.Y, c, want, what)
	}
}

var white = [3]int{255, 255, 255}

// Bands have the colours of their groups in the legend, stand on each other in the order of allocation, and fall when
// one below is freed.
func TestMemoryDrawsBands(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)), "colour", "line", "event", "5")
	b.still()
	group := b.swatches()
	p := b.picture()
	b.shot("memory")
	for _, c := range []struct {
		event, size float64
		line        string
	}{
		{2, 0.6, "train.py:10 load"},
		{3, 0.6, "train.py:10 load"},
		{3, 4.4, "model.py:20 forward"},
		{4, 4.4, "model.py:20 forward"},
		{4, 6.6, "model.py:30 side"},
		{5, 5.6, "model.py:20 forward"},
		{5, 6.6, "model.py:30 side"},
		{5, 13.6, "model.py:30 side"},
		{5, 14.2, "model.py:20 forward"},
		{7, 0.6, "train.py:10 load"},
		{7, 4.4, "model.py:30 side"}, // it fell
		{7, 12.2, "model.py:20 forward"},
	} {
		want, ok := group[c.line]
		if !ok {
			t.Fatalf("the legend has %v, and not %s", group, c.line)
		}
		b.checkPixel(p, c.event+0.1, c.size*mib, c.line, want, tolerance)
	}
	for _, c := range [][2]float64{{0, 3}, {1, 3}, {2, 4.6}, {3, 6.6}, {4, 14.6}, {7, 14.5}, {5, 20}} {
		b.checkPixel(p, c[0]+0.1, c[1]*mib, "the background", white, 3)
	}
}

// The tip of each band at the peak tells its size; the sizes add up to the peak.
func TestHoveredSizesAddUp(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)))
	b.still()
	var sum float64
	for _, y := range []float64{1, 5, 9, 14.5} {
		at := b.at(5.5, y*mib)
		b.do(chromedp.MouseEvent("mouseMoved", at.X, at.Y))
		b.wait(fmt.Sprintf(`Math.abs(ashlarView.current.hover.event?.clientY - %g) < 1 &&
			!ashlarView.current.hover.frame && !document.querySelector('[data-tip=memory]').hidden`, at.Y))
		size, err := strconv.ParseFloat(strings.TrimSuffix(b.text("[data-tip=memory] strong"), "MiB"), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += size
	}
	if sum != 15 {
		t.Errorf("the tips add up to %v MiB, want 15", sum)
	}
	if s := b.text("#status"); s != "event 5 · 5ms · requested 15.0MiB · reserved 32.0MiB" {
		t.Errorf("the status is %q", s)
	}
}

// On recordings of PyTorch, the highest column and the tables of holders have the requested peak of a replay, to the
// byte.
func TestSumsAreThoseOfReplay(t *testing.T) {
	for _, name := range []string{"gpt2.oom", "unet.stacks", "streams"} {
		t.Run(name, func(t *testing.T) {
			s := read(t, name)
			want := float64(requestedPeak(t, s))
			b := open(t, serve(t, []string{name}, s))
			b.still()
			// Bands less than a row high are merged, so the top of each column is true within a row.
			off := eval[float64](b, `(() => { const b = ashlarView.current.bands, d = b.data
				let most = 0
				for (let c = 0; c < b.columns; c++) {
					const top = b.at(c).reduce((y, i) => Math.max(y, d.y[i] + d.h[i]), 0)
					most = Math.max(most, Math.abs(top - d.requested[c]) / d.header.min_bytes)
				}
				return most })()`)
			if off > 1 {
				t.Errorf("a column is %.2f rows off the requested memory", off)
			}
			if got := eval[float64](b, `Math.max(...ashlarView.current.bands.data.requested)`); got != want {
				t.Errorf("the highest column has %.0f bytes, want %.0f", got, want)
			}
			b.goTo("view", "holders", "by", "line")
			b.wait(`document.querySelector('tr[data-bytes]')`)
			got := eval[float64](b, `[...document.querySelectorAll('tr[data-bytes]')]
				.reduce((s, e) => s + Number(e.dataset.bytes), 0)`)
			if got != want {
				t.Errorf("the table of holders has %.0f bytes, want %.0f", got, want)
			}
			b.shot("holders")
		})
	}
}

func requestedPeak(t *testing.T, s *snapshot.Snapshot) int64 {
	t.Helper()
	works, err := replay.Works(s)
	if err != nil {
		t.Fatal(err)
	}
	c, err := replay.Compare(works[0], replay.CompareOptions{Specs: []string{replay.AsRecorded}})
	if err != nil {
		t.Fatal(err)
	}
	return c.Rows[0].RequestedPeak
}

// Segments stand above each other without the gaps between their addresses, free memory is grey, and the tip of a hole
// names the blocks that hold it.
func TestAddressesDrawSegmentsAndHoles(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)), "view", "addresses", "colour", "stream")
	b.still()
	group := b.swatches()
	b.shot("addresses")
	p := b.picture()
	free := eval[[3]int](b, `(() => { const n = parseInt(getComputedStyle(document.documentElement)
		.getPropertyValue('--free').trim().slice(1), 16); return [n >> 16, n >> 8 & 255, n & 255] })()`)
	for _, c := range []struct {
		event, y float64
		what     string
	}{
		{2, 0.6, "0x0"},
		{2, 10.5, "free"},
		{3, 4.4, "0x0"},
		{4, 16.8, "0x7"},
		{4, 30.5, "free"},
		{7, 4.4, "free"},
		{9, 7.3, "0x0"},
	} {
		want := free
		if c.what != "free" {
			want = group[c.what]
		}
		b.checkPixel(p, c.event+0.1, c.y*mib, c.what, want, tolerance)
	}
	at := b.at(7.5, 4.5*mib)
	b.do(chromedp.MouseEvent("mouseMoved", at.X, at.Y))
	b.wait(`document.querySelector('[data-tip=addresses]').textContent.includes('held by')`)
	b.shot("hole")
	tip := b.text("[data-tip=addresses]")
	for _, part := range []string{
		"Free: 2.00MiB of a segment of 16.0MiB", "held by 2 blocks, 5.00MiB",
		"4.00MiB train.py:10 load", "1.00MiB model.py:20 forward",
	} {
		if !strings.Contains(tip, part) {
			t.Errorf("the tip of the hole is %q, without %q", tip, part)
		}
	}
}

// The state at a moment has each segment with its blocks; a click on a block shows its stack and lifetime.
func TestStateShowsBlocks(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)),
		"view", "state", "event", "7", "sort", "address", "colour", "stream")
	b.wait(`document.querySelector('.segments').dataset.loaded === '7'`)
	const summary = "2 segments, 3 blocks: 32.0MiB reserved, 13.0MiB requested, 19.0MiB free in segments"
	if s := b.text("#state-summary"); s != summary {
		t.Errorf("the summary is %q, want %q", s, summary)
	}
	group := b.swatches()
	box := eval[map[string]float64](b, `(() => {
		const r = document.querySelector('.segments canvas').getBoundingClientRect()
		return { x: r.left + 210, y: r.top, width: r.width - 222 } })()`)
	place := func(row int, part float64) (x, y float64) {
		return box["x"] + part*box["width"], box["y"] + float64(row)*24 + 7
	}
	b.shot("state")
	p := b.picture()
	for _, c := range []struct {
		row  int
		part float64
		want [3]int
	}{{0, 0.24, group["0x0"]}, {0, 0.43, group["0x0"]}, {1, 0.49, group["0x7"]}} {
		x, y := place(c.row, c.part)
		if got := p.At(int(x), int(y)); !near(got, c.want, tolerance) {
			t.Errorf("row %d, %.2f of the width has the colour %v, want %v", c.row, c.part, got, c.want)
		}
	}
	x, y := place(0, 0.1)
	b.do(chromedp.MouseClickXY(x, y))
	b.wait(`document.querySelector('#details ol.stack')`)
	b.shot("block")
	details := b.text("#details")
	for _, part := range []string{
		"Block of 4.00MiB", "train.py:10 load", "train.py:99 main", "event 2",
		"never in the recording", "0x7f0000000000", "tag",
	} {
		if !strings.Contains(details, part) {
			t.Errorf("the details are %q, without %q", details, part)
		}
	}
}

// The flame graph has the outermost code at the top; a click magnifies a part, and the table filters.
func TestHoldersFlameAndFilter(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)), "view", "holders", "event", "5")
	b.wait(`document.querySelectorAll('.flame .part').length > 3 && document.querySelector('tr[data-bytes]')`)
	b.shot("flame")
	width := `[...document.querySelectorAll('.flame .part')].find((e) => e.title.includes(%q))
		?.getBoundingClientRect().width`
	whole := eval[float64](b, fmt.Sprintf(width, "main"))
	part := eval[float64](b, fmt.Sprintf(width, "side"))
	if share := part / whole; share < 0.52 || share > 0.545 {
		t.Errorf("side has %.3f of the width of main, want 8/15", share)
	}
	b.press(".flame .part", "side")
	if now := eval[float64](b, fmt.Sprintf(width, "side")); now < whole-3 {
		t.Errorf("side is %.0f pixels wide after a click, want %.0f", now, whole)
	}
	b.do(chromedp.SendKeys(chromedp.CSS("input[aria-label='Filter the table']"), "forward"))
	b.wait(`document.querySelectorAll('tr[data-bytes]').length === 1`)
	if got := eval[int](b, `Number(document.querySelector('tr[data-bytes]').dataset.bytes)`); got != 3*mib {
		t.Errorf("forward has %d bytes, want 3 MiB", got)
	}
	if c := b.text("caption"); !strings.HasPrefix(c, "3.00MiB in 2 blocks of 15.0MiB at event 5.") {
		t.Errorf("the caption is %q", c)
	}
}

// The page says what a view shows. From a failed request, it leads to the settings that would have served it; without
// stacks, it groups holders by category.
func TestPageSaysWhatNext(t *testing.T) {
	b := open(t, serveTraces(t, "gpt2.oom"))
	for view, text := range map[string]string{
		"memory": "Each band is an allocation", "addresses": "Pale areas are reserved and free", "state": "Each row is a segment",
		"holders": "Who holds the memory", "whatif": "served again",
	} {
		b.goTo("view", view)
		b.wait(fmt.Sprintf(`document.querySelector('#status').textContent.includes(%s)`, quote(text)))
	}
	b.goTo("view", "holders")
	b.wait(`document.querySelectorAll('tbody tr').length > 1 && ashlarView.current.by === 'category'`)
	b.goTo("view", "memory")
	b.wait(`[...document.querySelectorAll('#details .legend li')].some((e) => e.textContent === 'activations0B')`)
	b.press("#details button", "out of memory")
	b.press("#details button", "What would have helped?")
	b.wait(`ashlarView.shown === 'whatif'`)
	b.shot("whatif")
}

// While the categories are not known, the page shows all else, and says what it waits for.
func TestPageWaitsForCategories(t *testing.T) {
	b := open(t, serveTraces(t, "resnet.stacks"))
	b.wait(`document.querySelector('#details').textContent.includes('By category')`)
	const settling = `(ashlarView.store.recording.settling = %v, ashlarView.details.update(), true)`
	eval[bool](b, fmt.Sprintf(settling, true))
	b.wait(`document.querySelector('#details').textContent.includes('categories of the blocks are being inferred')`)
	if text := b.text("#details"); !strings.Contains(text, "3.85GiB in") {
		t.Errorf("the moment is %q", text)
	}
	eval[bool](b, fmt.Sprintf(settling, false))
	b.wait(`document.querySelector('#details').textContent.includes('By category')`)
}
