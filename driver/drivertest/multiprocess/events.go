package multiprocess

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// work queues work that takes its time and leaves the pattern in all of the memory, and does not wait.
func (h *holder) work(id int, pattern byte) error {
	s, m := h.d.DefaultStream(), h.held[id]
	var err error
	for i := range 40 {
		err = errors.Join(err, s.Fill(m.at, byte(i)^0x80, m.size))
	}
	return errors.Join(err, s.Fill(m.at, pattern, m.size))
}

func (h *holder) newEvent() ([]byte, error) {
	e, err := h.d.Sharing().NewEvent()
	if err != nil {
		return nil, err
	}
	h.events = append(h.events, e)
	return e.Handle()
}

func (h *holder) openEvent(handle []byte) error {
	e, err := h.d.Sharing().OpenEvent(handle)
	if err == nil {
		h.events = append(h.events, e)
	}
	return err
}

// An eventTest is an event that two processes have open.
type eventTest struct {
	t     *testing.T
	ends  [2]eventEnd // here and there
	maker int
}

// An eventEnd asks one of the processes for something, with the event and the default stream of its device.
type eventEnd struct {
	ask func(op string) (reply, error)
	id  int
}

func (e eventEnd) record() error { _, err := e.ask("record"); return err }

// event makes an event in one process and opens it in the other. It returns nil if the device shares none.
func (s *sharingTest) event(p *process, madeHere bool) *eventTest {
	s.t.Helper()
	if madeHere {
		handle, err := s.here.newEvent()
		if errors.Is(err, driver.ErrUnsupported) {
			return nil
		}
		testkit.Must(s.t, err)
		p.ask(request{Op: "openevent", Handle: handle}, nil)
	} else {
		rep, _ := p.try(request{Op: "newevent"}, nil)
		if rep.Unsupported {
			return nil
		}
		if rep.Err != "" {
			s.t.Fatalf("NewEvent in the other process: %s", rep.Err)
		}
		testkit.Must(s.t, s.here.openEvent(rep.Handle))
	}
	ours, theirs := len(s.here.events)-1, p.events
	p.events++
	maker := 0
	if !madeHere {
		maker = 1
	}
	return &eventTest{s.t, [2]eventEnd{
		{id: ours, ask: func(op string) (reply, error) {
			rep, _ := s.here.answer(request{Op: op, ID: ours}, nil)
			if rep.Err != "" {
				return rep, errors.New(rep.Err)
			}
			return rep, nil
		}},
		{id: theirs, ask: func(op string) (reply, error) {
			rep, _ := p.ask(request{Op: op, ID: theirs}, nil)
			return rep, nil
		}},
	}, maker}
}

// reached fails the test unless the event is reached, as that end sees it.
func (e *eventTest) reached(end int, when string) {
	e.t.Helper()
	rep, err := e.ends[end].ask("reached")
	testkit.Must(e.t, err)
	if !rep.Reached {
		e.t.Errorf("process %d: the event is not reached %s", end, when)
	}
}

// close closes both ends, the maker's last.
func (e *eventTest) close() {
	e.t.Helper()
	for _, end := range []int{1 - e.maker, e.maker} {
		_, err := e.ends[end].ask("endevent")
		testkit.Must(e.t, err)
	}
}

// events: a stream of one process waits for an event that the other recorded, whichever process made it.
func (s *sharingTest) events() {
	p := s.start()
	here, there := s.give(p)
	for _, madeHere := range []bool{true, false} {
		e := s.event(p, madeHere)
		if e == nil {
			return
		}
		for end := range 2 {
			e.reached(end, "before it was ever recorded")
			_, err := e.ends[end].ask("wait")
			testkit.Must(s.t, err)
		}
		for round := range 6 {
			pattern := byte(0x10 + round)
			recorder := round % 2
			if recorder == 0 {
				testkit.Must(s.t, s.here.work(here, pattern))
			} else {
				p.ask(request{Op: "work", ID: there, Pattern: pattern}, nil)
			}
			testkit.Must(s.t, e.ends[recorder].record())
			_, err := e.ends[1-recorder].ask("wait")
			testkit.Must(s.t, err)
			if recorder == 0 {
				p.holds(there, 0, 16, pattern)
				p.holds(there, s.size-16, 16, pattern)
			} else {
				s.sees(here, 0, 16, pattern)
				s.sees(here, s.size-16, 16, pattern)
			}
			e.reached(0, "after it was waited for")
			e.reached(1, "after it was waited for")
		}
		e.close()
	}
	p.end(there)
	testkit.Must(s.t, s.here.held[here].end())
	p.leave()
}

// eventRecorderKilled: what it had recorded and done stays reached, and the event can be recorded again.
func (s *sharingTest) eventRecorderKilled() {
	p := s.start()
	here, there := s.give(p)
	e := s.event(p, true)
	if e == nil {
		return
	}
	p.ask(request{Op: "work", ID: there, Pattern: 5}, nil)
	testkit.Must(s.t, e.ends[1].record())
	p.ask(request{Op: "sync"}, nil)
	p.kill()
	e.reached(0, "after its recorder had done the work and was killed")
	_, err := e.ends[0].ask("wait")
	testkit.Must(s.t, err)
	s.sees(here, s.size-16, 16, 5)
	testkit.Must(s.t, s.here.work(here, 6))
	testkit.Must(s.t, e.ends[0].record())
	s.sees(here, s.size-16, 16, 6)
	e.reached(0, "after it was recorded again")
	_, err = e.ends[0].ask("endevent")
	testkit.Must(s.t, errors.Join(err, s.here.held[here].end()))
}

// eventMakerKilled: its event can be closed. Its handle may be refused.
func (s *sharingTest) eventMakerKilled() {
	p := s.start()
	e := s.event(p, false)
	if e == nil {
		return
	}
	testkit.Must(s.t, e.ends[1].record())
	p.ask(request{Op: "sync"}, nil)
	handle, err := s.here.events[e.ends[0].id].Handle()
	testkit.Must(s.t, err)
	p.kill()
	_, err = e.ends[0].ask("endevent")
	testkit.Must(s.t, err)
	if err := s.here.openEvent(handle); err != nil {
		drivertest.WantErr(s.t, "OpenEvent of a maker that was killed", err, driver.ErrInvalid)
	}

	other := s.start() // and work goes on with another
	e = s.event(other, true)
	testkit.Must(s.t, e.ends[0].record())
	_, err = e.ends[1].ask("wait")
	testkit.Must(s.t, err)
	other.ask(request{Op: "sync"}, nil)
	e.close()
	other.leave()
}
