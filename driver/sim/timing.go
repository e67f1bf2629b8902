package sim

import (
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// timing implements driver.Timing.
type timing struct{ d *Device }

// A stamp is a mark, with the virtual time at which the stream reached it.
type stamp struct {
	mark driver.Mark
	at   time.Duration
}

// Timing implements driver.Device. The clock is Now: a stamp is the virtual time at which its stream reached it,
// including the cost of the call to Stamp. The time between two stamps is the cost of the calls between them, on all
// streams. Equal calls have equal times.
func (d *Device) Timing() driver.Timing { return timing{d} }

func (t timing) Stamp(s driver.Stream) (driver.Stamp, error) {
	d, own := t.d, t.d.ownStream(CallStamp, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := own.beginNow(CallStamp, 0); err != nil {
		return driver.Stamp{}, err
	}
	tl := own.timeline
	st := &stamp{}
	d.submit(tl, work{call: CallStamp, stamp: st})
	st.mark = driver.Mark{Stream: tl.id, Tick: tl.queued}
	d.lastStamp++
	d.stamps[d.lastStamp] = st
	return driver.Stamp{Mark: st.mark, ID: d.lastStamp}, nil
}

// stamp finds a stamp that was not discarded.
func (d *Device) stamp(c Call, s driver.Stamp) (*stamp, error) {
	st := d.stamps[s.ID]
	if st == nil || st.mark != s.Mark {
		return nil, d.fail(c, driver.ErrInvalid, fmt.Sprintf("stamp %d was discarded, or is not of this device", s.ID))
	}
	return st, nil
}

// Elapsed, like Reached, orders the host after the work before both stamps if it succeeds.
func (t timing) Elapsed(from, to driver.Stamp) (time.Duration, error) {
	d := t.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallElapsed, d.cost(CallElapsed, 0), from.ID, to.ID); err != nil {
		return 0, err
	}
	a, err := d.stamp(CallElapsed, from)
	if err != nil {
		return 0, err
	}
	b, err := d.stamp(CallElapsed, to)
	if err != nil {
		return 0, err
	}
	for _, st := range [2]*stamp{a, b} {
		if tl := d.timelines[st.mark.Stream]; tl.done < st.mark.Tick {
			return 0, d.fail(CallElapsed, driver.ErrNotReady,
				fmt.Sprintf("the stamp at tick %d of stream %d, which has done %d", st.mark.Tick, tl.id, tl.done))
		}
	}
	for _, st := range [2]*stamp{a, b} {
		d.markSeen(d.timelines[st.mark.Stream], st.mark.Tick)
	}
	return b.at - a.at, nil
}

func (t timing) Discard(s driver.Stamp) error {
	d := t.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallDiscard, d.cost(CallDiscard, 0), s.ID); err != nil {
		return err
	}
	if _, err := d.stamp(CallDiscard, s); err != nil {
		return err
	}
	delete(d.stamps, s.ID)
	return nil
}
