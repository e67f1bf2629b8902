//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// holdUntil keeps the work of s from being done until the function that it returns is called, or the test ends.
func (r *rig) holdUntil(s *stream) (release func()) {
	handle := uint64(s.handle)
	r.m.Hold(handle)
	release = sync.OnceFunc(func() { r.m.Release(handle) })
	r.Cleanup(release)
	return release
}

// TestOrderWhileAStreamCloses: its work is held, and so is work it was made to wait for.
func TestOrderWhileAStreamCloses(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
	s, before, after, captures, p := r.stream(), r.stream(), r.stream(), r.stream(), r.alloc(1<<20)
	releaseS, releaseBefore := r.holdUntil(s), r.holdUntil(before)
	r.ok(s.Fill(p, 1, 2))
	r.ok(before.Fill(p+1, 2, 1))
	first := markOf(t, s)

	closed := make(chan error, 2)
	for range cap(closed) {
		go func() { closed <- s.Close() }()
	}
	untilClosing(s)
	for what, call := range map[string]func() error{
		"Fill":          func() error { return s.Fill(p, 9, 1) },
		"Copy":          func() error { return s.Copy(p, p+1, 1) },
		"CopyIn":        func() error { return s.CopyIn(p, []byte{9}) },
		"CopyIn long":   func() error { return s.CopyIn(p, make([]byte, 1<<20)) },
		"CopyOut":       func() error { return s.CopyOut(make([]byte, 1), p) },
		"Launch":        func() error { return r.d.Kernels().Launch(s, driver.Kernel{Name: "late"}) },
		"Stamp":         func() error { _, err := r.d.Timing().Stamp(s); return err },
		"Begin":         func() error { return r.d.Graphs().Begin(s) },
		"relock, after": func() error { return s.relock("test") },
	} {
		r.wantErr(what+" while the stream is being closed", call(), driver.ErrClosed)
	}
	if m := markOf(t, s); m != first {
		t.Errorf("mark %+v without work after %+v", m, first)
	}
	if on, err := r.d.Graphs().Capturing(s); on || err != nil {
		t.Errorf("Capturing: %v, %v", on, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	r.wantErr("Sync with an ended context", s.Sync(ended), context.Canceled)

	r.ok(s.WaitFor(before, markOf(t, before)))
	last := markOf(t, s)
	r.ok(after.WaitFor(s, last))
	r.ok(after.Fill(p, 3, 2))
	r.ok(r.d.Graphs().Begin(captures))
	r.wantErr("WaitFor that would draw a closing stream into a capture", s.WaitFor(captures, markOf(t, captures)), driver.ErrCapturing)
	g, err := r.d.Graphs().End(captures)
	r.ok(err)
	r.ok(g.Close())

	releaseS()
	if !eventually(func() bool { return reached(t, s, first) }) {
		t.Fatal("the stream's own work is done, and its mark is not reached")
	}
	if reached(t, s, last) || len(closed) > 0 {
		t.Error("the stream was made to wait for work that is held, and it is closed or its mark reached")
	}
	releaseBefore()
	for range cap(closed) {
		r.ok(<-closed)
	}
	if !reached(t, s, last) {
		t.Error("a mark of a stream that was closed is not reached")
	}
	_, err = s.Mark()
	r.wantErr("Mark after Close", err, driver.ErrClosed)
	r.holds(after, p, []byte{3, 3})
	r.ok(r.d.Free(p))
}

// TestMarksWhileAForeignStreamCloses: work that others queue on it comes before the marks that are taken after it.
func TestMarksWhileAForeignStreamCloses(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
	theirs, p := r.stream(), r.alloc(64)
	s, err := r.d.NewStream(driver.StreamOptions{Foreign: uintptr(theirs.handle)})
	r.ok(err)
	ours := s.(*stream)
	for range 200 { // of which some find Close in libcuda
		release := r.holdUntil(theirs)
		r.ok(theirs.Fill(p, 1, 64))
		closed := make(chan error, 1)
		go func() { closed <- ours.Close() }()
		untilClosing(ours)
		for range 10 {
			runtime.Gosched()
		}
		r.ok(theirs.Fill(p, 2, 64))
		m := markOf(t, ours)
		release()
		r.ok(<-closed)
		if !reached(t, ours, m) {
			t.Error("a mark of a stream that was closed is not reached")
		}
		if got := r.m.Bytes(uint64(p), 1)[0]; got != 2 {
			t.Errorf("Close came back with a mark's work undone: byte %d", got)
		}
		s, err := r.d.NewStream(driver.StreamOptions{Foreign: uintptr(theirs.handle)})
		r.ok(err)
		ours = s.(*stream)
	}
	r.ok(r.d.Free(p))
}

// TestAStreamThatCannotBeWaitedForStaysOpen: that its work is done is not said before it is known.
func TestAStreamThatCannotBeWaitedForStaysOpen(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, p := r.stream(), r.alloc(64)
	r.m.Fail("cuStreamSynchronize", 1, fakecuda.OutOfMemory)
	r.wantErr("Close", s.Close(), driver.ErrNoMemory)
	r.ok(s.Fill(p, 1, 64))
	m := markOf(t, s)
	r.ok(s.Close())
	if !reached(t, s, m) {
		t.Error("a mark of a stream that was closed is not reached")
	}
	r.ok(r.d.Free(p))
}

// TestCloseKeepsTheHandleOfThoseWhoWait: libcuda may crash if a stream is destroyed while a thread waits for it.
func TestCloseKeepsTheHandleOfThoseWhoWait(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
	p := r.alloc(64)
	for range 100 {
		s := r.stream()
		release := r.holdUntil(s)
		r.ok(s.Fill(p, 1, 64))
		done := make(chan error, 9)
		go func() { done <- s.Close() }()
		for range 8 {
			go func() {
				err := s.Sync(context.Background())
				if errors.Is(err, driver.ErrClosed) { // it came too late
					err = nil
				}
				done <- err
			}()
		}
		untilClosing(s)
		runtime.Gosched()
		release()
		for range cap(done) {
			r.ok(<-done)
		}
		destroyed := false
		for _, c := range r.m.Log() {
			if len(c.Args) == 0 || c.Args[0] != uint64(s.handle) {
				continue
			}
			if destroyed && c.Symbol == "cuStreamSynchronize" {
				t.Fatal("a stream was destroyed while a call waited for it")
			}
			destroyed = destroyed || c.Symbol == "cuStreamDestroy_v2"
		}
	}
	r.ok(r.d.Free(p))
}
