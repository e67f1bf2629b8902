package planned_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// A closer counts its Close calls. The first one fails.
type closer struct {
	mem.Allocator
	n int
}

var errNotYet = errors.New("not yet")

func (c *closer) Close() error {
	if c.n++; c.n == 1 {
		return errNotYet
	}
	return nil
}

// After a Close that fails, the allocator still works, or the next Close finishes. The fallback is closed once.
func TestClose(t *testing.T) {
	inner := drivertest.OpenSim(t, 64<<20)
	dev := fault.Wrap(inner)
	under, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	fallback := &closer{Allocator: under}
	a, err := planned.New(dev, plan(t, rounds(3, 3), planned.Options{}), planned.Settings{Fallback: fallback})
	testkit.Must(t, err)
	b, err := a.Alloc(dev.DefaultStream(), 10_000)
	testkit.Must(t, err)
	if err := a.Close(); err == nil || fallback.n > 0 {
		t.Errorf("Close with a live block: %v", err)
	}
	a.Free(b)
	if err := a.Close(); !errors.Is(err, errNotYet) {
		t.Errorf("Close of the fallback: %v", err)
	}
	b, err = a.Alloc(dev.DefaultStream(), 10_001)
	testkit.Must(t, err)
	a.Free(b)
	if c := a.Counts(); c.Served != 2 {
		t.Errorf("%+v after a Close that failed", c)
	}
	dev.SetRules(fault.Rule{Kind: intercept.Free, Nth: 1})
	if err := a.Close(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Close with a device that does not free: %v", err)
	}
	if _, err := a.Alloc(dev.DefaultStream(), 10_002); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
	testkit.Must(t, a.Close())
	testkit.Must(t, a.Close())
	if free, total, err := inner.Available(); err != nil || free != total || fallback.n != 2 {
		t.Errorf("%d bytes of %d are free, %v; the fallback was closed %d times", free, total, err, fallback.n)
	}
}

// The peak includes blocks that are freed late, besides the live blocks of the plan.
func TestPeakWithLateBlocks(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, &planned.Plan{Streams: []planned.StreamPlan{{Loop: -1, Size: 4096, Slots: []planned.Slot{
		{Size: 1024, Offset: 0, End: 1}, {Size: 3072, Offset: 1024, End: 2},
	}}}})
	late, err := a.Alloc(dev.DefaultStream(), 1024)
	testkit.Must(t, err)
	b, err := a.Alloc(dev.DefaultStream(), 3072)
	testkit.Must(t, err)
	a.Free(b)
	a.Free(late)
	if s := a.Stats(); s.AllocatedBytes.All.Peak != 4096 || a.Counts().Served != 2 {
		t.Errorf("%+v, %+v", s.AllocatedBytes.All, a.Counts())
	}
}
