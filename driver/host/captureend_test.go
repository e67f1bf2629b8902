package host

import (
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestNoWorkIsLostWhileACaptureEnds: a capture ends between the check that it is active and the addition of work to it.
// The test takes the steps one by one.
func TestNoWorkIsLostWhileACaptureEnds(t *testing.T) {
	d := open(t)
	streams := newStreams(t, d, 2)
	origin, s := streams[0].(*stream), streams[1].(*stream)
	testkit.Must(t, d.Graphs().Begin(origin))
	m, err := origin.Mark()
	testkit.Must(t, err)
	testkit.Must(t, s.WaitFor(origin, m))
	done := false
	work := func() error { done = true; return nil }
	s.mu.Lock()
	if !s.capturing() {
		t.Fatal("the stream was not drawn in")
	}
	c := s.capture
	c.stop()
	if s.recordTask(task{call: "work", do: work}) {
		t.Error("work was added to a capture that has ended")
	}
	s.mu.Unlock()
	_, err = s.add("work", work)
	testkit.Must(t, err)
	testkit.Must(t, s.Sync(context.Background()))
	if !done {
		t.Error("the work was not done")
	}
	// A wait for a mark of it is one for what its stream had to do before.
	testkit.Must(t, s.join(c, c.members[0].branch, origin, m.Tick))
	testkit.Must(t, origin.Sync(context.Background()))
	testkit.Must(t, s.Sync(context.Background()))
	if in, err := d.Graphs().Capturing(s); in || err != nil {
		t.Errorf("the stream is part of a capture that has ended: %v, %v", in, err)
	}
}
