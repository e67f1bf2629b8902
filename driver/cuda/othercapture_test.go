//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// Captures of other code, on streams and threads that this driver does not know. CUDA breaks them when any thread makes
// certain calls, unless that thread is in the relaxed mode.

// An otherCapture is a capture that other code has begun.
type otherCapture struct {
	lib *cu.Lib
	ctx cu.Context
	s   cu.Stream
}

// beginOther begins one on the calling thread, which must be the one that ends it.
func beginOther(t testing.TB, lib *cu.Lib, mode cu.CaptureMode) *otherCapture {
	t.Helper()
	c := &otherCapture{lib: lib}
	var r cu.Result
	c.must(t, "cuInit", lib.Init())
	c.ctx, r = lib.PrimaryCtxRetain(0)
	c.must(t, "retain", r)
	c.must(t, "push", lib.CtxPushCurrent(c.ctx))
	c.s, r = lib.StreamCreate(cu.StreamNonBlocking, 0)
	c.must(t, "make a stream", r)
	c.must(t, "begin", lib.StreamBeginCapture(c.s, mode))
	return c
}

func (c *otherCapture) must(t testing.TB, what string, r cu.Result) {
	t.Helper()
	if r != cu.Success {
		t.Errorf("other code, %s: %s", what, c.lib.Describe(r))
	}
}

// end ends the capture, which must have come through.
func (c *otherCapture) end(t testing.TB) {
	t.Helper()
	g, r := c.lib.StreamEndCapture(c.s)
	c.must(t, "end the capture", r)
	if g != 0 {
		c.must(t, "destroy the graph", c.lib.GraphDestroy(g))
	}
	c.must(t, "destroy the stream", c.lib.StreamDestroy(c.s))
	_, r = c.lib.CtxPopCurrent()
	c.must(t, "pop", r)
	c.must(t, "release", c.lib.PrimaryCtxRelease(0))
}

// duringCapture calls f while another thread captures in the global mode.
func duringCapture(t testing.TB, lib *cu.Lib, f func()) {
	begun, over, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c := beginOther(t, lib, cu.CaptureGlobal)
		close(begun)
		<-over
		c.end(t)
	}()
	<-begun
	f()
	close(over)
	<-ended
}

// TestCapturesOfOthersComeThrough everything that this driver does.
func TestCapturesOfOthersComeThrough(t *testing.T) {
	for name, mode := range map[string]cu.CaptureMode{ // of the thread that calls
		"global": cu.CaptureGlobal, "thread-local": cu.CaptureThreadLocal, "relaxed": cu.CaptureRelaxed,
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, tourOptions)
			duringCapture(t, cu.New(m.Lookup), func() {
				o := &tour{second: "1", long: 2*workerBytes + 5, mode: mode}
				for _, what := range tourOn(driverOf(m), o, nil) {
					t.Error(what)
				}
				for _, err := range o.failed {
					t.Error(err)
				}
			})
		})
	}
}

// TestWithoutModesOfCaptures: drivers that lack the function work as they did.
func TestWithoutModesOfCaptures(t *testing.T) {
	o := tourOptions
	o.Missing = []string{"cuThreadExchangeStreamCaptureMode"}
	m := newMachine(t, o)
	way := &tour{second: "1"}
	for _, what := range tourOn(driverOf(m), way, nil) {
		t.Error(what)
	}
	for _, err := range way.failed {
		t.Error(err)
	}
}

// TestOnTheThreadOfACapture: other code captures, and makes calls here from the same thread.
func TestOnTheThreadOfACapture(t *testing.T) {
	for _, mode := range []cu.CaptureMode{cu.CaptureGlobal, cu.CaptureThreadLocal, cu.CaptureRelaxed} {
		r := newRig(t, fakecuda.Options{})
		runtime.LockOSThread()
		s := r.stream()
		c := beginOther(t, r.d.lib, mode)
		p := r.alloc(64)
		r.ok(s.Fill(p, 1, 64))
		mark := markOf(t, s)
		reached(t, s, mark)
		syncOf(t, s)
		r.ok(r.stream().Close())
		r.ok(r.d.Free(p))
		c.end(t)
		runtime.UnlockOSThread()
		r.ok(r.d.Close())
		r.m.Close()
	}
}

