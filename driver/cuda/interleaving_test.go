//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// Calls that come between the steps of others. The steps are taken one by one where the machine cannot be stopped
// there.

// TestUnregisterWaitsForAStreamThatCloses: the stream takes no more work, and what it has still uses the memory.
func TestUnregisterWaitsForAStreamThatCloses(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
	s, p := r.stream(), r.alloc(4096)
	b := make([]byte, 4096)
	r.ok(r.d.Pinned().Register(b))
	handle := uint64(s.handle)
	r.m.Hold(handle)
	r.ok(r.d.Pinned().CopyInAsync(s, p, b))
	closed, freed := make(chan error, 1), make(chan error, 1)
	go func() { closed <- s.Close() }()
	untilClosing(s)
	go func() { freed <- r.d.Pinned().Unregister(b) }()
	if eventually(func() bool { runtime.Gosched(); return len(freed) > 0 }) {
		t.Error("Unregister came back before the copy was done")
	}
	r.m.Release(handle)
	r.ok(<-closed)
	r.ok(<-freed)
	r.ok(r.d.Free(p))
}

// TestAWaitEndsThoughItsEventIsGone: the mark was taken in a capture that has ended, and another caller saw the mark
// before it reached while the wait began.
func TestAWaitEndsThoughItsEventIsGone(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, p := r.stream(), r.alloc(64)
	r.m.Hold(uint64(s.handle))
	r.ok(s.Fill(p, 1, 64))
	before := markOf(t, s)
	r.ok(r.d.Graphs().Begin(s))
	r.ok(s.Fill(p, 2, 64))
	in := markOf(t, s)
	g, err := r.d.Graphs().End(s)
	r.ok(err)
	r.m.Release(uint64(s.handle))
	if !eventually(func() bool { return reached(t, s, before) }) {
		t.Fatal("the mark before the capture is not reached")
	}
	r.ok(r.d.enter("test"))
	r.ok(s.sleep("test", in.Tick))
	r.d.leave()
	if in.Tick > s.marks.passed.Load() {
		t.Error("the wait has ended, and its tick has not passed: a waiter would wait for ever")
	}
	r.ok(g.Close())
	r.ok(r.d.Free(p))
}

// untilClosing returns when Close of s has begun.
func untilClosing(s *stream) {
	for begun := false; !begun; runtime.Gosched() {
		s.mu.Lock()
		begun = s.closing
		s.mu.Unlock()
	}
}

// foreignCapture is a stream that other code made and captures on, and ours for it.
func foreignCapture(r *rig) (theirs, ours *stream) {
	r.Helper()
	theirs = r.stream()
	s, err := r.d.NewStream(driver.StreamOptions{Foreign: uintptr(theirs.handle)})
	r.ok(err)
	return theirs, s.(*stream)
}

// queueElsewhere queues work on a stream as other code does: the driver is not told.
func (r *rig) queueElsewhere(s *stream, p driver.Pointer) {
	r.Helper()
	r.inContext(func() cu.Result { return r.d.lib.MemsetD8Async(uint64(p), 1, 64, s.handle) })
}

// TestWaitForOnAThreadWithoutAContext: whether a capture of other code goes on can only be asked with the context.
func TestWaitForOnAThreadWithoutAContext(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	theirs, ours := foreignCapture(r)
	r.ok(r.d.Graphs().Begin(theirs))
	mark := markOf(t, ours)
	side := r.stream()
	runtime.LockOSThread()
	r.d.lib.CtxSetCurrent(0)
	err := side.WaitFor(ours, mark)
	runtime.UnlockOSThread()
	r.ok(err)
	if reached(t, ours, mark) {
		t.Error("a mark in a capture that goes on is reached")
	}
	r.ok(side.WaitFor(ours, mark))
	r.ok(r.d.Graphs().(graphs).endUnjoined(t, theirs))
	r.ok(side.Close())
	r.ok(ours.Close())
}

// endUnjoined ends a capture that drew another stream in: libcuda makes no graph of it.
func (g graphs) endUnjoined(t *testing.T, s *stream) error {
	t.Helper()
	made, err := g.End(s)
	if made != nil {
		return made.Close()
	}
	wantErr(t, "End", err, driver.ErrCapturing)
	return nil
}

// TestAForeignCaptureHidesNoWork: other code queued work before it captured, behind no event of ours.
func TestAForeignCaptureHidesNoWork(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	theirs, ours := foreignCapture(r)
	p := r.alloc(64)
	r.m.Hold(uint64(theirs.handle))
	r.ok(theirs.Fill(p, 1, 64))
	r.ok(r.d.Graphs().Begin(theirs))
	mark := markOf(t, ours)
	g, err := r.d.Graphs().End(theirs)
	r.ok(err)
	if reached(t, ours, mark) {
		t.Error("a mark is reached, and work that was queued before it is not done")
	}
	r.m.Release(uint64(theirs.handle))
	r.ok(ours.Sync(context.Background()))
	if !reached(t, ours, mark) {
		t.Error("the mark is not reached after Sync")
	}
	r.ok(g.Close())
	r.ok(ours.Close())
	r.ok(r.d.Free(p))
}

