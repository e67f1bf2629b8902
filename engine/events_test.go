package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/timeline"
)

// names returns the names of a device's spans, with their depths and states.
func names(t testing.TB, r *timeline.Recording) string {
	t.Helper()
	var b strings.Builder
	for _, e := range r.Spans {
		b.WriteString(strings.Repeat(".", e.Depth) + e.Name)
		if e.State != timeline.Done {
			b.WriteString(" " + e.State.String())
		}
		b.WriteString("; ")
	}
	return b.String()
}

func TestEvents(t *testing.T) {
	e, _ := simulated(t, 2, Config{EventLevel: 2})
	s, other := session(t, e), session(t, e)
	outer := s.Event("layer", Level(1), FLOPs(2e6))
	other.Event("of another").End()
	floats(t, s.Place(), 1000)
	inner := s.Event("attention")
	s.Event("too fine", Level(3)).End()
	inner.End()
	testkit.Must(t, s.OnDevice(1, func() error {
		s.Event("elsewhere").End()
		s.Event("not ended")
		return nil
	}))
	s.Event("lost")
	outer.End()
	outer.End()
	testkit.Must(t, s.SetEventLevel(0))
	s.Event("off", Level(1)).End()

	mine, err := s.Events(t.Context())
	testkit.Must(t, err)
	for i, want := range []string{"layer; .attention; .lost unfinished; ", "elsewhere; not ended unfinished; "} {
		if got := names(t, mine[i]); got != want {
			t.Errorf("device %d: %q, want %q", i, got, want)
		}
	}
	layer := mine[0].Spans[0]
	if took, ok := layer.Duration(); !ok || took <= 0 || layer.FLOPs != 2e6 || layer.Level != 1 || layer.Memory.Peak != 4000 {
		t.Errorf("the layer is %+v", layer)
	}
	if mine[0].Spans[1].Level != DefaultEventLevel || mine[0].Spans[1].Parent != 0 {
		t.Errorf("the second event is %+v", mine[0].Spans[1])
	}
	all, err := e.Events(t.Context())
	testkit.Must(t, err)
	if got := names(t, all[0]); got != "layer; of another; .attention; .lost unfinished; " {
		t.Errorf("of all sessions: %q", got)
	}
	testkit.Must(t, e.ResetEvents(t.Context()))
	if all, err = e.Events(t.Context()); err != nil || len(all[0].Spans)+len(all[1].Spans) != 0 {
		t.Errorf("after a reset there are %q and %q, %v", names(t, all[0]), names(t, all[1]), err)
	}
	testkit.Contains(t, testkit.Panic(t, func() { Level(0) }), "an event of level 0")
}

// The three formats are written, for one session and for all. Package timeline tests the formats.
func TestEventsAreWritten(t *testing.T) {
	e, _ := simulated(t, 2, Config{EventLevel: 2})
	s, other := session(t, e), session(t, e)
	s.Event("mine").End()
	other.Event("yours").End()
	for name, tt := range map[string]struct {
		session, all func(*bytes.Buffer) error
	}{
		"tree": {
			func(b *bytes.Buffer) error { return s.WriteTree(t.Context(), b) },
			func(b *bytes.Buffer) error { return e.WriteTree(t.Context(), b) },
		},
		"timeline": {
			func(b *bytes.Buffer) error { return s.WriteTimeline(t.Context(), b) },
			func(b *bytes.Buffer) error { return e.WriteTimeline(t.Context(), b) },
		},
		"chrome": {
			func(b *bytes.Buffer) error { return s.WriteChromeTrace(t.Context(), b) },
			func(b *bytes.Buffer) error { return e.WriteChromeTrace(t.Context(), b) },
		},
	} {
		var one, all bytes.Buffer
		testkit.Must(t, tt.session(&one))
		testkit.Must(t, tt.all(&all))
		if text := one.String(); !strings.Contains(text, "mine") || strings.Contains(text, "yours") {
			t.Errorf("%s of the session:\n%s", name, text)
		}
		if text := all.String(); !strings.Contains(text, "mine") || !strings.Contains(text, "yours") {
			t.Errorf("%s of all:\n%s", name, text)
		}
		if name == "chrome" && !json.Valid(all.Bytes()) {
			t.Errorf("not JSON:\n%s", all.String())
		}
	}
}

