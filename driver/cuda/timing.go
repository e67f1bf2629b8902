//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// A stamp is an event with time. Recording one costs more than the events of marks, which have no time. libcuda returns
// durations as 32-bit floating-point milliseconds, which are exact to half a microsecond up to about eight seconds, and
// less exact beyond.

type timing struct{ d *device }

func (d *device) Timing() driver.Timing { return timing{d} }

// stamps holds a device's events with time. mu is a leaf.
type stamps struct {
	mu   sync.Mutex
	last uint64 // number of the last stamp
	live map[uint64]cu.Event
	free []cu.Event
}

// take returns a discarded event, or 0.
func (t *stamps) take() cu.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		return 0
	}
	e := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return e
}

// put returns an event for reuse. It may not be reached yet, because recording it again is valid.
func (t *stamps) put(e cu.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, e)
}

// name assigns a number to an event.
func (t *stamps) name(e cu.Event) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = map[uint64]cu.Event{}
	}
	t.last++
	t.live[t.last] = e
	return t.last
}

func (t *stamps) event(id uint64) (cu.Event, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.live[id]
	return e, ok
}

// Stamp returns ErrCapturing on a stream that captures, because events of a graph have no time.
func (t timing) Stamp(s driver.Stream) (driver.Stamp, error) {
	const call = "Timing.Stamp"
	o := t.d.ownStream(call, s)
	if err := o.begin(call); err != nil {
		return driver.Stamp{}, err
	}
	defer o.end()
	if err := o.refuseCapture(call); err != nil {
		return driver.Stamp{}, err
	}
	e := t.d.stamps.take()
	if e == 0 {
		var r cu.Result
		if e, r = t.d.lib.EventCreate(cu.EventBlockingSync); r != cu.Success {
			return driver.Stamp{}, t.d.fail(call, r, "an event with time")
		}
	}
	r := t.d.lib.EventRecord(e, o.handle)
	if r == cu.Success {
		o.queued() // so that the next mark covers it
		m, err := o.mark(call)
		if err == nil {
			return driver.Stamp{Mark: m, ID: t.d.stamps.name(e)}, nil
		}
		t.d.stamps.put(e)
		return driver.Stamp{}, err
	}
	t.d.stamps.put(e)
	return driver.Stamp{}, t.d.fail(call, r, "record an event with time on stream %d", o.id)
}

// Elapsed returns ErrInvalid if a stamp was discarded.
func (t timing) Elapsed(from, to driver.Stamp) (time.Duration, error) {
	const call = "Timing.Elapsed"
	if err := t.d.enter(call); err != nil {
		return 0, err
	}
	defer t.d.leave()
	a, ok := t.d.stamps.event(from.ID)
	b, okToo := t.d.stamps.event(to.ID)
	if !ok || !okToo {
		return 0, invalidError(call, "stamps %d and %d: one is not this device's, or was discarded", from.ID, to.ID)
	}
	ms, r := t.d.lib.EventElapsed(a, b)
	return time.Duration(float64(ms) * float64(time.Millisecond)), t.d.fail(call, r, "stamps %d and %d", from.ID, to.ID)
}

func (t timing) Discard(s driver.Stamp) error {
	const call = "Timing.Discard"
	if err := t.d.enter(call); err != nil {
		return ignoreClosed(err)
	}
	defer t.d.leave()
	t.d.stamps.mu.Lock()
	defer t.d.stamps.mu.Unlock()
	e, ok := t.d.stamps.live[s.ID]
	if !ok {
		return invalidError(call, "stamp %d is not this device's, or was discarded", s.ID)
	}
	delete(t.d.stamps.live, s.ID)
	t.d.stamps.free = append(t.d.stamps.free, e)
	return nil
}

// closeStamps destroys the events.
func (d *device) closeStamps() cu.Result {
	first := cu.Success
	destroy := func(e cu.Event) {
		if r := d.lib.EventDestroy(e); first == cu.Success {
			first = r
		}
	}
	for _, e := range d.stamps.free {
		destroy(e)
	}
	for _, e := range d.stamps.live {
		destroy(e)
	}
	d.stamps.free, d.stamps.live = nil, nil
	return first
}
