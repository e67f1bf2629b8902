package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/view"
	"github.com/chromedp/chromedp"
)

// Texts of a recording that are HTML and script stay texts, in every view.
func TestHostileTexts(t *testing.T) {
	const evil = `<img src=x onerror="globalThis.broken=1"><script>globalThis.broken=1</script>"'>`
	hostile := func(s string) string { return evil + s }
	s := handmade(hostile)
	b := open(t, serve(t, []string{hostile("a"), hostile("b")}, s, handmade(hostile)), "colour", "line")
	b.still()
	for _, y := range []float64{1, 5, 9} {
		at := b.at(5.5, y*mib)
		b.do(chromedp.MouseEvent("mouseMoved", at.X, at.Y), chromedp.MouseClickXY(at.X, at.Y))
		b.wait(`document.querySelector('#details').textContent.includes('Block of')`)
	}
	b.shot("memory")
	if !strings.Contains(b.text("#details"), evil) {
		t.Error("the details do not have the text of the recording")
	}
	for _, view := range []string{"addresses", "state", "holders", "whatif", "diff", "ranks"} {
		b.goTo("view", view)
		b.wait(ready[view])
		b.shot(view)
	}
	b.goTo("view", "holders", "by", "<script>globalThis.broken=1</script>", "recording", evil, "q", evil)
	b.search(evil)
	b.wait(`document.getElementById('answers').open`)
	if n := eval[int](b, `document.querySelectorAll('img, body script').length + (globalThis.broken ? 1 : 0)`); n != 0 {
		t.Errorf("%d elements or scripts of the recording are in the page", n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var kept []string // the page may complain of the unknown key "by"
	for _, m := range b.console {
		if !strings.Contains(m, "400") {
			kept = append(kept, m)
		}
	}
	b.console = kept
}

// ready tells of each view when it shows its data.
var ready = map[string]string{
	"memory":    `ashlarView.current?.bands && document.querySelector('#details .swatch')`,
	"addresses": `ashlarView.current?.bands && document.querySelector('#details .swatch')`,
	"state":     `document.querySelector('.segments').dataset.loaded && document.querySelector('#details .swatch')`,
	"holders":   `document.querySelector('tr[data-bytes]')`,
	"whatif":    `document.querySelector('.whatif-form')`,
	"diff":      `document.querySelector('tr[data-change]')`,
	"ranks":     `Number(document.querySelector('.cards').dataset.charts) > 0`,
}

// axe-core, whose rules are those of WCAG, finds no serious fault in any view, light or dark.
func TestAccessibility(t *testing.T) {
	axe, err := os.ReadFile("testdata/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, serveTraces(t, "resnet.stacks", "unet.stacks"))
	for view := range ready {
		for _, theme := range []string{"light", "dark"} {
			b.goTo("view", view)
			b.wait(ready[view])
			eval[bool](b, fmt.Sprintf(
				`(document.documentElement.dataset.theme === %q || ashlarView.toggleTheme(), true)`, theme))
			if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[chromedp.Void](string(axe))); err != nil {
				t.Fatal(err)
			}
			type fault struct {
				ID, Impact, Help string
				Nodes            []struct{ HTML, FailureSummary string }
			}
			text := eval[string](b, `axe.run(document,
				{ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] })
				.then((r) => JSON.stringify(r.violations))`)
			var faults []fault
			if err := json.Unmarshal([]byte(text), &faults); err != nil {
				t.Fatal(err)
			}
			for _, f := range faults {
				for _, n := range f.Nodes[:min(len(f.Nodes), 3)] {
					report := t.Logf
					if f.Impact == "serious" || f.Impact == "critical" {
						report = t.Errorf
					}
					report("%s, %s: %s (%s): %s: %.300s\n%s",
						view, theme, f.ID, f.Impact, f.Help, n.HTML, n.FailureSummary)
				}
			}
		}
	}
	eval[bool](b, "(localStorage.clear(), true)")
}

// The page asks again when a recording grows: here, a live one that the test replaces.
func TestLiveRecordingGrows(t *testing.T) {
	page, source := serveLive(t, handmade(plain))
	b := open(t, page)
	b.still()
	longer := handmade(plain)
	tr := longer.Traces[0]
	last := tr.Events[9]
	last.Ptr += 4 * mib
	last.Size = 4 * mib
	last.TimeUS += 1000
	tr.Events = append(tr.Events, last)
	if err := source.Set(longer); err != nil {
		t.Fatal(err)
	}
	b.wait(`ashlarView.store.recording.events === 11 && ashlarView.current.viewport.bounds.x1 === 11`)
	b.still()
	if got := eval[int](b, `Math.max(...ashlarView.current.bands.data.requested)`); got != 18*mib {
		t.Errorf("the highest column has %d bytes, want 18 MiB", got)
	}
}

// An exported page shows its recordings from a file, without a server: every view, as far as it has data.
func TestExportedPage(t *testing.T) {
	names := []string{"resnet.stacks", "unet.stacks"}
	page := export(t, view.ExportOptions{Specs: []string{"caching", "bfc"}}, names, read(t, names[0]), read(t, names[1]))
	b := open(t, page)
	for view, expression := range ready {
		if view != "whatif" {
			b.goTo("view", view)
			b.wait(expression)
			b.shot(view)
		}
	}
	b.goTo("view", "whatif")
	b.wait(`document.querySelectorAll('tr[data-spec]').length === 2`)
	b.goTo("view", "memory", "from", "7000", "to", "7600")
	b.still()
	if tile := eval[string](b, "ashlarView.current.shownPath"); strings.HasSuffix(tile, "tile=0.0") {
		t.Errorf("a narrow window shows %s, which is the whole recording", tile)
	}
	eval[bool](b, `(() => { const b = ashlarView.current.bands, d = b.data
		const i = b.at(b.columnAt(7400)).filter((i) => d.block[i] !== 0xffffffff).sort((x, y) => d.h[y] - d.h[x])[0]
		ashlarView.store.set({ block: d.block[i] }); return true })()`)
	b.wait(`document.querySelector('#details').textContent.includes('Block of')`)
	b.shot("block")
}
