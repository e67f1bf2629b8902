package sim

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// PyTorch's assertions about events, applied to marks and stamps.

func TestBehaviour32MarksAndStamps(t *testing.T) {
	b := newBench(t, Options{}, 2)
	s := b.s[1]
	reached := func(m driver.Mark) bool {
		t.Helper()
		done, err := s.Reached(m)
		b.ok(err)
		return done
	}
	if !reached(driver.Mark{Stream: s.ID()}) || !reached(b.mark(s)) {
		t.Error("a mark of a stream without work is not reached")
	}
	from := b.stamp(s)
	b.Hold(s.ID())
	b.ok(b.write(s, 0))
	behind, to := b.mark(s), b.stamp(s)
	for range 3 {
		if reached(behind) || reached(to.Mark) {
			t.Error("a mark behind held work is reached")
		}
	}
	for what, pair := range map[string][2]driver.Stamp{"to": {from, to}, "from": {to, from}} {
		if _, err := b.Timing().Elapsed(pair[0], pair[1]); !errors.Is(err, driver.ErrNotReady) {
			t.Errorf("Elapsed %s a stamp that is not reached: %v", what, err)
		}
	}
	b.Resume(s.ID())
	if !reached(behind) || !reached(to.Mark) {
		t.Error("a mark is not reached though its work is done")
	}
	if span, err := b.Timing().Elapsed(from, to); err != nil || span <= 0 {
		t.Errorf("Elapsed between two stamps that are reached: %v, %v", span, err)
	}
	for what, pair := range map[string][2]driver.Stamp{
		"a mark that is no stamp": {from, {Mark: behind}}, "stamps never taken": {{}, {}},
	} {
		if _, err := b.Timing().Elapsed(pair[0], pair[1]); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Elapsed with %s: %v", what, err)
		}
	}
	b.ok(errors.Join(b.Timing().Discard(from), b.Timing().Discard(to)))
}
