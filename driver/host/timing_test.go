package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestStampsAreReadWhenTheirTurnComes: in the bubble time passes only in kernels that sleep.
func TestStampsAreReadWhenTheirTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		streams, c := newStreams(t, d, 2), d.Timing()
		sleep := func(s driver.Stream, span time.Duration) {
			testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{Name: "sleep", Func: func(driver.Memory) error {
				time.Sleep(span)
				return nil
			}}))
		}
		stamp := func(s driver.Stream) driver.Stamp {
			st, err := c.Stamp(s)
			testkit.Must(t, err)
			return st
		}
		first := stamp(streams[0])
		testkit.Must(t, streams[0].Sync(context.Background()))
		sleep(streams[0], 3*time.Second)
		second := stamp(streams[0])
		sleep(streams[1], 2*time.Second)
		other := stamp(streams[1])
		for _, pair := range [][2]driver.Stamp{{first, second}, {second, first}} {
			if _, err := c.Elapsed(pair[0], pair[1]); !errors.Is(err, driver.ErrNotReady) {
				t.Errorf("Elapsed with a stamp behind work that goes on: %v, want ErrNotReady", err)
			}
		}
		for _, s := range streams {
			testkit.Must(t, s.Sync(context.Background()))
		}
		for what, c := range map[string]struct {
			from, to driver.Stamp
			want     time.Duration
		}{
			"over the sleep":  {first, second, 3 * time.Second},
			"backwards":       {second, first, -3 * time.Second},
			"between streams": {first, other, 2 * time.Second},
		} {
			if got, err := d.Timing().Elapsed(c.from, c.to); got != c.want || err != nil {
				t.Errorf("%s: %v, %v; want %v", what, got, err, c.want)
			}
		}
		for _, st := range []driver.Stamp{first, second, other} {
			testkit.Must(t, c.Discard(st))
		}
		if n := len(d.(*device).stamps.of); n != 0 {
			t.Errorf("%d stamps left after all were discarded", n)
		}
	})
}

// TestStampsOfAnotherDevice are refused, though they look alike.
func TestStampsOfAnotherDevice(t *testing.T) {
	a, b := open(t), open(t)
	own, err := a.Timing().Stamp(a.DefaultStream())
	testkit.Must(t, err)
	theirs, err := b.Timing().Stamp(b.DefaultStream())
	testkit.Must(t, err)
	if _, err := a.Timing().Elapsed(own, theirs); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Elapsed to another device's stamp: %v, want ErrInvalid", err)
	}
	if err := a.Timing().Discard(theirs); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Discard of another device's stamp: %v, want ErrInvalid", err)
	}
}
