//go:build linux && (amd64 || arm64) && !nocuda

package nccl

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestAbortEndsTheWait(t *testing.T) {
	r := newRig(t, func(f *fakeNCCL) { f.hold[groupEnd] = true })
	done := make(chan error)
	go func() { done <- r.t.Queue(r.s, sum()) }()
	r.f.waitFor(groupEnd)
	cause := errors.New("rank 2 died")
	r.t.Abort(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("Queue ended with %v", err)
	}
	r.t.Abort(errors.New("another cause"))
	for what, err := range map[string]error{"Queue": r.t.Queue(r.s, sum()), "Err": r.t.Err()} {
		if !errors.Is(err, cause) || err.Error() != "nccl: aborted: rank 2 died" {
			t.Errorf("%s after Abort: %v", what, err)
		}
	}
	if err := r.t.Close(); err != nil {
		t.Errorf("Close after Abort: %v", err)
	}
	calls := r.f.calls()
	if n := len(calls); n != 4 || calls[3] != "ncclCommAbort" {
		t.Errorf("calls %q, want one group and one abort", calls)
	}
}

// TestAbortBehindWorkThatHangs: a launch that waits for room on a stream has its order, and Abort needs none of it.
func TestAbortBehindWorkThatHangs(t *testing.T) {
	r := newRig(t, nil)
	r.s.order.Lock()
	done := make(chan error)
	go func() { done <- r.t.Queue(r.s, sum()) }()
	cause := errors.New("rank 2 died")
	r.t.Abort(cause)
	r.s.order.Unlock()
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("Queue ended with %v", err)
	}
	r.wantCalls("ncclCommAbort")
}

func TestClose(t *testing.T) {
	r := newRig(t, nil)
	if handle, err := r.t.Handle(); err != nil || handle == 0 || handle != r.t.handle {
		t.Errorf("the handle is %d, %v", handle, err)
	}
	if err := r.t.Queue(r.s, sum()); err != nil {
		t.Fatal(err)
	}
	r.f.calls()
	for range 2 {
		if err := r.t.Close(); err != nil {
			t.Error(err)
		}
	}
	r.t.Abort(errors.New("too late"))
	r.wantCalls("ncclCommFinalize", "ncclCommDestroy")
	if err := r.t.Queue(r.s, sum()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Queue after Close: %v", err)
	}
	if _, err := r.t.Handle(); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Handle after Close: %v", err)
	}
	if err := r.t.Err(); err != nil {
		t.Errorf("Err after Close: %v", err)
	}
}

// TestAbortEndsClose: work that waits for a peer that is gone.
func TestAbortEndsClose(t *testing.T) {
	r := newRig(t, func(f *fakeNCCL) { f.hold[commFinalize] = true })
	done := make(chan error)
	go func() { done <- r.t.Close() }()
	r.f.waitFor(commFinalize)
	if err := r.t.Queue(r.s, sum()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Queue while closing: %v", err)
	}
	cause := errors.New("rank 2 died")
	r.t.Abort(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("Close ended with %v", err)
	}
	r.wantCalls("ncclCommFinalize", "ncclCommAbort")
}

// TestCloseOfWhatFailed: NCCL neither finalizes nor destroys a communicator that has failed.
func TestCloseOfWhatFailed(t *testing.T) {
	r := newRig(t, func(f *fakeNCCL) { f.results[groupEnd] = 6 })
	found := r.t.Queue(r.s, sum())
	r.f.calls()
	var e *Error
	if err := r.t.Close(); !errors.As(err, &e) || e.Code != 6 {
		t.Errorf("Close: %v, want what was found: %v", err, found)
	}
	r.wantCalls("ncclCommAbort")
}

// TestRaces: whatever comes when, no call names a communicator that was given up, none comes while NCCL wants none, and
// it is given up once. The fake notices.
func TestRaces(t *testing.T) {
	rng := testkit.Rand(t)
	cause := errors.New("a cause")
	for range 100 {
		f := newFake(t)
		f.polls = rng.IntN(4)
		d := newGPU(f)
		s := d.stream()
		c, err := f.library(t).connect(context.Background(), d, someID(1), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, end := range []func(){
			func() {
				for c.Queue(s, sum(), sum()) == nil {
				}
			},
			func() {
				for range 100 {
					if err := c.Err(); err != nil && !errors.Is(err, cause) {
						t.Error(err)
					}
				}
			},
			func() { c.Abort(cause) },
			func() { c.Abort(cause) },
			func() {
				if err := c.Close(); err != nil && !errors.Is(err, cause) {
					t.Error(err)
				}
			},
		} {
			yields := rng.IntN(50)
			wg.Go(func() {
				for range yields {
					f.set(func() {})
				}
				end()
			})
		}
		wg.Wait()
		for _, c := range f.comms {
			if c.given == 0 {
				t.Fatal("not given up")
			}
		}
		for _, m := range f.misuse {
			t.Fatal(m)
		}
		installed.Store(nil)
	}
}
