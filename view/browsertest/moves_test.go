package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"math"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A window is what a picture over time shows.
type window struct{ X0, X1, Y0, Y1 float64 }

func (b *tab) window() window {
	b.t.Helper()
	return eval[window](b, `(() => { const v = ashlarView.current.viewport
		return { X0: v.x0, X1: v.x1, Y0: v.y0, Y1: v.y1 } })()`)
}

// focus puts the keyboard on the picture.
func (b *tab) focus() {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS(".plot canvas[tabindex]")))
}

// From the overview of a recording, in which its smallest block is merged with others, the page zooms to that block:
// it is then a band of its own, as long as its lifetime.
func TestZoomToOneBlock(t *testing.T) {
	for _, view := range []string{"memory", "addresses"} {
		t.Run(view, func(t *testing.T) {
			b := open(t, serveTraces(t, "resnet.stacks"), "view", view)
			b.still()
			// The smallest block of a size that one finds in the panel: its band is far below a pixel high.
			id := eval[int](b, `(async () => { const m = await import('ashlar/data.js')
				const s = await m.load(ashlarView.store.path('state', { event: 9000 }))
				let least = -1
				for (let i = 0; i < s.size.length; i++) if (least < 0 || s.size[i] < s.size[least]) least = i
				return s.block[least] })()`)
			if eval[int](b, fmt.Sprintf(`ashlarView.current.bands.of(%d).length`, id)) != 0 {
				t.Fatalf("block %d has a band of its own in the overview", id)
			}
			eval[bool](b, fmt.Sprintf(`ashlarView.zoom(%d).then(() => true)`, id))
			b.still()
			b.shot("zoomed")
			type band struct{ Rects, Width, Height, Start, End float64 }
			got := eval[band](b, fmt.Sprintf(`(() => {
				const t = ashlarView.current, d = t.bands.data, all = t.bands.of(%d), p = t.plot
				return { Rects: all.length, Start: t.bands.toAxis(d.x0[all[0]]), End: t.bands.toAxis(d.x1[all.at(-1)]),
					Width: p.toX(t.bands.toAxis(d.x1[all.at(-1)])) - p.toX(t.bands.toAxis(d.x0[all[0]])),
					Height: p.toY(d.y[all[0]]) - p.toY(d.y[all[0]] + d.h[all[0]]) } })()`, id))
			if got.Rects == 0 || got.Width < 150 || got.Height < 40 {
				t.Errorf("the block has the band %+v", got)
			}
			b.wait(`document.querySelector('#details').textContent.includes('Block of')`)
		})
	}
}

// The wheel zooms about the pointer, drag pans, and both keep within the recording.
func TestWheelAndDrag(t *testing.T) {
	b := open(t, serveTraces(t, "resnet.stacks"))
	b.still()
	before := b.window()
	at := b.at(10000, 1<<30)
	at.X, at.Y = math.Round(at.X), math.Round(at.Y)
	under := fmt.Sprintf(`(() => { const p = ashlarView.current.plot
		return p.point(p.place({ clientX: %g, clientY: %g })).x })()`, at.X, at.Y)
	event := eval[float64](b, under)
	for range 6 {
		b.do(chromedp.MouseEvent("mouseWheel", at.X, at.Y, wheel(-200)))
	}
	b.still()
	zoomed := b.window()
	if w := (zoomed.X1 - zoomed.X0) / (before.X1 - before.X0); w > 0.06 || w < 0.04 {
		t.Errorf("the wheel left %.3f of the width, want e**-3", w)
	}
	if now := eval[float64](b, under); math.Abs(now-event) > 0.01 {
		t.Errorf("the pointer is at event %.2f, want %.2f", now, event)
	}
	b.do(chromedp.DragAndDropXY(900, 500, 600, 500))
	b.still()
	panned := b.window()
	if panned.X0 <= zoomed.X0 || panned.X1-panned.X0 < (zoomed.X1-zoomed.X0)*0.999 {
		t.Errorf("drag to the left went from %+v to %+v", zoomed, panned)
	}
	for range 30 {
		b.do(chromedp.MouseEvent("mouseWheel", at.X, at.Y, wheel(400)))
	}
	b.still()
	if got := b.window(); got != before {
		t.Errorf("zooming out ends at %+v, want %+v", got, before)
	}
	if n := eval[int](b, `ashlarView.current.bands.count`); n == 0 || n > 200_000 {
		t.Errorf("%d rectangles", n)
	}
}

func wheel(y float64) chromedp.MouseOption {
	return func(p *input.DispatchMouseEventParams) {
		p.DeltaX = 1e-6 // the protocol wants it, and zero is left out
		p.DeltaY = y
	}
}

