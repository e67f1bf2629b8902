package drivertest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// What may be done while streams capture, and what becomes of captures that fail. Graphs themselves are in graph.go.

// testGraphRefused: what would wait for captured work fails, and the capture goes on.
func testGraphRefused(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil {
		return
	}
	def := k.d.DefaultStream()
	WantErr(t, "Begin on the default stream", k.Begin(def), driver.ErrCapturing)
	k.capturing(false, def)
	_, err := k.End(k.a)
	wantCaptureErr(t, "End without Begin", err)
	g := k.capture(2, func() {
		k.set(k.a, 0, 9)
		WantErr(t, "Sync while capturing", k.a.Sync(context.Background()), driver.ErrCapturing)
		WantErr(t, "CopyIn while capturing", k.a.CopyIn(k.p, make([]byte, 8)), driver.ErrCapturing)
		WantErr(t, "CopyOut while capturing", k.a.CopyOut(make([]byte, 8), k.p), driver.ErrCapturing)
		wantCaptureErr(t, "Begin while capturing", k.Begin(k.a))
		k.capturing(true, k.a)
		k.capturing(false, k.b, k.c)
		testkit.Must(t, k.b.Fill(k.cell(5), 8, cellSize)) // what does not capture goes on
		wantBytes(t, k.b, k.cell(5), bytes.Repeat([]byte{8}, cellSize))
		k.move(k.a, 1, 0)
	})
	k.holds(k.a, 1, 2, 3, 4, 5, 8)
	testkit.Must(t, g.Launch(k.a))
	k.holds(k.a, 9, 9, 3, 4, 5, 8)
	wantPanic(t, "Begin on a nil stream", func() error { return k.Begin(nil) })
	wantPanic(t, "Launch on a nil stream", func() error { return g.Launch(nil) })
	k.finish(g)
}

// wantCaptureErr fails the test unless err is a *driver.Error that says that streams must not be captured so.
func wantCaptureErr(t testing.TB, what string, err error) {
	t.Helper()
	if e := (*driver.Error)(nil); !errors.As(err, &e) ||
		!errors.Is(err, driver.ErrCapturing) && !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("%s: %v, want a *driver.Error that matches ErrCapturing or ErrInvalid", what, err)
	}
}

// testGraphUnjoined: a capture whose streams do not come together fails, and leaves ordinary streams.
func testGraphUnjoined(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil {
		return
	}
	for what, work := range map[string]func(){
		"a stream that is not waited for": func() {
			k.fork(k.b, k.a)
			k.set(k.b, 0, 9)
		},
		"work after the last wait": func() {
			k.fork(k.b, k.a)
			k.set(k.b, 0, 9)
			k.fork(k.a, k.b)
			k.set(k.b, 1, 9)
		},
		"one of two streams": func() {
			k.fork(k.b, k.a)
			k.fork(k.c, k.a)
			k.set(k.b, 0, 9)
			k.set(k.c, 1, 9)
			k.fork(k.a, k.c)
		},
		"a stream that only another one waits for": func() {
			k.fork(k.b, k.a)
			k.set(k.b, 0, 9)
			m := mustMark(t, k.b)
			k.fork(k.c, k.a)
			k.set(k.c, 1, 9)
			k.fork(k.a, k.c)
			testkit.Must(t, k.c.WaitFor(k.b, m)) // too late: a has waited already
			k.set(k.c, 2, 9)
		},
	} {
		testkit.Must(t, k.Begin(k.a))
		work()
		g, err := k.End(k.a)
		if g != nil {
			t.Errorf("%s: End returned a graph", what)
		}
		wantCaptureErr(t, "End with "+what, err)
		k.capturing(false, k.a, k.b, k.c)
		k.holds(k.a, 1, 2, 3, 4)
		for _, s := range []driver.Stream{k.a, k.b, k.c} {
			k.set(s, 5, 77)
			wantBytes(t, s, k.cell(5), bytes.Repeat([]byte{77}, cellSize))
		}
		g = k.capture(1, func() { k.set(k.a, 5, 78) })
		testkit.Must(t, g.Launch(k.b))
		wantBytes(t, k.b, k.cell(5), bytes.Repeat([]byte{78}, cellSize))
		testkit.Must(t, g.Close())
	}
	k.finish()
}

// testGraphMarks takes marks before, in and after a capture.
func testGraphMarks(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil {
		return
	}
	is := func(when string, s driver.Stream, m driver.Mark, want bool) {
		t.Helper()
		if got, err := s.Reached(m); got != want || err != nil {
			t.Errorf("%s: reached %v, %v; want %v", when, got, err, want)
		}
	}
	k.set(k.a, 0, 9)
	before := mustMark(t, k.a)
	testkit.Must(t, k.a.Sync(context.Background()))
	var marks []driver.Mark
	var drawn driver.Mark
	g := k.capture(3, func() {
		for range 100 {
			marks = append(marks, mustMark(t, k.a)) // without work yet
		}
		k.set(k.a, 1, 9)
		marks = append(marks, mustMark(t, k.a))
		k.fork(k.b, k.a)
		k.set(k.b, 2, 9)
		drawn = mustMark(t, k.b)
		testkit.Must(t, k.a.WaitFor(k.b, drawn))
		testkit.Must(t, k.a.WaitFor(k.b, drawn)) // twice is as good
		k.set(k.a, 3, 9)
		marks = append(marks, mustMark(t, k.a))
		is("a mark before the capture, in it", k.a, before, true)
		for _, m := range marks {
			is("a mark of the capture, in it", k.a, m, false)
		}
		is("a mark of a stream that was drawn in", k.b, drawn, false)
	})
	for i, m := range marks { // capturing did no work
		is("a mark of the capture, after it", k.a, m, true)
		if m.Tick < before.Tick || i > 0 && m.Tick < marks[i-1].Tick {
			t.Errorf("mark %d of the capture has the tick %d, an earlier one a greater", i, m.Tick)
		}
	}
	is("a mark of a stream that was drawn in, after the capture", k.b, drawn, true)
	testkit.Must(t, k.c.WaitFor(k.a, marks[0]))
	testkit.Must(t, k.c.WaitFor(k.b, drawn))
	k.capturing(false, k.a, k.b, k.c)

	testkit.Must(t, g.Launch(k.a))
	launched := mustMark(t, k.a)
	if launched.Tick < marks[len(marks)-1].Tick {
		t.Errorf("a mark after the capture has the tick %d, one in it %d", launched.Tick, marks[len(marks)-1].Tick)
	}
	testkit.Must(t, k.c.WaitFor(k.a, launched))
	k.holds(k.c, 9, 9, 9, 9, 5)
	is("a mark after a launch that another stream waited for", k.a, launched, true)
	k.finish(g)
}
