package verify_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// recordHiddenPool records some requests, one of which to a private pool that the file does not name.
func recordHiddenPool(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	dev := drivertest.OpenSim(t, 1<<30)
	recorder := trace.NewRecorder(trace.RecorderOptions{})
	a, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	top := recorder.Attach(a)
	alloc := func(size int64) mem.Block {
		b, err := top.Alloc(dev.DefaultStream(), size)
		testkit.Must(t, err)
		return b
	}
	alloc(1 << 10)
	hidden := mem.NewPoolID()
	a.BeginAllocateToPool(hidden, func(driver.Stream) bool { return true })
	b := alloc(1 << 10)
	a.EndAllocateToPool(hidden)
	top.Free(b)
	a.ReleasePool(hidden)
	testkit.Must(t, a.EmptyCache())
	alloc(4 << 10)
	s, err := snapshot.Of(top, snapshot.Live{Recorder: recorder})
	testkit.Must(t, err)
	tr := s.Traces[0]
	tr.PoolsKnown, tr.Pools = false, nil // as in files of older versions
	for i := range tr.Events {
		tr.Events[i].Pool = 0
	}
	return s
}

// Of all attempts Verify reports the one that followed the recording furthest.
func TestVerifyReportsTheFurthestAttempt(t *testing.T) {
	s := recordHiddenPool(t)
	v, err := verify.Verify(s, verify.Options{})
	if err != nil || !v.Exact || len(v.Notes) == 0 {
		t.Fatalf("the recording itself: %v, %v, notes %q", v.Difference, err, v.Notes)
	}
	events := s.Traces[0].Events
	last := len(events) - 1
	for events[last].Action != mem.ActionAlloc {
		last--
	}
	events[last].Ptr += 512 // where no attempt places it
	v, err = verify.Verify(s, verify.Options{})
	if d := v.Difference; err != nil || d == nil || d.Entry != last {
		t.Errorf("entry %d is changed: %v, %v", last, d, err)
	}
}
