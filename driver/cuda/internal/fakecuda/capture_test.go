//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"runtime"
	"testing"
)

func TestCaptureRecordsAndLaunches(t *testing.T) {
	r := newRig(t, Options{})
	r.current(0)
	a, b, p := r.stream(), r.stream(), r.alloc(16)
	fork, join := r.get("cuEventCreate", 0), r.get("cuEventCreate", 0)
	status, n := new(uint32), new(uint64)
	g, res := r.capture(a, captureGlobal, func() {
		r.ok(r.call("cuMemsetD8Async", p, 1, 16, a))
		r.ok(r.call("cuEventRecord", fork, a))
		r.ok(r.call("cuStreamWaitEvent", b, fork, 0))
		r.ok(r.call("cuMemcpyDtoDAsync_v2", p+8, p, 4, b))
		r.ok(r.call("cuMemsetD8Async", p, 2, 4, b))
		r.ok(r.call("cuStreamIsCapturing", b, status))
		r.ok(r.call("cuEventRecord", join, b))
		r.ok(r.call("cuStreamWaitEvent", a, join, 0))
		r.want(r.call("cuEventQuery", join), CapturedEvent)
	})
	r.ok(res)
	r.ok(r.call("cuGraphGetNodes", g, 0, n))
	if *status != captureActive || *n != 3 {
		t.Errorf("the stream that waited has status %d; %d nodes, want 3", *status, *n)
	}
	exec := r.get("cuGraphInstantiateWithFlags", g, 0)
	r.ok(r.call("cuGraphDestroy", g))
	r.ok(r.call("cuCtxSynchronize"))
	if got := string(r.Bytes(p, 4)); got == "\x02\x02\x02\x02" {
		t.Error("captured work was done")
	}
	for range 2 {
		r.ok(r.call("cuMemsetD8Async", p, 9, 16, a))
		r.ok(r.call("cuGraphLaunch", exec, a))
	}
	r.ok(r.call("cuGraphExecDestroy", exec))
	r.ok(r.call("cuStreamSynchronize", a))
	if got, want := string(r.Bytes(p, 12)), "\x02\x02\x02\x02\x01\x01\x01\x01\x01\x01\x01\x01"; got != want {
		t.Errorf("after the launches %q, want %q", got, want)
	}
}

// capture runs f while stream a captures and returns what ending gave, and the graph.
func (r *rig) capture(a uint64, mode int, f func()) (uint64, Result) {
	r.t.Helper()
	r.ok(r.call("cuStreamBeginCapture_v2", a, mode))
	f()
	g := new(uint64)
	res := r.call("cuStreamEndCapture", a, g)
	return *g, res
}

func TestCaptureEnds(t *testing.T) {
	r := newRig(t, Options{})
	r.current(0)
	a, b, p := r.stream(), r.stream(), r.alloc(16)
	blocking := r.get("cuStreamCreateWithPriority", 0, 0)
	e := r.get("cuEventCreate", 0)
	old := r.get("cuEventCreate", 0)
	r.ok(r.call("cuEventRecord", old, b))
	for _, x := range []struct {
		name   string
		stream uint64
		mode   int
		during func()
		want   Result
	}{
		{"empty", a, captureGlobal, func() {}, Success},
		{"synchronise", a, captureRelaxed, func() {
			r.want(r.call("cuStreamSynchronize", a), CaptureUnsupported)
		}, CaptureInvalidated},
		{"query of anything", a, captureGlobal, func() {
			r.want(r.call("cuEventQuery", old), CaptureUnsupported)
		}, CaptureInvalidated},
		{"query of anything, relaxed", a, captureRelaxed, func() {
			r.call("cuEventQuery", old)
		}, Success},
		{"alloc", a, captureThread, func() {
			r.want(r.call("cuMemAlloc_v2", new(uint64), 8), CaptureUnsupported)
		}, CaptureInvalidated},
		{"pages", a, captureGlobal, func() {
			r.want(r.call("cuMemCreate", new(uint64), 2<<20, prop(0, 0), 0), CaptureUnsupported)
		}, CaptureInvalidated},
		{"pages, and the thread is relaxed", a, captureGlobal, func() {
			mode := uint32(captureRelaxed)
			r.ok(r.call("cuThreadExchangeStreamCaptureMode", &mode))
			r.ok(r.call("cuMemRelease", r.get("cuMemCreate", 2<<20, prop(0, 0), 0)))
			r.ok(r.call("cuThreadExchangeStreamCaptureMode", &mode))
		}, Success},
		{"pageable copy", a, captureRelaxed, func() {
			r.want(r.call("cuMemcpyHtoDAsync_v2", p, make([]byte, 8), 8, a), CaptureUnsupported)
			r.want(r.call("cuMemsetD8Async", p, 1, 1, a), CaptureInvalidated)
		}, CaptureInvalidated},
		{"unjoined", a, captureGlobal, func() {
			r.ok(r.call("cuEventRecord", e, a))
			r.ok(r.call("cuStreamWaitEvent", b, e, 0))
			r.ok(r.call("cuMemsetD8Async", p, 1, 1, b))
		}, CaptureUnjoined},
		{"event from outside", a, captureGlobal, func() {
			r.want(r.call("cuStreamWaitEvent", a, old, 0), CaptureIsolation)
		}, CaptureInvalidated},
		{"legacy stream beside a blocking one", blocking, captureRelaxed, func() {
			r.want(r.call("cuMemsetD8Async", p, 1, 1, 0), CaptureImplicit)
		}, CaptureInvalidated},
		{"legacy stream beside another", a, captureRelaxed, func() {
			r.ok(r.call("cuMemsetD8Async", p, 1, 1, 0))
		}, Success},
		{"twice", a, captureGlobal, func() {
			r.want(r.call("cuStreamBeginCapture_v2", a, captureGlobal), IllegalState)
		}, Success},
	} {
		g, got := r.capture(x.stream, x.mode, x.during)
		if got != x.want || (got == Success) != (g != 0) {
			t.Errorf("%s: ended with %d (%s) and graph %#x, want %d", x.name, got, resultTexts[got][0], g, x.want)
		}
		r.ok(r.call("cuMemsetD8Async", p, 1, 1, x.stream)) // an ordinary stream again
		r.ok(r.call("cuCtxSynchronize"))
	}
	r.want(r.call("cuStreamBeginCapture_v2", 0, captureRelaxed), CaptureUnsupported)
	r.want(r.call("cuStreamEndCapture", a, new(uint64)), IllegalState)
}

func TestCaptureEndsOnItsThread(t *testing.T) {
	for _, mode := range []int{captureGlobal, captureRelaxed} {
		r := newRig(t, Options{})
		ctx := r.current(0)
		a := r.stream()
		r.ok(r.call("cuStreamBeginCapture_v2", a, mode))
		done := make(chan Result)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			r.call("cuCtxSetCurrent", ctx)
			done <- r.call("cuStreamEndCapture", a, new(uint64))
		}()
		want := CaptureWrongThread
		if mode == captureRelaxed {
			want = Success
		}
		r.want(<-done, want)
		r.Close()
	}
}