// Everything of a picture can be done by keys: pan, zoom, the cursor, blocks, other views.
func TestKeyboard(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)))
	b.still()
	whole := b.window()
	b.focus()
	b.do(chromedp.KeyEvent("++"))
	b.still()
	zoomed := b.window()
	if w := (zoomed.X1 - zoomed.X0) / (whole.X1 - whole.X0); w < 0.44 || w > 0.45 {
		t.Errorf("two + leave %.3f of the width, want 1/2.25", w)
	}
	b.do(chromedp.KeyEvent(kb.ArrowRight))
	b.still()
	if now := b.window(); now.X0 <= zoomed.X0 {
		t.Errorf("arrow right: %+v after %+v", now, zoomed)
	}
	b.do(chromedp.KeyEvent("]"))
	b.still()
	if now := b.window(); now.Y1-now.Y0 > whole.Y1*0.7 {
		t.Errorf("]: %+v", now)
	}
	b.do(chromedp.KeyEvent("0"))
	b.still()
	if now := b.window(); now != whole {
		t.Errorf("0: %+v, want %+v", now, whole)
	}
	b.do(chromedp.KeyEvent(".."))
	if e := eval[int](b, "ashlarView.store.event"); e != 7 {
		t.Errorf("two full stops after the peak lead to event %d, want 7", e)
	}
	b.do(chromedp.KeyEvent("kk"))
	b.wait(`document.querySelector('#details').textContent.includes('Block of 8.00MiB')`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait(`ashlarView.store.state.from !== undefined`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.wait(`ashlarView.store.state.block === undefined`)
	b.do(chromedp.KeyEvent("h"))
	b.wait(`ashlarView.shown === 'holders' && document.querySelector('tr[data-bytes]')`)
	if c := b.text("caption"); !strings.Contains(c, "at event ") {
		t.Errorf("the caption is %q", c)
	}
	b.do(chromedp.KeyEvent("2"))
	b.wait(`ashlarView.shown === 'addresses'`)
	b.do(chromedp.KeyEvent("/"))
	if id := eval[string](b, "document.activeElement.closest('form')?.id ?? ''"); id != "search" {
		t.Errorf("/ put the focus on %q", id)
	}
	b.do(chromedp.Focus(chromedp.CSS("#tab-addresses")), chromedp.KeyEvent(kb.ArrowRight))
	b.wait(`ashlarView.shown === 'state' && document.activeElement.id === 'tab-state'`)
	b.wait(`document.querySelector('.segments').dataset.loaded`)
	b.do(chromedp.Focus(chromedp.CSS(".segments canvas")), chromedp.KeyEvent(kb.ArrowDown+kb.ArrowRight))
	b.wait(`ashlarView.store.state.block !== undefined`)
	b.do(chromedp.KeyEvent("?"))
	b.wait(`document.getElementById('help').open`)
	b.shot("help")
}

// Groups of the legend and text in stacks select blocks; the others leave the picture.
func TestFilters(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)), "colour", "line")
	b.still()
	top := `Math.max(...ashlarView.current.bands.data.y.map((y, i) => y + ashlarView.current.bands.data.h[i]))`
	b.swatches()
	b.press(".legend button", "forward")
	b.still()
	if got := eval[int](b, top); got != 3*mib {
		t.Errorf("forward alone is %d high, want 3 MiB", got)
	}
	b.wait(`document.querySelector('.chip')?.textContent.includes('model.py:20 forward')`)
	b.shot("line")
	b.do(chromedp.Click(chromedp.CSS(".chip")))
	b.still()
	if got := eval[int](b, top); got != 15*mib {
		t.Errorf("everything is %d high, want 15 MiB", got)
	}
	field := chromedp.CSS("input[placeholder='only code with …']")
	b.do(chromedp.SendKeys(field, "train.py:40"), chromedp.Focus(chromedp.CSS("#theme")))
	b.wait(`ashlarView.store.state.q === 'train.py:40'`)
	b.goTo("q", "side")
	b.still()
	if got := eval[int](b, top); got != 8*mib {
		t.Errorf("side alone is %d high, want 8 MiB", got)
	}
}

// Search finds code, sizes and addresses, and leads to the block.
func TestSearch(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)))
	b.still()
	const side = "8.00MiB model.py:30 side"
	for q, want := range map[string]string{"0x7f5500000000": side, ">7MiB": side, "loss": "train.py:40 loss"} {
		b.search(q)
		b.wait(fmt.Sprintf(`document.querySelector('#answers[open]').textContent.includes(%s)`, quote(want)))
		b.shot("answers")
		eval[bool](b, `(document.getElementById('answers').close(), true)`)
	}
	b.search("0x7f5500000000")
	b.wait(`document.querySelector('#answers .legend button')`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait(`document.querySelector('#details').textContent.includes('Block of 8.00MiB')`)
}