// TestAForeignStreamDrawnInHidesNoWork is the same for a capture of ours.
func TestAForeignStreamDrawnInHidesNoWork(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	theirs, ours := foreignCapture(r)
	origin, p := r.stream(), r.alloc(64)
	r.m.Hold(uint64(theirs.handle))
	r.ok(theirs.Fill(p, 1, 64))
	r.ok(r.d.Graphs().Begin(origin))
	r.ok(ours.WaitFor(origin, markOf(t, origin)))
	r.ok(ours.Fill(p, 2, 64))
	mark := markOf(t, ours)
	r.ok(origin.WaitFor(ours, mark))
	g, err := r.d.Graphs().End(origin)
	r.ok(err)
	if reached(t, ours, mark) {
		t.Error("a mark is reached, and work that was queued before it is not done")
	}
	r.m.Release(uint64(theirs.handle))
	r.ok(ours.Sync(context.Background()))
	r.ok(g.Close())
	r.ok(ours.Close())
	r.ok(r.d.Free(p))
}

// TestAStreamIsNotDrawnIntoACaptureThatHasEnded: it would be part of it for ever.
func TestAStreamIsNotDrawnIntoACaptureThatHasEnded(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	origin, s := r.stream(), r.stream()
	r.ok(r.d.Graphs().Begin(origin))
	c := origin.capture
	g, err := r.d.Graphs().End(origin)
	r.ok(err)
	r.ok(s.begin("test"))
	c.join(s, 0)
	s.end()
	r.ok(s.Sync(context.Background()))
	r.ok(g.Close())
}

// TestWorkWhileACaptureEnds is not captured, though the stream has not been told yet: its mark is an ordinary one.
func TestWorkWhileACaptureEnds(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	origin, s, p := r.stream(), r.stream(), r.alloc(64)
	r.m.Hold(uint64(s.handle))
	r.ok(r.d.Graphs().Begin(origin))
	r.ok(s.WaitFor(origin, markOf(t, origin)))
	r.ok(origin.WaitFor(s, markOf(t, s)))
	c := origin.capture
	r.ok(s.begin("test"))
	var wg sync.WaitGroup
	wg.Go(func() {
		g, err := r.d.Graphs().End(origin)
		if err == nil {
			err = g.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	for !c.ended.Load() { // End waits for s then
		runtime.Gosched()
	}
	if res := r.d.lib.MemsetD8Async(uint64(p), 1, 64, s.handle); res != 0 {
		t.Error(r.d.lib.Describe(res))
	}
	s.queued()
	mark, err := s.mark("test")
	s.end()
	r.ok(err)
	wg.Wait()
	if reached(t, s, mark) {
		t.Error("a mark is reached before its work is done")
	}
	r.m.Release(uint64(s.handle))
	r.ok(s.Sync(context.Background()))
	r.ok(r.d.Free(p))
}

// TestAnEmptyStructureHasAnAddress: drivers that tell no sizes of parameters are handed it, and read there.
func TestAnEmptyStructureHasAnAddress(t *testing.T) {
	var a arguments
	a.place([]driver.Arg{driver.StructArg(nil)})
	if a.addresses[0] == nil {
		t.Error("no address")
	}
}

// TestAccessIsTakenBackAfterAllCopies: a device that was opened twice copies through the access that the other opening
// holds, and neither Disable nor Close of that one takes it from a copy.
func TestAccessIsTakenBackAfterAllCopies(t *testing.T) {
	for name, end := range map[string]func(d, other *device) error{
		"Disable": func(d, other *device) error { return d.Peers().Disable(other) },
		"Close":   func(d, _ *device) error { return d.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
			again, other := openOn(t, r.m, "0"), openOn(t, r.m, "1")
			s, p, q := newTestStream(t, again), alloc(t, again, 64), alloc(t, other, 64)
			r.ok(r.d.Peers().Enable(other))
			r.m.Hold(uint64(s.handle))
			r.ok(again.Peers().CopyPeer(s, p, again, q, other, 64))
			ended := make(chan error, 1)
			go func() { ended <- end(r.d, other) }()
			if eventually(func() bool { runtime.Gosched(); return len(ended) > 0 }) {
				t.Error("access was taken back while a copy needs it")
			}
			r.m.Release(uint64(s.handle))
			r.ok(<-ended)
			syncOf(t, s)
			if n := r.m.Calls("cuCtxDisablePeerAccess"); n != 1 {
				t.Errorf("access was taken back %d times", n)
			}
		})
	}
}

// TestAStreamThatCannotBeDestroyed is destroyed with the device, and its number is not given again.
func TestAStreamThatCannotBeDestroyed(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	r.m.Fail("cuStreamDestroy_v2", 1, fakecuda.OutOfMemory)
	r.wantErr("Close", s.Close(), driver.ErrNoMemory)
	if other := r.stream(); other.id == s.id {
		t.Errorf("stream %d was made again, and there is one", s.id)
	}
	r.ok(r.d.Close()) // newMachine tells what is left
}

// TestCloseWhileOthersWaitFor: no event is left behind by calls that had begun.
func TestCloseWhileOthersWaitFor(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Pace: fakecuda.Background})
	for range 50 {
		d := openOn(t, m, "")
		a, p := newTestStream(t, d), alloc(t, d, 64)
		m.Hold(uint64(a.handle))
		var wg sync.WaitGroup
		for range 8 {
			b := newTestStream(t, d)
			testkit.Must(t, a.Fill(p, 1, 64))
			mark := markOf(t, a)
			wg.Go(func() {
				for {
					if err := b.WaitFor(a, mark); err != nil {
						wantErr(t, "WaitFor", err, driver.ErrClosed)
						return
					}
					runtime.Gosched()
				}
			})
		}
		m.Release(uint64(a.handle))
		testkit.Must(t, d.Close())
		wg.Wait()
	}
}

