package trace_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A view dates from the moment at which the allocator reported its description, even if more events follow before the
// call returns.
func TestViewIsOfItsMoment(t *testing.T) {
	for _, reported := range []bool{true, false} {
		for _, limit := range []int{0, 5, 2} {
			r := trace.NewRecorder(trace.RecorderOptions{Max: limit, Context: trace.ContextAlloc})
			r.Observe(mem.Event{Action: mem.ActionSegmentAlloc, Ptr: 0x1000, Size: 0x1000})
			r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 0x1000, Size: 5})
			v := r.View(func() {
				if reported {
					r.Observe(mem.Event{Action: mem.ActionSnapshot, Size: 5})
				}
				r.Observe(mem.Event{Action: mem.ActionFreeRequested, Ptr: 0x1000, Size: 5})
				r.Observe(mem.Event{Action: mem.ActionFreeCompleted, Ptr: 0x1000, Size: 5})
				r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 0x1800, Size: 6})
			})
			if (v.Block(0x1000) != 0) != reported || (v.Block(0x1800) != 0) == reported || v.Segment(0x1000) == 0 || v.Segment(0x1800) != 0 {
				t.Errorf("reported %v: blocks %d, %d, segment %d", reported, v.Block(0x1000), v.Block(0x1800), v.Segment(0x1000))
			}
			var got []mem.Action
			for _, e := range v.Trace.Events {
				got = append(got, e.Action)
			}
			want := []mem.Action{mem.ActionSegmentAlloc, mem.ActionAlloc, mem.ActionFreeRequested, mem.ActionFreeCompleted, mem.ActionAlloc}
			if reported {
				want = want[:2]
			}
			if limit > 0 { // what was overwritten before that moment is gone
				want = want[max(0, len(want)-limit):]
			}
			if !slices.Equal(got, want) {
				t.Errorf("reported %v, limit %d: %v, want %v", reported, limit, got, want)
			}
		}
	}
}

// A source is an allocator that logs the calls of its Observe method.
type source struct {
	mem.Allocator
	calls []string
}

func (s *source) Observe(o mem.Observer) {
	s.calls = append(s.calls, map[bool]string{true: "none", false: "observer"}[o == nil])
}

// An allocator is observed while events are needed, and only then.
func TestListensWhileSomebodyWantsEvents(t *testing.T) {
	s := &source{Allocator: &refusing{}}
	r := trace.NewRecorder(trace.RecorderOptions{})
	expect := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(s.calls, want) {
			t.Errorf("%s: %q, want %q", when, s.calls, want)
		}
		s.calls = nil
	}
	r.Stop()
	r.Attach(s)
	expect("attached")
	r.Start()
	r.Start()
	expect("started", "observer")
	detach := r.AttachTracker(func(mem.Event) {})
	r.Stop()
	r.Stop()
	expect("stopped with a tracker")
	detach()
	expect("no tracker", "none")
	detach = r.AttachTracker(func(mem.Event) {})
	expect("a tracker", "observer")
	r.Start()
	detach()
	expect("recording")
	r.Detach()
	expect("detached", "none")
	r.Stop()
	r.Start()
	expect("on and off")
	r.Attach(s)
	expect("attached while it records", "observer")
}

// A refusing allocator has no room.
type refusing struct{ err error }

func (a *refusing) Alloc(driver.Stream, int64) (mem.Block, error) { return mem.Block{}, a.err }
func (a *refusing) Free(mem.Block, ...driver.Stream)              {}

// A request that found no room is an event of the layer's, with what the error says; another error is none.
func TestLayerReportsOutOfMemory(t *testing.T) {
	below := &refusing{}
	r := trace.NewRecorder(trace.RecorderOptions{})
	a := r.Attach(below)
	told := 0
	r.AttachOutOfMemoryObserver(func(int, int64, error) { told++ })
	s := drivertest.OpenSim(t, 0).DefaultStream()
	for _, err := range []error{
		fmt.Errorf("no room: %w", &mem.OutOfMemory{Requested: 1000, Rounded: 1024, Free: 77, Pool: mem.PoolID{0, 3}}),
		&mem.LimitError{Want: 1000}, errors.New("the device is gone"),
	} {
		below.err = err
		if _, got := a.Alloc(s, 1000); got != err {
			t.Errorf("error %v, want %v", got, err)
		}
	}
	tr := r.Trace()
	want := []trace.Event{{Action: mem.ActionOOM, Ptr: 77, Size: 1024, Pool: 1}, {Action: mem.ActionOOM, Size: 1000}}
	if !slices.Equal(tr.Events, want) || tr.Pools[1] != (mem.PoolID{0, 3}) || told != 2 {
		t.Errorf("%+v of pools %v, told %d times", tr.Events, tr.Pools, told)
	}
}
