package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/replay"
	"github.com/chromedp/chromedp"
)

// What-if shows the figures of replay.Compare, a chart of each allocator with one window and linked cursors, and the
// plan.
func TestWhatIf(t *testing.T) {
	s := read(t, "resnet.stacks")
	specs := []string{"caching", "caching:expandable_segments:True", "paged"}
	works, err := replay.Works(s)
	if err != nil {
		t.Fatal(err)
	}
	want, err := replay.Compare(works[0], replay.CompareOptions{Specs: specs, Smallest: true})
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, serve(t, []string{"resnet"}, s), "view", "whatif")
	b.wait(`document.querySelector('.whatif-form')`)
	b.shot("form")
	eval[bool](b, fmt.Sprintf(`(() => {
		const specs = %s.split(' ')
		for (const c of document.querySelectorAll('fieldset input')) c.checked = specs.includes(c.value)
		return true })()`, quote(strings.Join(specs, " "))))
	b.press(".whatif-form button", "Replay")
	b.wait(`document.querySelectorAll('tr[data-spec]').length === 3`)
	b.wait(`document.querySelector('.cards').dataset.charts === '3'`)
	for i, row := range want.Rows {
		cells := eval[[]string](b, fmt.Sprintf(
			`[...document.querySelector(%s).querySelectorAll('td')].map((e) => e.textContent)`,
			quote(fmt.Sprintf("tr[data-spec=%q]", specs[i]))))
		format := func(n int64) string {
			return eval[string](b, fmt.Sprintf(`import('ashlar/format.js').then((m) => m.bytes(%d))`, n))
		}
		if got, w := cells[0], format(row.ReservedPeak); got != w {
			t.Errorf("%s: the reserved peak is %s, want %s", specs[i], got, w)
		}
		if got, w := cells[2], format(row.SmallestLimit); got != w {
			t.Errorf("%s: the smallest limit is %s, want %s", specs[i], got, w)
		}
	}
	// The highest point of each chart is the reserved peak.
	for i, row := range want.Rows {
		got := eval[int64](b, fmt.Sprintf(`Math.max(...ashlarView.current.charts[%d].curves[0].y)`, i))
		if got != row.ReservedPeak {
			t.Errorf("%s: the curve's highest point is %d, want %d", specs[i], got, row.ReservedPeak)
		}
	}
	at := eval[place](b, `(() => { const r = ashlarView.current.charts[0].plot.canvas.getBoundingClientRect()
		return { X: r.left + r.width / 2, Y: r.top + r.height / 2 } })()`)
	b.do(chromedp.MouseEvent("mouseMoved", at.X, at.Y))
	b.wait(`ashlarView.current.shared.at > 0`)
	b.do(chromedp.MouseEvent("mouseWheel", at.X, at.Y, wheel(-300)))
	if n := eval[int](b, `new Set(ashlarView.current.charts.map((c) => c.plot.viewport.x0)).size`); n != 1 {
		t.Errorf("the charts have %d windows, want one", n)
	}
	b.shot("results")
	eval[bool](b, `(document.querySelector('.whatif').scrollTo(0, 9999), [...document.querySelectorAll('button')]
		.find((e) => e.textContent.includes('packing')).click(), true)`)
	b.wait(`ashlarView.current.timeline?.bands?.count > 0`)
	eval[bool](b, `(document.querySelector('.plan').scrollIntoView(), true)`)
	b.shot("plan")
	overlaps := eval[int](b, `(() => { const b = ashlarView.current.timeline.bands, d = b.data
		let bad = 0
		for (let c = 0; c < b.columns; c += 17) {
			let top = 0
			for (const i of b.at(c)) {
				if (d.y[i] < top - d.header.min_bytes) bad++
				top = Math.max(top, d.y[i] + d.h[i])
			}
			if (top > d.header.height + d.header.min_bytes) bad++
		}
		return bad })()`)
	if overlaps != 0 {
		t.Errorf("%d blocks of the plan overlap or stand out", overlaps)
	}
}

// The difference of two recordings lists the groups whose changes add up to the difference of the peaks.
func TestDifference(t *testing.T) {
	b := open(t, serveTraces(t, "resnet.stacks", "unet.stacks"), "view", "diff")
	b.wait(`document.querySelector('tr[data-change]')`)
	b.shot("line")
	peaks := eval[[]int64](b, `ashlarView.store.recordings.map((r) => r.requested_peak.bytes)`)
	sum := `[...document.querySelectorAll('tr[data-change]')].reduce((s, e) => s + Number(e.dataset.change), 0)`
	if got := eval[int64](b, sum); got != peaks[1]-peaks[0] {
		t.Errorf("the changes add up to %d, want %d", got, peaks[1]-peaks[0])
	}
	eval[bool](b, `(ashlarView.store.set({ by: 'category' }), true)`)
	b.wait(`[...document.querySelectorAll('tr[data-change] th')].some((e) => e.textContent === 'weights')`)
	if got := eval[int64](b, sum); got != peaks[1]-peaks[0] {
		t.Errorf("the changes by category add up to %d, want %d", got, peaks[1]-peaks[0])
	}
}

// Recordings of one job are drawn with one scale; Open leads to one of them.
func TestRanks(t *testing.T) {
	names := []string{"resnet.stacks", "resnet.round4", "unet.stacks"}
	b := open(t, serveTraces(t, names...), "view", "ranks")
	b.wait(`document.querySelector('.cards').dataset.charts === '3'`)
	b.shot("ranks")
	for i := range names {
		got := eval[[]int64](b, fmt.Sprintf(`[Math.max(...ashlarView.current.charts[%d].curves[0].y),
			ashlarView.store.recordings[%d].requested_peak.bytes]`, i, i))
		if got[0] != got[1] {
			t.Errorf("%s: the curve's highest point is %d, want %d", names[i], got[0], got[1])
		}
	}
	eval[bool](b, `(document.querySelectorAll('.card button')[2].click(), true)`)
	b.wait(`ashlarView.shown === 'memory' && ashlarView.store.recording.name === 'unet.stacks'`)
}