// TestAMarkWhileOtherCodeBeginsToCapture: the capture began after the mark had asked for it, so the event is part of it.
func TestAMarkWhileOtherCodeBeginsToCapture(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	theirs, ours := foreignCapture(r)
	r.ok(r.d.Graphs().Begin(theirs))
	r.ok(ours.begin("test"))
	e, err := r.d.event("test")
	r.ok(err)
	r.inContext(func() cu.Result { return r.d.lib.EventRecord(e.handle, ours.handle) })
	ours.marks.push(marked{e, nil})
	mark := driver.Mark{Stream: ours.id, Tick: ours.marks.last}
	ours.end()
	if reached(t, ours, mark) {
		t.Error("the mark is reached during the capture")
	}
	g, err := r.d.Graphs().End(theirs)
	r.ok(err)
	p := r.alloc(64)
	r.m.Hold(uint64(theirs.handle))
	r.queueElsewhere(theirs, p)
	if reached(t, ours, mark) {
		t.Error("the mark is reached before the work that was queued when it was taken again")
	}
	r.m.Release(uint64(theirs.handle))
	if !eventually(func() bool { return reached(t, ours, mark) }) {
		t.Error("the mark is not reached after the capture")
	}
	r.ok(g.Close())
	r.ok(ours.Close())
	r.ok(r.d.Free(p))
}

// TestAnnouncedCaptures: from OthersBegin to OthersEnd libcuda hears nothing of streams of other code, since a thread
// may be capturing on them.
func TestAnnouncedCaptures(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	theirs, ours := foreignCapture(r)
	own, g, p := r.stream(), r.d.Graphs().(graphs), r.alloc(64)
	r.m.Hold(uint64(own.handle))
	r.ok(own.Fill(p, 1, 64))
	before, slow := markOf(t, ours), markOf(t, own)
	g.OthersBegin()
	g.OthersBegin()
	g.OthersEnd()
	start := len(r.m.Log())
	if captures, err := g.Capturing(ours); !captures || err != nil {
		t.Errorf("Capturing: %t, %v", captures, err)
	}
	_, err := ours.Mark()
	r.wantErr("Mark", err, driver.ErrCapturing)
	r.wantErr("WaitFor", ours.WaitFor(own, slow), driver.ErrCapturing)
	r.wantErr("Sync", ours.Sync(t.Context()), driver.ErrCapturing)
	if !eventually(func() bool { return reached(t, ours, before) }) {
		t.Error("a mark from before is not reached")
	}
	r.ok(own.WaitFor(ours, before))
	for _, c := range r.m.Log()[start:] {
		for _, a := range c.Args {
			if a == uint64(theirs.handle) {
				t.Errorf("%s was called for the stream", c.Symbol)
			}
		}
	}
	g.OthersEnd()
	if captures, err := g.Capturing(ours); captures || err != nil {
		t.Errorf("Capturing afterwards: %t, %v", captures, err)
	}
	after := markOf(t, ours)
	if !eventually(func() bool { return reached(t, ours, after) }) {
		t.Error("a mark from afterwards is not reached")
	}
	r.m.Release(uint64(own.handle))
	r.ok(ours.Close())
	r.ok(r.d.Free(p))
}
