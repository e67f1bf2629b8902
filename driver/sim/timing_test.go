package sim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

func (b *bench) stamp(s driver.Stream) driver.Stamp {
	b.t.Helper()
	st, err := b.Timing().Stamp(s)
	b.ok(err)
	return st
}

// The difference of two stamps is the duration of the calls between them, to the nanosecond.
func TestElapsedIsExact(t *testing.T) {
	b := newBench(t, Options{}, 2)
	m := b.model
	first := b.stamp(b.s[1])
	b.ok(b.s[1].Fill(b.p, 1, 1<<20))
	b.ok(b.s[1].Copy(b.p, b.p+4096, 4096))
	second := b.stamp(b.s[1])
	elapsed := func(from, to driver.Stamp) time.Duration {
		t.Helper()
		got, err := b.Timing().Elapsed(from, to)
		b.ok(err)
		return got
	}
	want := m.Calls[CallFill].At(1<<20) + m.Calls[CallCopy].At(4096) + m.Calls[CallStamp].At(0)
	if got := elapsed(first, second); got != want || want == 0 {
		t.Errorf("%v, want %v", got, want)
	}
	if got := elapsed(second, first); got != -want {
		t.Errorf("backwards %v, want %v", got, -want)
	}
	if got := elapsed(first, first); got != 0 {
		t.Errorf("nothing took %v", got)
	}
}

// The stamp of a held stream is of the time at which its turn came.
func TestStampsOfHeldStreams(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 2)
	first := b.stamp(b.s[1])
	b.ok(b.s[1].Fill(b.p, 1, 64))
	second := b.stamp(b.s[1])
	if _, err := b.Timing().Elapsed(first, second); !errors.Is(err, driver.ErrNotReady) {
		t.Errorf("before the first: %v", err)
	}
	b.Advance(1, 1)
	begun := b.Now()
	if _, err := b.Timing().Elapsed(first, second); !errors.Is(err, driver.ErrNotReady) {
		t.Errorf("before the second: %v", err)
	}
	_, _, err := b.Available()
	b.ok(err)
	b.race(b.write(b.s[0], 0)) // it costs, though it is refused
	over := b.Now()
	b.Complete(second.Mark)
	if got, err := b.Timing().Elapsed(first, second); err != nil || got != over-begun {
		t.Errorf("%v, %v; want %v", got, err, over-begun)
	}
	b.ok(b.write(b.s[0], 0)) // the host knows now
}

func TestStampsAreOwned(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 2)
	kept, early := b.stamp(b.s[1]), b.stamp(b.s[1])
	if got := b.Leaks().Stamps; !slices.Equal(got, []uint64{kept.ID, early.ID}) {
		t.Errorf("leaks %v", got)
	}
	b.ok(b.Timing().Discard(early)) // not reached yet
	b.ok(b.s[1].Sync(context.Background()))
	other := kept
	other.Mark.Tick++
	for name, f := range map[string]func() error{
		"Discard twice":         func() error { return b.Timing().Discard(early) },
		"Elapsed to discarded":  func() error { _, err := b.Timing().Elapsed(kept, early); return err },
		"Elapsed from another":  func() error { _, err := b.Timing().Elapsed(other, kept); return err },
		"Discard of no stamp":   func() error { return b.Timing().Discard(driver.Stamp{}) },
		"Discard of a stranger": func() error { return b.Timing().Discard(driver.Stamp{ID: 99}) },
	} {
		if err := f(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.ok(b.s[1].Close())
	if _, err := b.Timing().Elapsed(kept, kept); err != nil {
		t.Errorf("after its stream's end: %v", err)
	}
	b.ok(b.Timing().Discard(kept))
	if got := b.Leaks().Stamps; got != nil {
		t.Errorf("leaks %v", got)
	}
	b.ok(b.Close())
	if _, err := b.Timing().Stamp(b.s[0]); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
