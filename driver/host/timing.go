package host

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// timing implements driver.Timing. The clock is the machine's monotonic clock, which all devices share. A stream's
// goroutine reads it when it reaches the stamp.
type timing struct{ d *device }

func (d *device) Timing() driver.Timing { return timing{d} }

// stamps are the stamps of a device that are not discarded.
type stamps struct {
	mu sync.Mutex
	of map[uint64]*stamp
}

// A stamp holds a time, which the stream writes before it counts the stamp's tick as done, and others read afterwards.
type stamp struct {
	driver.Stamp
	on *stream
	at time.Time
}

// lastStamp numbers the stamps of all devices, so that a device detects the stamps of another.
var lastStamp atomic.Uint64

func (t timing) Stamp(s driver.Stream) (driver.Stamp, error) {
	const call = "Timing.Stamp"
	own := t.d.stream(call, s)
	st := &stamp{on: own}
	tick, err := own.addNow(call, func() error { st.at = time.Now(); return nil })
	if err != nil {
		return driver.Stamp{}, err
	}
	st.Stamp = driver.Stamp{Mark: driver.Mark{Stream: own.id, Tick: tick}, ID: lastStamp.Add(1)}
	t.d.stamps.mu.Lock()
	defer t.d.stamps.mu.Unlock()
	if t.d.stamps.of == nil {
		t.d.stamps.of = map[uint64]*stamp{}
	}
	t.d.stamps.of[st.ID] = st
	return st.Stamp, nil
}

// find returns a stamp of this device that is not discarded. t.d.stamps.mu is held.
func (t timing) find(call string, s driver.Stamp) (*stamp, error) {
	if st := t.d.stamps.of[s.ID]; st != nil && st.Stamp == s {
		return st, nil
	}
	return nil, invalidError(call, "stamp %d is not one of this device, or was discarded", s.ID)
}

func (t timing) Elapsed(from, to driver.Stamp) (time.Duration, error) {
	const call = "Timing.Elapsed"
	t.d.stamps.mu.Lock()
	defer t.d.stamps.mu.Unlock()
	var of [2]*stamp
	for i, s := range []driver.Stamp{from, to} {
		st, err := t.find(call, s)
		if err != nil {
			return 0, err
		}
		of[i] = st
	}
	for _, st := range of {
		if st.on.done.Load() < st.Mark.Tick {
			return 0, &driver.Error{Call: call, Code: driver.ErrNotReady, Detail: fmt.Sprintf("stamp %d", st.ID)}
		}
	}
	return of[1].at.Sub(of[0].at), nil
}

func (t timing) Discard(s driver.Stamp) error {
	t.d.stamps.mu.Lock()
	defer t.d.stamps.mu.Unlock()
	if _, err := t.find("Timing.Discard", s); err != nil {
		return err
	}
	delete(t.d.stamps.of, s.ID)
	return nil
}