// The address of the page restores what one sees, to the pixel, and Back returns to the view before.
func TestLinkRestoresView(t *testing.T) {
	page := serveTraces(t, "resnet.stacks", "unet.stacks")
	b := open(t, page)
	b.still()
	eval[bool](b, `(ashlarView.open('addresses', { recording: '1.0', colour: 'line' }), true)`)
	b.wait(`ashlarView.shown === 'addresses' && ashlarView.current.bands`)
	b.still()
	at := b.at(9000, 1<<30)
	b.do(chromedp.MouseClickXY(at.X, at.Y))
	b.focus()
	b.do(chromedp.KeyEvent("+++]"))
	b.still()
	b.wait(`location.hash.includes('from=')`)
	b.do(chromedp.MouseEvent("mouseMoved", 5, 5))
	b.wait(`!document.querySelector('#details').textContent.includes('Loading')`)
	link := eval[string](b, "location.href")
	const fields = "JSON.stringify(Object.entries(ashlarView.store.state).sort())"
	state := eval[string](b, fields)
	b.shot("sent")

	c := openBlank(t, page)
	c.do(chromedp.Navigate(link))
	c.wait(`globalThis.ashlarView?.current?.bands`)
	c.still()
	c.shot("restored")
	if got := eval[string](c, fields); got != state {
		t.Errorf("the link %s restores %s, want %s", link, got, state)
	}
	if got, want := c.window(), b.window(); got != want {
		t.Errorf("the link shows %+v, want %+v", got, want)
	}
	surface := `(() => { const p = ashlarView.current.plot; p.paint(); return p.surface.toDataURL() })()`
	if eval[string](b, surface) != eval[string](c, surface) {
		t.Error("the link's picture differs")
	}
	eval[bool](b, `(ashlarView.open('holders'), history.back(), true)`)
	b.wait(`ashlarView.shown === 'addresses' && ashlarView.store.recording.id === '1.0'`)
}

// The page follows the system's dark mode, the button changes it, and the choice stays.
func TestDarkMode(t *testing.T) {
	page := serve(t, []string{"made"}, handmade(plain))
	b := openBlank(t, page)
	b.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
		})
		return chromedp.Void{}, err
	})
	b.goTo()
	b.still()
	b.shot("dark")
	b.checkPixel(b.picture(), 5, 25*mib, "the dark background", [3]int{0x14, 0x17, 0x1b}, 3)
	b.do(chromedp.Click(chromedp.CSS("#theme")), chromedp.MouseEvent("mouseMoved", 5, 5))
	b.still()
	b.checkPixel(b.picture(), 5, 25*mib, "the light background", white, 3)
	b.goTo()
	b.still()
	b.checkPixel(b.picture(), 5, 25*mib, "the light background after a reload", white, 3)
	eval[bool](b, "(localStorage.clear(), true)")
}

// Groups can be told apart in grey: the colours of any two categories differ in lightness.
func TestCategoriesDifferInGrey(t *testing.T) {
	b := open(t, serve(t, []string{"made"}, handmade(plain)))
	least := eval[float64](b, `(async () => { const { groupColour } = await import('ashlar/palette.js')
		const names = ['unknown', 'weights', 'gradients', 'optimizer state', 'activations', 'temporaries', 'workspace']
		const luma = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b
		const grey = names.map((n, i) => luma(groupColour(n, i))).sort((a, b) => a - b)
		return Math.min(...grey.slice(1).map((v, i) => v - grey[i])) })()`)
	if least < 15 {
		t.Errorf("two categories differ by %.1f of 255 in grey, want at least 15", least)
	}
}

// With Canvas2D, which serves browsers without WebGL2, the picture is the same within what rounding at edges does.
func TestCanvasDrawsTheSame(t *testing.T) {
	page := serve(t, []string{"made"}, handmade(plain))
	b := open(t, page)
	b.still()
	c := openBlank(t, page)
	c.do(chromedp.Navigate(page + "?renderer=2d"))
	c.wait(`globalThis.ashlarView?.current?.bands`)
	c.still()
	data := func(b *tab) []byte {
		d, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	x, err := png.Decode(bytes.NewReader(data(b)))
	if err != nil {
		t.Fatal(err)
	}
	y := c.picture()
	differing := 0
	for i := x.Bounds().Min.X; i < x.Bounds().Max.X; i++ {
		for j := x.Bounds().Min.Y; j < x.Bounds().Max.Y; j++ {
			r, g, bl, _ := y.At(i, j).RGBA()
			if !near(x.At(i, j), [3]int{int(r >> 8), int(g >> 8), int(bl >> 8)}, 24) {
				differing++
			}
		}
	}
	if differing > 6000 {
		t.Errorf("%d pixels differ", differing)
	}
}
