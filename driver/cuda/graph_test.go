//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"context"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// TestGraph captures a fork and a join, ends it on another thread, and launches it again and again.
func TestGraph(t *testing.T) {
	r := newRig(t, fakecuda.Options{Harsh: true})
	a, b, graphs := r.stream(), r.stream(), r.d.Graphs()
	const n = 4096
	p := r.alloc(2 * n)
	q := p + n
	r.ok(a.Fill(p, 9, 2*n))
	before := markOf(t, a)

	r.ok(graphs.Begin(a))
	for !reached(t, a, before) { // taken before the capture, it can be asked about during it
	}
	fork := markOf(t, a) // nothing was captured yet
	r.ok(a.Fill(p, 1, n))
	fork2 := markOf(t, a)
	r.ok(b.WaitFor(a, fork2))
	for s, want := range map[driver.Stream]bool{a: true, b: true, r.d.DefaultStream(): false} {
		if got, err := graphs.Capturing(s); got != want || err != nil {
			t.Errorf("Capturing of stream %d: %v, %v", s.ID(), got, err)
		}
	}
	r.ok(b.Copy(q, p, n))
	join := markOf(t, b)
	r.ok(a.WaitFor(b, join))
	r.ok(a.Fill(p, 2, n))
	calls := len(r.m.Log())
	if reached(t, b, join) || reached(t, a, fork2) {
		t.Error("a mark of the capture is reached during it")
	}
	for _, c := range r.m.Log()[calls:] {
		if !contextCall[c.Symbol] {
			t.Errorf("asking about it calls %s", c.Symbol)
		}
	}
	r.wantErr("Sync", a.Sync(context.Background()), driver.ErrCapturing)
	r.wantErr("Sync of a stream that was drawn in", b.Sync(context.Background()), driver.ErrCapturing)
	r.wantErr("Begin twice", graphs.Begin(a), driver.ErrCapturing)
	_, err := graphs.End(b)
	r.wantErr("End of a stream that was drawn in", err, driver.ErrInvalid)

	var g driver.Graph
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		g, err = graphs.End(a)
		ended <- err
	}()
	r.ok(<-ended)
	if g.Nodes() != 3 {
		t.Errorf("%d nodes, want 3", g.Nodes())
	}
	for s, m := range map[*stream]driver.Mark{a: fork, b: join} {
		if !reached(t, s, m) {
			t.Errorf("a mark of the capture on stream %d is not reached after it", s.ID())
		}
	}
	r.holds(a, p, bytes.Repeat([]byte{9}, 2*n)) // capturing did nothing
	for range 3 {
		r.ok(a.Fill(p, 9, 2*n))
		r.ok(g.Launch(a))
		r.holds(a, p, append(bytes.Repeat([]byte{2}, n), bytes.Repeat([]byte{1}, n)...))
	}
	r.ok(b.Fill(p, 7, n)) // an ordinary stream again
	r.holds(b, p, bytes.Repeat([]byte{7}, n))

	// A launch in a capture is a node of the new graph.
	r.ok(graphs.Begin(b))
	r.ok(g.Launch(b))
	outer, err := graphs.End(b)
	r.ok(err)
	if outer.Nodes() != 1 {
		t.Errorf("%d nodes, want the graph", outer.Nodes())
	}
	r.ok(outer.Launch(b))
	r.ok(outer.Close()) // under way
	r.holds(b, p, append(bytes.Repeat([]byte{2}, n), bytes.Repeat([]byte{1}, n)...))
	r.ok(g.Close())
	r.ok(g.Close())
	r.wantErr("Launch after Close", g.Launch(a), driver.ErrClosed)
	_, err = graphs.End(a)
	r.wantErr("End without Begin", err, driver.ErrInvalid)
	r.wantErr("Begin on the default stream", graphs.Begin(r.d.DefaultStream()), driver.ErrCapturing, "default")
}

// TestCaptureThatFails leaves ordinary streams behind.
func TestCaptureThatFails(t *testing.T) {
	for what, spoil := range map[string]func(*rig, *stream, *stream){
		"a stream is not joined": func(r *rig, a, b *stream) {
			r.ok(a.Fill(r.alloc(64), 1, 64))
			m := markOf(r, a)
			r.ok(b.WaitFor(a, m))
			r.ok(b.Fill(r.alloc(64), 1, 64))
		},
		"libcuda ends it with an error": func(r *rig, a, _ *stream) {
			r.m.Fail("cuStreamEndCapture", 1, fakecuda.CaptureInvalidated) // and it goes on
		},
		"the graph cannot be made ready": func(r *rig, a, _ *stream) {
			r.m.Fail("cuGraphInstantiateWithFlags", 1, fakecuda.OutOfMemory)
		},
		"its nodes cannot be counted": func(r *rig, a, _ *stream) {
			r.m.Fail("cuGraphGetNodes", 1, fakecuda.OutOfMemory)
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, fakecuda.Options{})
			a, b := r.stream(), r.stream()
			p := r.alloc(4096)
			r.ok(r.d.Graphs().Begin(a))
			spoil(r, a, b)
			if g, err := r.d.Graphs().End(a); err == nil || g != nil {
				t.Fatalf("End: %v, %v", g, err)
			}
			for i, s := range []*stream{a, b} {
				if yes, err := r.d.Graphs().Capturing(s); yes || err != nil {
					t.Errorf("Capturing afterwards: %v, %v", yes, err)
				}
				r.ok(s.Fill(p, byte(i), 4096))
				r.holds(s, p, bytes.Repeat([]byte{byte(i)}, 4096))
			}
			r.ok(r.d.Graphs().Begin(a)) // and it can capture again
			r.ok(a.Fill(p, 5, 4096))
			g, err := r.d.Graphs().End(a)
			r.ok(err)
			r.ok(g.Launch(a))
			r.holds(a, p, bytes.Repeat([]byte{5}, 4096))
		})
	}
}

// TestCloseDuringACapture gives everything back.
func TestCloseDuringACapture(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	a, b := r.stream(), r.stream()
	r.ok(r.d.Graphs().Begin(a))
	r.ok(a.Fill(r.alloc(64), 1, 64))
	m := markOf(t, a)
	r.ok(b.WaitFor(a, m))
	r.ok(r.d.Close())
}

// TestBeginThatFails leaves the stream as it was.
func TestBeginThatFails(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, p := r.stream(), r.alloc(64)
	r.m.Fail("cuStreamBeginCapture_v2", 1, fakecuda.OutOfMemory)
	r.wantErr("Begin", r.d.Graphs().Begin(s), driver.ErrNoMemory)
	r.ok(s.Fill(p, 1, 64))
	r.holds(s, p, bytes.Repeat([]byte{1}, 64))
}

// TestGraphsAreGivenBack if the device is closed first; closing them afterwards is not an error.
func TestGraphsAreGivenBack(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	r.ok(r.d.Graphs().Begin(s))
	g, err := r.d.Graphs().End(s)
	r.ok(err)
	if g.Nodes() != 0 {
		t.Errorf("%d nodes of nothing", g.Nodes())
	}
	r.ok(g.Launch(s))
	r.ok(r.d.Close())
	r.ok(g.Close())
	r.wantErr("Launch after Close", g.Launch(s), driver.ErrClosed)
}
