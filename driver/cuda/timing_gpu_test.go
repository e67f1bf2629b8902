//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestGPUTiming(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := drivertest.NewStream(t, d)
	const size = 1 << 30
	p := drivertest.Alloc(t, d, size)
	testkit.Must(t, s.Fill(p, 0, size))
	testkit.Must(t, s.Sync(context.Background()))
	clock := d.Timing()
	began := time.Now()
	from, err := clock.Stamp(s)
	testkit.Must(t, err)
	for range 100 {
		testkit.Must(t, s.Fill(p, 1, size))
	}
	to, err := clock.Stamp(s)
	testkit.Must(t, err)
	if _, err := clock.Elapsed(from, to); !errors.Is(err, driver.ErrNotReady) {
		t.Errorf("Elapsed before the work is done: %v, want ErrNotReady", err)
	}
	testkit.Must(t, s.Sync(context.Background()))
	wall := time.Since(began)
	if yes, err := s.Reached(to.Mark); !yes || err != nil {
		t.Errorf("the mark of a stamp after Sync: reached %v, %v", yes, err)
	}
	took, err := clock.Elapsed(from, to)
	testkit.Must(t, err)
	back, err := clock.Elapsed(to, from)
	testkit.Must(t, err)
	// 100 GiB cannot be written in less than a millisecond, nor can it take longer than the host saw.
	if took < time.Millisecond || took > wall || back != -took {
		t.Errorf("elapsed %v and back %v; the host saw %v", took, back, wall)
	}
	testkit.Must(t, errors.Join(clock.Discard(from), clock.Discard(to)))
	early, err := clock.Stamp(s)
	testkit.Must(t, err)
	testkit.Must(t, clock.Discard(early)) // before it is reached
	testkit.Must(t, d.Free(p))
}
