package holders

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

// A Moment is a point of a recording: after an event.
type Moment struct {
	Event int           // index into trace.Trace.Events; -1 is before the first
	Since time.Duration // since the first event; 0 if the events have no times
	Bytes int64         // requested bytes of the active blocks
	Name  string        // such as "the peak", for sentences
}

// String describes the moment: "the peak, 12.5s after the start, with 8.05GiB requested".
func (m Moment) String() string {
	at := ""
	if m.Since > 0 {
		at = fmt.Sprintf(", %s after the start", m.Since.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s%s, with %s requested", m.Name, at, bytesize.Format(m.Bytes))
}

// Moment returns the moment with a name:
//
//	peak          when the requested bytes first reached their maximum
//	oom, oom:2    when the last or the second request failed
//	end           the end of the recording
//	step:3        the peak within step 3: see Steps
//	12.5s, 2m1s   a time after the first event
//	event:100     after Trace.Events[100]; event:-1 is before the first
//
// The error names the remedy if the recording has no such moment.
func (h *History) Moment(name string) (Moment, error) {
	n, err := parseMoment(name)
	if err != nil {
		return Moment{}, err
	}
	m, err := h.named(n)
	if err != nil {
		return Moment{}, fmt.Errorf("holders: moment %q: %w", name, err)
	}
	return m, nil
}

// CheckMoment returns the error of History.Moment for what is not the name of a moment in any recording.
func CheckMoment(name string) error {
	_, err := parseMoment(name)
	return err
}

// A momentName is the name of a moment in parts.
type momentName struct {
	kind     string // peak, oom, end, step, event or time
	number   int    // after the colon
	numbered bool
	after    time.Duration // of a time
}

func parseMoment(name string) (momentName, error) {
	kind, argument, numbered := strings.Cut(name, ":")
	n := momentName{kind: kind, numbered: numbered}
	if numbered {
		var err error
		if n.number, err = strconv.Atoi(argument); err != nil {
			return n, fmt.Errorf("holders: moment %q: want a whole number after the colon", name)
		}
	}
	switch kind {
	case "peak", "end":
		if !numbered {
			return n, nil
		}
	case "step", "event":
		if numbered {
			return n, nil
		}
	case "oom":
		return n, nil
	}
	after, err := time.ParseDuration(name)
	if err != nil {
		return n, fmt.Errorf("holders: moment %q: want peak, oom, oom:N, end, step:N, event:N, or a time since the start "+
			"of the recording such as 12.5s", name)
	}
	return momentName{kind: "time", after: after}, nil
}

// named returns the moment with a name.
func (h *History) named(n momentName) (Moment, error) {
	last := h.Trace.Len() - 1
	switch n.kind {
	case "peak":
		return h.moment(h.peak(-1, last), "the peak"), nil
	case "end":
		return h.moment(last, "the end"), nil
	case "oom":
		return h.failure(n.number, n.numbered)
	case "step":
		return h.stepPeak(n.number)
	case "event":
		if n.number < -1 || n.number > last {
			return Moment{}, fmt.Errorf("the recording has the events 0 to %d", last)
		}
		return h.moment(n.number, fmt.Sprintf("event %d", n.number)), nil
	}
	return h.timed(n.after)
}

// moment returns the moment after an event.
func (h *History) moment(event int, name string) Moment {
	return Moment{Event: event, Since: h.Since(event), Bytes: h.ActiveBytes(event), Name: name}
}

// Since returns the time from the first event to an event, or 0 if the events have no times.
func (h *History) Since(event int) time.Duration {
	if event < 0 {
		return 0
	}
	return time.Duration(h.Trace.TimeUS(event)-h.Trace.TimeUS(0)) * time.Microsecond
}

// peak returns the event from first to last at which the active bytes first reach their maximum.
func (h *History) peak(first, last int) int {
	if last < first {
		return first
	}
	return int(h.Extremes(first, last+1).At)
}

// failure returns the moment of the failed request with a number from 1, or of the last one.
func (h *History) failure(number int, chosen bool) (Moment, error) {
	n, last := 0, -1
	for _, i := range h.Trace.Find(mem.ActionOOM) {
		if last = int(i); chosen && n+1 == number {
			return h.moment(last, fmt.Sprintf("failed request %d", number)), nil
		}
		n++
	}
	switch o := h.snapshot.OutOfMemory; {
	case !chosen && n > 0:
		return h.moment(last, "the failed request"), nil
	case n > 0:
		return Moment{}, fmt.Errorf("the recording has the failed requests 1 to %d", n)
	case !chosen && o != nil && (o.Facts == nil || o.Facts.Device == h.Trace.Device):
		return h.moment(h.Trace.Len()-1, "the failed request"), nil // which the final state shows
	}
	return Moment{}, fmt.Errorf("no request failed in the recording; \"peak\" shows the moment of the most memory")
}

// timed returns the moment at a time after the first event.
func (h *History) timed(after time.Duration) (Moment, error) {
	events := h.Trace.Len()
	if events == 0 || h.Since(events-1) == 0 {
		return Moment{}, fmt.Errorf("the events of the recording have no times; use event:N")
	}
	if total := h.Since(events - 1); after < 0 || after > total {
		return Moment{}, fmt.Errorf("the recording lasts %s", total)
	}
	last := 0 // times may run back between threads
	h.Trace.EachTime(func(first int, us []uint64) {
		for i, x := range us {
			if time.Duration(int64(x)-h.Trace.TimeUS(0))*time.Microsecond <= after {
				last = first + i
			}
		}
	})
	return h.moment(last, after.String()), nil
}
