//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// What Ordered means is in driver/drivertest. Here is what only this driver has: events, and streams that others use too.

func (r *rig) ordered(want bool, what string, other *stream, m driver.Mark, s *stream) {
	r.Helper()
	if got, err := r.d.Graphs().Ordered(other, m, s); got != want || err != nil {
		r.Errorf("%s: %v, %v; want %v", what, got, err, want)
	}
}

// drawIn makes s part of the capture that origin is part of, with work of its own, and origin wait for it.
func (r *rig) drawIn(origin, s *stream, p driver.Pointer) driver.Mark {
	r.Helper()
	r.ok(s.WaitFor(origin, markOf(r, origin)))
	r.ok(s.Fill(p, 1, 64))
	m := markOf(r, s)
	r.ok(origin.WaitFor(s, m))
	return m
}

func (r *rig) endCapture(origin *stream) {
	r.Helper()
	g, err := r.d.Graphs().End(origin)
	r.ok(err)
	r.ok(g.Close())
}

// TestOrderedAsksNothing of libcuda, if nothing was queued before the capture since the last wait.
func TestOrderedAsksNothing(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	a, b, p := r.stream(), r.stream(), r.alloc(64)
	for range 3 { // what a capture captured is not queued before the next
		r.ok(b.Fill(p, 1, 64))
		syncOf(t, b)
		r.ok(r.d.Graphs().Begin(a))
		m := r.drawIn(a, b, p)
		logged := len(r.m.Log())
		r.ordered(true, "a join", b, m, a)
		r.ordered(false, "a stream outside", b, m, r.d.zero)
		for _, c := range r.m.Log()[logged:] {
			if !contextCall[c.Symbol] {
				t.Errorf("asking calls %s", c.Symbol)
			}
		}
		r.endCapture(a)
	}
	r.ok(r.d.Free(p))
}

// TestCapturesRecordNoMoreThanTheirMarks: where nothing was queued since the last capture, the next records no event for it.
func TestCapturesRecordNoMoreThanTheirMarks(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	a, b, p := r.stream(), r.stream(), r.alloc(64)
	r.ok(a.Fill(p, 1, 64))
	for i := range 3 {
		before := r.m.Calls("cuEventRecord")
		r.ok(r.d.Graphs().Begin(a))
		r.drawIn(a, b, p)
		r.ok(a.Fill(p, 2, 64)) // captured, and behind no mark
		r.endCapture(a)
		want := 2
		if i == 0 {
			want++ // the work of before
		}
		if got := r.m.Calls("cuEventRecord") - before; got != want {
			t.Errorf("capture %d: %d events recorded, want %d", i, got, want)
		}
	}
	syncOf(t, a)
	r.ok(r.d.Free(p))
}

// TestOrderedAfterWorkFromBeforeTheCapture: a mark covers it, and a launch does not wait for it.
func TestOrderedAfterWorkFromBeforeTheCapture(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	a, b, c, p := r.stream(), r.stream(), r.stream(), r.alloc(64)
	for what, queue := range map[string]func(){
		"work":   func() { r.ok(b.Fill(p, 1, 64)) },
		"a wait": func() { r.ok(c.Fill(p, 1, 64)); r.ok(b.WaitFor(c, markOf(t, c))) },
		"work in a capture's end": func() {
			r.ok(r.d.Graphs().Begin(a))
			r.drawIn(a, b, p)
			r.workWhileACaptureEnds(a, b, p)
		},
	} {
		r.m.Hold(uint64(b.handle))
		queue()
		r.ok(r.d.Graphs().Begin(a))
		m := r.drawIn(a, b, p)
		r.ordered(false, what+" from before the capture goes on", b, m, a)
		r.m.Release(uint64(b.handle))
		if !eventually(func() bool {
			yes, err := r.d.Graphs().Ordered(b, m, a)
			r.ok(err)
			return yes
		}) {
			t.Errorf("%s from before the capture is done, and the join is none", what)
		}
		r.endCapture(a)
		syncOf(t, b)
	}
	// The stream that began has work of its own from before.
	r.m.Hold(uint64(a.handle))
	r.ok(a.Fill(p, 1, 64))
	r.ok(r.d.Graphs().Begin(a))
	r.ordered(false, "work before Begin", a, markOf(t, a), a)
	r.m.Release(uint64(a.handle))
	r.endCapture(a)
	syncOf(t, a)
	r.ok(r.d.Free(p))
}

// workWhileACaptureEnds queues work on s, which is part of the capture that a began, when libcuda has ended it and s has
// not been told.
func (r *rig) workWhileACaptureEnds(a, s *stream, p driver.Pointer) {
	r.Helper()
	c := a.capture
	r.ok(s.begin("test"))
	var ended error
	var wg sync.WaitGroup
	wg.Go(func() {
		g, err := r.d.Graphs().End(a)
		if err == nil {
			err = g.Close()
		}
		ended = err
	})
	for !c.ended.Load() {
		runtime.Gosched()
	}
	if res := r.d.lib.MemsetD8Async(uint64(p), 1, 64, s.handle); res != 0 {
		r.Error(r.d.lib.Describe(res))
	}
	s.queued()
	s.end()
	wg.Wait()
	r.ok(ended)
}