// Events that are not recorded cost no memory and no device call.
func TestEventsThatAreOff(t *testing.T) {
	e, devs := simulated(t, 1, Config{})
	s := session(t, e)
	before := devs[0].Calls()
	if n := testing.AllocsPerRun(100, func() { s.Event("off", Level(1), FLOPs(3)).End() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if after := devs[0].Calls(); after != before {
		t.Error("the device was called")
	}
}

// On a device without a clock, and one that refuses, events are listed without times.
func TestEventsWithoutTimes(t *testing.T) {
	c, devs := onSim(t, 1, Config{EventLevel: 2})
	c.Devices[0].Spec = prepare(t, func() (driver.Device, error) { return timeless{devs[0]}, nil })
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	s, err := e.NewSession()
	testkit.Must(t, err)
	s.Event("work").End()
	all, err := s.Events(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Spans) != 1 || all[0].Clock {
		t.Errorf("got %+v, %v; want one event without a clock", all, err)
	}
	testkit.Must(t, s.Close())
	testkit.Must(t, e.Close(t.Context()))
	wellLeft(t, devs[0])
}

type timeless struct{ *sim.Device }

func (timeless) Timing() driver.Timing { return nil }

// A session's wait ends with the context, and still returns the events that are complete.
func TestWaitsEndWithTheirContext(t *testing.T) {
	c := hosts(2)
	c.EventLevel = 2
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	s := session(t, e)
	slow := floats(t, s.Place(), 1)
	finish := make(chan struct{})
	event := s.Event("slow")
	kernels := s.Place().Device().Kernels()
	testkit.Must(t, kernels.Launch(s.Place().Stream(), driver.Kernel{Name: "slow", Func: func(driver.Memory) error {
		<-finish
		return nil
	}}))
	event.End()
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := s.Events(short); !errors.Is(err, short.Err()) || len(all) != 1 || names(t, all[0]) != "slow pending; " {
		t.Errorf("got %v, %v", all, err)
	}
	for name, f := range map[string]func() error{
		"Sync":    func() error { return s.Sync(short) },
		"Collect": func() error { return s.Collect(short) },
		"CopyTo":  func() error { _, err := s.CopyTo(short, slow, 1); return err },
	} {
		if err := f(); !errors.Is(err, short.Err()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(finish)
	testkit.Must(t, s.Sync(t.Context()))
	testkit.Must(t, s.Close())
	testkit.Must(t, e.Close(t.Context()))
}

// An event that a scope ended is no parent of later ones. An event that began outside may end inside a scope; the scope
// still ends the events that began in it.
func TestEventsAndScopesThatCross(t *testing.T) {
	e, _ := simulated(t, 2, Config{EventLevel: 2})
	s := session(t, e)
	check := func(what string, i int, want string) {
		t.Helper()
		all, err := s.Events(t.Context())
		testkit.Must(t, err)
		if got := names(t, all[i]); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		testkit.Must(t, e.ResetEvents(t.Context()))
	}
	testkit.Must(t, s.OnDevice(0, func() error { s.Event("lost"); return nil }))
	s.Event("next").End()
	check("after a scope", 0, "lost unfinished; next; ")

	outer := s.Event("outer")
	testkit.Must(t, s.OnDevice(1, func() error { s.Event("lost"); outer.End(); return nil }))
	testkit.Must(t, s.OnDevice(1, func() error { s.Event("next").End(); return nil }))
	check("after an event around it", 1, "lost unfinished; next; ")

	for name, scope := range map[string]func(func() error) error{
		"OnDevice":  func(f func() error) error { return s.OnDevice(0, f) },
		"WithDebug": func(f func() error) error { return s.WithDebug(1, f) },
	} {
		outer = s.Event("outer")
		testkit.Must(t, scope(func() error { outer.End(); s.Event("lost"); return nil }))
		check(name, 0, "outer; lost unfinished; ")
		elsewhere(func() { s.Place() }) // nothing holds the session
	}
}

// An event stays when more short events end inside it than a device keeps. Config sets how many are kept.
func TestDefect21_EventsAroundManyAreKept(t *testing.T) {
	e, _ := simulated(t, 1, Config{EventLevel: 2, MaxEvents: 16})
	s := session(t, e)
	run := s.Event("run")
	for range 100 {
		s.Event("step").End()
	}
	run.End()
	all, err := e.Events(t.Context())
	testkit.Must(t, err)
	if got, want := names(t, all[0]), "run; "+strings.Repeat(".step; ", 15); got != want || all[0].Dropped != 85 {
		t.Errorf("kept %q, want %q; dropped %d", got, want, all[0].Dropped)
	}
	if _, err := Open(t.Context(), Config{MaxEvents: -1}); err == nil || !strings.Contains(err.Error(), "MaxEvents is -1") {
		t.Errorf("Open with -1 events: %v", err)
	}
}

// A goroutine ended without ending its event. The session and the engine behave the same with events on or off; with
// events on, Close names the event.
func TestDefect08_AForgottenEventHoldsNothing(t *testing.T) {
	for _, level := range []int{0, 2} {
		for _, closed := range []bool{false, true} { // by its user
			c, devs := onSim(t, 1, Config{EventLevel: level})
			e, err := Open(t.Context(), c)
			testkit.Must(t, err)
			s, err := e.NewSession()
			testkit.Must(t, err)
			elsewhere(func() { s.Event("forgotten") })
			s.Place()
			elsewhere(func() { s.Event("ended").End() })
			testkit.Must(t, s.WithDevice(0, func() error { elsewhere(func() { s.Event("inside").End() }); return nil }))
			named := ""
			if level > 0 {
				named = "forgotten"
				all, err := s.Events(t.Context())
				testkit.Must(t, err)
				if got, want := names(t, all[0]), "forgotten open; .ended; .inside; "; got != want {
					t.Errorf("level %d: events %q, want %q", level, got, want)
				}
			}
			tells := func(what string, err error) {
				t.Helper()
				if got := err != nil && strings.Contains(err.Error(), "forgotten"); got != (named != "") {
					t.Errorf("level %d: %s: %v, want the event %q in it", level, what, err, named)
				}
			}
			if closed {
				tells("Session.Close", s.Close())
				testkit.Must(t, e.Close(t.Context()))
				continue
			}
			err = e.Close(t.Context())
			tells("Engine.Close", err)
			var alive *AliveError
			if !errors.As(err, &alive) || len(alive.Sessions) != 1 {
				t.Errorf("level %d: Close: %v, want the session alone", level, err)
			}
			if s.Event("late") != nil {
				t.Errorf("level %d: an event of a session that is closed", level)
			}
			wellLeft(t, devs[0])
		}
	}
}

// The tasks of EachDevice share one row of the printed output.
func TestEventsOfTasks(t *testing.T) {
	e, _ := simulated(t, 2, Config{EventLevel: 2})
	for range 3 {
		testkit.Must(t, e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
			s.Event("step").End()
			s.Event("not ended")
			return nil
		}))
	}
	all, err := e.Events(t.Context())
	testkit.Must(t, err)
	for i, r := range all {
		if got, want := names(t, r), strings.Repeat("step; not ended unfinished; ", 3); got != want {
			t.Errorf("device %d: %q, want %q", i, got, want)
		}
		for _, span := range r.Spans {
			if span.Lane != "EachDevice" || span.LaneNumber != r.Spans[0].LaneNumber {
				t.Errorf("device %d: a step is in the lane %q, number %d", i, span.Lane, span.LaneNumber)
			}
		}
	}
}