// TestPagesAreRemappedDuringCapturesOfOthers: allocators work on while PyTorch, say, captures.
func TestPagesAreRemappedDuringCapturesOfOthers(t *testing.T) {
	r := newRig(t, fakecuda.Options{Granularity: 64 << 10, Pace: fakecuda.Background})
	const limit = 64 * 64 << 10
	a, err := paged.New(r.d, paged.Config{Limit: limit, NoAliases: true})
	r.ok(err)
	s, side := r.stream(), r.stream()
	remap := func() {
		before := r.m.Calls("cuMemUnmap")
		for round := range int64(20) { // each round wants all memory, at other addresses
			var blocks []mem.Block
			for size := (round%5 + 1) * 96 << 10; ; {
				b, err := a.Alloc(s, size)
				if err != nil {
					break
				}
				r.ok(s.Fill(b.Ptr, byte(round), size))
				blocks = append(blocks, b)
			}
			for _, b := range blocks {
				a.Free(b, side)
			}
			mark := markOf(t, s)
			reached(t, s, mark)
			r.ok(side.WaitFor(s, mark))
			r.ok(side.Sync(context.Background()))
		}
		r.ok(a.EmptyCache())
		if r.m.Calls("cuMemUnmap") == before {
			t.Error("no page was unmapped: nothing was shown")
		}
		if err := a.Check(); err != nil {
			t.Error(err)
		}
	}
	duringCapture(t, r.d.lib, remap)
	r.ok(a.Close())
}

// TestPrivatePoolsGetPagesInCaptures: memory of graphs is created, mapped and taken from the default pool while a stream
// captures, here or in other code, and no call of that ends a capture.
func TestPrivatePoolsGetPagesInCaptures(t *testing.T) {
	const granule = 64 << 10
	own := func(r *rig, s *stream, work func()) {
		r.ok(r.d.Graphs().Begin(s))
		work()
		g, err := r.d.Graphs().End(s)
		r.ok(err)
		r.ok(g.Launch(s))
		r.ok(g.Close())
	}
	others := func(r *rig, _ *stream, work func()) { duringCapture(t, r.d.lib, work) }
	for name, during := range map[string]func(*rig, *stream, func()){"own": own, "others": others} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fakecuda.Options{Granularity: granule, Pace: fakecuda.Background})
			a, err := paged.New(r.d, paged.Config{Limit: 64 * granule})
			r.ok(err)
			s, side := r.stream(), r.stream()
			for n := range int64(6) { // idle memory of the default pool, which is all there is
				b, err := a.Alloc(side, (n+5)*granule)
				r.ok(err)
				r.ok(side.Fill(b.Ptr, 1, b.Size))
				defer a.Free(b)
			}
			b, err := a.Alloc(side, 19*granule)
			r.ok(err)
			r.ok(side.Fill(b.Ptr, 1, b.Size))
			a.Free(b)
			id := mem.PoolID{1, 0}
			a.BeginAllocateToPool(id, func(x driver.Stream) bool { return x == driver.Stream(s) })
			made := r.m.Calls("cuMemCreate")
			during(r, s, func() {
				var last mem.Block
				for n := range int64(8) {
					b, err := a.Alloc(s, (n+2)*granule+512)
					r.ok(err)
					r.ok(s.Fill(b.Ptr, byte(n), b.Size))
					if last != (mem.Block{}) {
						a.Free(last)
					}
					last = b
				}
				a.Free(last)
			})
			if r.m.Calls("cuMemCreate") == made {
				t.Error("no page was created: nothing was shown")
			}
			a.EndAllocateToPool(id)
			r.ok(s.Sync(context.Background()))
			a.ReleasePool(id)
			r.ok(a.EmptyCache())
			r.ok(a.Check())
			if n := len(a.ReservedByPrivatePools()); n > 0 {
				t.Errorf("%d pools at the end", n)
			}
		})
	}
}