// TestOrderedKnowsOfMiscountedWork: it was queued while libcuda ended the capture, and before that was noted.
func TestOrderedKnowsOfMiscountedWork(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	a, b, p := r.stream(), r.stream(), r.alloc(64)
	r.ok(r.d.Graphs().Begin(a))
	r.drawIn(a, b, p)
	c := a.capture
	r.inContext(func() cu.Result {
		captured, res := r.d.lib.StreamEndCapture(a.handle)
		r.d.lib.GraphDestroy(captured)
		return res
	})
	r.m.Hold(uint64(b.handle))
	r.ok(b.Fill(p, 1, 64)) // ordinary work, counted as captured
	c.finish()
	r.ok(r.d.Graphs().Begin(a))
	m := r.drawIn(a, b, p)
	r.ordered(false, "work from before the capture goes on", b, m, a)
	r.m.Release(uint64(b.handle))
	r.endCapture(a)
	syncOf(t, b)
	r.ok(r.d.Free(p))
}

// TestOrderedOfStreamsThatOthersUse: what other code captures on a stream of ours is behind our marks.
func TestOrderedOfStreamsThatOthersUse(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	theirs, ours := foreignCapture(r)
	a, p := r.stream(), r.alloc(64)
	r.ok(r.d.Graphs().Begin(a))
	m := r.drawIn(a, ours, p)
	if !eventually(func() bool { // the event of before the capture
		yes, err := r.d.Graphs().Ordered(ours, m, a)
		r.ok(err)
		return yes
	}) {
		t.Error("a join of a shared stream is none")
	}
	r.queueElsewhere(theirs, p)
	last := markOf(t, ours)
	r.ordered(false, "work of others since the join", ours, last, a)
	r.ok(a.WaitFor(ours, last))
	r.ordered(true, "work of others, joined", ours, last, a)
	r.endCapture(a)

	// Of a capture that other code began nothing is known.
	r.ok(r.d.Graphs().Begin(theirs))
	m = markOf(t, ours)
	r.ordered(false, "a capture of other code", ours, m, ours)
	r.endCapture(theirs)
	r.ok(ours.Close())
	r.ok(r.d.Free(p))
}

// TestOrderedOfAStreamThatOthersDrewIn: what was queued on it before is behind no mark that could be asked about until the
// capture ends, though it joins the capture through us as well.
func TestOrderedOfAStreamThatOthersDrewIn(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	theirs, ours := foreignCapture(r)
	a, p := r.stream(), r.alloc(64)
	r.m.Hold(uint64(theirs.handle))
	r.ok(ours.Fill(p, 1, 64))
	r.ok(r.d.Graphs().Begin(a))
	var e cu.Event
	r.inContext(func() (res cu.Result) { e, res = r.d.lib.EventCreate(0); return res })
	r.inContext(func() cu.Result { return r.d.lib.EventRecord(e, a.handle) })
	r.inContext(func() cu.Result { return r.d.lib.StreamWaitEvent(theirs.handle, e) })
	m := r.drawIn(a, ours, p)
	r.ordered(false, "work from before the capture goes on", ours, m, a)
	r.m.Release(uint64(theirs.handle))
	r.endCapture(a)
	syncOf(t, ours)
	r.ordered(false, "after End", ours, m, a)
	r.inContext(func() cu.Result { return r.d.lib.EventDestroy(e) })
	r.ok(ours.Close())
	r.ok(r.d.Free(p))
}

// TestOrderedWhenLibcudaFails to say whether work from before the capture is done.
func TestOrderedWhenLibcudaFails(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	a, b, p := r.stream(), r.stream(), r.alloc(64)
	r.ok(b.Fill(p, 1, 64))
	r.ok(r.d.Graphs().Begin(a))
	m := r.drawIn(a, b, p)
	r.m.Fail("cuEventQuery", 1, fakecuda.OutOfMemory)
	yes, err := r.d.Graphs().Ordered(b, m, a)
	if yes {
		t.Error("ordered, and libcuda failed")
	}
	r.wantErr("Ordered", err, driver.ErrNoMemory)
	r.endCapture(a)
	syncOf(t, b)
	r.ok(r.d.Free(p))
}

// TestOrderedWhileOthersCapture: questions, waits, work and the end from several goroutines, on streams of one capture.
func TestOrderedWhileOthersCapture(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
	a, p := r.stream(), r.alloc(4096)
	for range 20 {
		r.ok(r.d.Graphs().Begin(a))
		r.ok(a.Fill(p, 1, 64))
		fork := markOf(t, a)
		var workers sync.WaitGroup
		errs := make([]error, 4)
		drawn := make([]*stream, len(errs))
		for i := range errs {
			drawn[i] = r.stream()
			workers.Go(func() {
				s, q := drawn[i], p+driver.Pointer(64*(i+1))
				errs[i] = s.WaitFor(a, fork)
				for range 20 {
					e := s.Fill(q, 2, 64)
					m, e1 := s.Mark()
					own, e2 := r.d.Graphs().Ordered(s, m, s)
					_, e3 := r.d.Graphs().Ordered(s, m, a)
					forked, e4 := r.d.Graphs().Ordered(a, fork, s)
					errs[i] = errors.Join(errs[i], e, e1, e2, e3, e4)
					if !own || !forked {
						errs[i] = errors.Join(errs[i], errors.New("its own work, or the fork, is not before it"))
					}
				}
			})
		}
		workers.Wait()
		r.ok(errors.Join(errs...))
		for _, s := range drawn {
			r.ok(a.WaitFor(s, markOf(t, s)))
		}
		r.endCapture(a)
		for _, s := range drawn {
			r.ok(s.Close())
		}
	}
	r.ok(r.d.Free(p))
}
