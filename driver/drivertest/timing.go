package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func mustStamp(t testing.TB, c driver.Timing, s driver.Stream) driver.Stamp {
	t.Helper()
	st, err := c.Stamp(s)
	testkit.Must(t, err)
	if st.Mark.Stream != s.ID() {
		t.Fatalf("a stamp on stream %d has the mark %+v", s.ID(), st.Mark)
	}
	return st
}

func testTiming(t *testing.T, open openFunc) {
	d := open(t)
	c := d.Timing()
	if c == nil {
		return
	}
	a := NewStream(t, d)
	b := NewStream(t, d)
	const size = 1 << 20
	p := Alloc(t, d, size)
	elapsed := func(from, to driver.Stamp) time.Duration {
		t.Helper()
		span, err := c.Elapsed(from, to)
		testkit.Must(t, err)
		return span
	}

	// Time goes on, on one stream and across a wait of another, and can be read backwards.
	var stamps []driver.Stamp
	for i := range 10 {
		s, other := a, b
		if i%3 == 2 {
			s, other = b, a
		}
		testkit.Must(t, s.WaitFor(other, mustMark(t, other)))
		stamps = append(stamps, mustStamp(t, c, s))
		testkit.Must(t, s.Fill(p, byte(i), size))
	}
	if _, err := c.Elapsed(stamps[0], stamps[9]); err != nil && !errors.Is(err, driver.ErrNotReady) {
		t.Errorf("Elapsed before Sync: %v, want nil or ErrNotReady", err)
	}
	syncAll(t, a, b)
	for i, to := range stamps {
		for _, from := range stamps[:i] {
			if there, back := elapsed(from, to), elapsed(to, from); there < 0 || back != -there {
				t.Errorf("stamp %d: %v after an earlier one, which is %v after it", i, there, back)
			}
		}
		if same := elapsed(to, to); same != 0 {
			t.Errorf("stamp %d: %v after itself", i, same)
		}
	}

	// A stamp's mark is a mark.
	testkit.Must(t, a.Fill(p, 1, size))
	st := mustStamp(t, c, a)
	testkit.Must(t, b.WaitFor(a, st.Mark))
	testkit.Must(t, b.Fill(p, 2, size))
	testkit.Must(t, b.Sync(context.Background()))
	if ok, err := a.Reached(st.Mark); !ok || err != nil {
		t.Errorf("the mark of a stamp that another stream waited for: reached %v, %v", ok, err)
	}
	if span := elapsed(stamps[9], st); span < 0 {
		t.Errorf("a later stamp is %v after an earlier one", span)
	}
	for _, st := range append(stamps, st) {
		testkit.Must(t, c.Discard(st))
	}

	// Many at once, and some given up before they are reached.
	many := make([]driver.Stamp, 1000)
	for i := range many {
		many[i] = mustStamp(t, c, a)
		if i%2 == 1 {
			testkit.Must(t, c.Discard(many[i]))
		}
	}
	testkit.Must(t, a.Sync(context.Background()))
	for i := 0; i+2 < len(many); i += 2 {
		if span := elapsed(many[i], many[i+2]); span < 0 {
			t.Errorf("stamp %d is %v after stamp %d", i+2, span, i)
		}
		testkit.Must(t, c.Discard(many[i]))
	}
	testkit.Must(t, d.Free(p))
}

func testTimingMisuse(t *testing.T, open openFunc) {
	d, foreign := open(t), open(t)
	c := d.Timing()
	if c == nil {
		return
	}
	s := d.DefaultStream()
	st, gone := mustStamp(t, c, s), mustStamp(t, c, s)
	testkit.Must(t, s.Sync(context.Background()))
	testkit.Must(t, c.Discard(gone))
	wantRefused(t, "Discard twice", func() error { return c.Discard(gone) })
	invented := driver.Stamp{Mark: st.Mark, ID: 1 << 60}
	wantRefused(t, "Discard of a stamp that never was", func() error { return c.Discard(invented) })
	for what, bad := range map[string]driver.Stamp{"was discarded": gone, "never was": invented} {
		wantRefused(t, "Elapsed from a stamp that "+what, func() error { _, err := c.Elapsed(bad, st); return err })
		wantRefused(t, "Elapsed to a stamp that "+what, func() error { _, err := c.Elapsed(st, bad); return err })
	}
	wantPanic(t, "Stamp on a nil stream", func() error { _, err := c.Stamp(nil); return err })
	wantPanic(t, "Stamp on a stream of another device", func() error {
		_, err := c.Stamp(foreign.DefaultStream())
		return err
	})
	if span, err := c.Elapsed(st, st); span != 0 || err != nil {
		t.Errorf("a stamp after all that is %v after itself, %v", span, err)
	}
	testkit.Must(t, c.Discard(st))
}
