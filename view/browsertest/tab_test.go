package browsertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience limits how long a test waits for the page. It only matters when a test fails.
const patience = 2 * time.Minute

// A tab is a tab of the browser with the page. At the end of its test it fails the test if the page wrote an error or
// a warning to the console, or asked for anything from another server.
type tab struct {
	t   testing.TB
	ctx context.Context
	url string

	mu       sync.Mutex
	console  []string
	requests []string
}

// open opens a page with a state: pairs of fields and values.
func open(t testing.TB, page string, state ...string) *tab {
	t.Helper()
	b := openBlank(t, page)
	b.goTo(state...)
	return b
}

// openBlank opens a tab for a page, which it does not load yet.
func openBlank(t testing.TB, page string) *tab {
	t.Helper()
	tabContext, closeTab := chromedp.NewContext(browser)
	if err := chromedp.Do(tabContext, chromedp.EmulateViewport(1400, 850)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tabContext, patience)
	b := &tab{t: t, ctx: ctx, url: page}
	messages := chromedp.Console(ctx)
	requests := chromedp.Events(ctx, network.RequestWillBeSent)
	var done sync.WaitGroup
	done.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			// Taking a picture of the page makes the software renderer warn of its own slowness.
			slow := strings.Contains(m.Text, "GPU stall due to ReadPixels")
			if m.Type != "log" && m.Type != "debug" && m.Type != "info" && !slow {
				b.mu.Lock()
				b.console = append(b.console, fmt.Sprintf("%s: %s (%s:%d)", m.Type, m.Text, m.URL, m.Line))
				b.mu.Unlock()
			}
		}
	})
	done.Go(func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.requests = append(b.requests, e.Request.URL)
			b.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			b.shot("failed")
		}
		eval[int](b, "1")
		cancel()
		done.Wait()
		closeTab()
		b.check()
	})
	return b
}

// check reports what the page must not do.
func (b *tab) check() {
	b.t.Helper()
	for _, m := range b.console {
		b.t.Errorf("the console has %s", m)
	}
	own, err := url.Parse(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range b.requests {
		u, err := url.Parse(r)
		if err != nil || u.Host != own.Host && u.Scheme != "data" && u.Scheme != "blob" {
			b.t.Errorf("the page asked for %s, which is elsewhere", r)
		}
	}
}

// goTo loads the page with a state and waits until it shows something.
func (b *tab) goTo(state ...string) {
	b.t.Helper()
	q := url.Values{}
	for i := 0; i < len(state); i += 2 {
		q.Set(state[i], state[i+1])
	}
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.url+"#"+q.Encode()))
	b.wait(`globalThis.ashlarView?.shown`)
	switch q.Get("view") {
	case "", "memory", "addresses":
		b.wait(`!!ashlarView.current?.bands`)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression of the page; a promise is awaited.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil && !b.t.Failed() {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait waits until an expression of the page is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	const often = `new Promise((done, fail) => {
		const end = performance.now() + 20000
		const ask = () => {
			let v = false
			try { v = (%s) } catch {}
			if (v) done(true)
			else if (performance.now() > end) fail(new Error('waited in vain'))
			else setTimeout(ask, 20)
		}
		ask() })`
	action := chromedp.Evaluate[bool](fmt.Sprintf(often, expression), chromedp.EvalAwaitPromise)
	if _, err := chromedp.Run(b.ctx, action); err != nil {
		b.t.Fatalf("wait for %s: %v\nthe console has %q\nthe page has %.2000s", expression, err, b.console,
			eval[string](b, "document.body.innerText"))
	}
}

// still waits until a picture over time shows exactly the window, drawn in full.
func (b *tab) still() {
	b.t.Helper()
	b.wait(`!ashlarView.current.plot.moving && !ashlarView.current.plot.frame && !ashlarView.current.waiting &&
		ashlarView.current.shownPath === ashlarView.current.path()`)
	eval[bool](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// press clicks the first button that a selector finds and whose text or title contains a text.
func (b *tab) press(selector, text string) {
	b.t.Helper()
	button := fmt.Sprintf(`[...document.querySelectorAll(%s)].find((e) => (e.textContent + e.title).includes(%s))`,
		quote(selector), quote(text))
	b.wait(button)
	eval[bool](b, "("+button+".click(), true)")
}

// search asks the page's search for a text.
func (b *tab) search(text string) {
	b.t.Helper()
	field := chromedp.CSS("#search input")
	b.do(chromedp.SetValue(field, text), chromedp.Focus(field), chromedp.KeyEvent(kb.Enter))
}

// text returns the text of the first element that a selector finds.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%s).textContent", quote(selector)))
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// shot leaves a picture of the page, if the flag asks for it.
func (b *tab) shot(name string) {
	if *shots == "" {
		return
	}
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		file := strings.ReplaceAll(b.t.Name(), "/", "-") + "-" + name + ".png"
		err = os.WriteFile(filepath.Join(*shots, file), data, 0o644)
	}
	if err != nil {
		b.t.Log(err)
	}
}

// picture returns what the page looks like.
func (b *tab) picture() image.Image {
	b.t.Helper()
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// near reports whether two colours differ by at most tolerance in each part.
func near(a color.Color, want [3]int, tolerance int) bool {
	r, g, bl, _ := a.RGBA()
	for i, v := range []uint32{r, g, bl} {
		if d := int(v>>8) - want[i]; d > tolerance || d < -tolerance {
			return false
		}
	}
	return true
}
