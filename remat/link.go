package remat

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

const (
	usualLink   = 25e9      // bytes per second, before copies were timed: page-locked memory over PCIe 4
	leastTimed  = 256 << 10 // bytes; smaller copies show the latency instead of the speed
	enoughTimed = 32        // copies that are timed
)

// A linkTimer measures the speed of copies by the device's clock.
type linkTimer struct {
	timing  driver.Timing // nil: copies are not timed
	started int
	pending []timedCopy
	bytes   int64
	ns      int64
}

// A timedCopy is a copy between two stamps.
type timedCopy struct {
	from, to driver.Stamp
	size     int64
}

// around queues a copy on a stream with f, and times it if it is one of the first.
func (l *linkTimer) around(on driver.Stream, size int64, f func() error) error {
	if l.timing == nil || l.started >= enoughTimed || size < leastTimed {
		return f()
	}
	from, stampErr := l.timing.Stamp(on)
	err := f()
	if stampErr != nil {
		return err // the copy itself reports what is wrong with the device
	}
	to, stampErr := l.timing.Stamp(on)
	if stampErr != nil || err != nil {
		l.timing.Discard(from)
		return err
	}
	l.started++
	l.pending = append(l.pending, timedCopy{from, to, size})
	return nil
}

// poll takes the times of the copies that are done.
func (l *linkTimer) poll(e *schedule.Engine) {
	for len(l.pending) > 0 {
		c := l.pending[0]
		took, err := l.timing.Elapsed(c.from, c.to)
		if errors.Is(err, driver.ErrNotReady) {
			return
		}
		l.discard(c)
		l.pending = l.pending[1:]
		if err == nil && took > 0 {
			l.bytes, l.ns = l.bytes+c.size, l.ns+took.Nanoseconds()
			e.SetLink(float64(l.bytes) / float64(l.ns) * 1e9)
		}
	}
}

func (l *linkTimer) discard(c timedCopy) error {
	return errors.Join(l.timing.Discard(c.from), l.timing.Discard(c.to))
}

func (l *linkTimer) close() error {
	var errs []error
	for _, c := range l.pending {
		errs = append(errs, l.discard(c))
	}
	l.pending = nil
	return errors.Join(errs...)
}
