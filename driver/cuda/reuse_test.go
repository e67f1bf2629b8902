//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// TestReuseInACapture is the caching allocator over this driver: a block that two streams used is allocated again in
// the same capture once they have joined, and not before.
func TestReuseInACapture(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
	cfg := caching.Default()
	cfg.GraphCaptureRecordStreamReuse = true
	a, err := caching.New(r.d, cfg)
	r.ok(err)
	main, side, graphs, id := r.stream(), r.stream(), r.d.Graphs(), mem.PoolID{1, 0}
	take := func() mem.Block {
		t.Helper()
		b, err := a.Alloc(main, 512)
		r.ok(err)
		return b
	}
	ofSide, ofMain := take(), take()
	a.BeginAllocateToPool(id, func(s driver.Stream) bool { return s == driver.Stream(main) })
	r.ok(graphs.Begin(main))
	used := take()
	r.ok(main.Fill(used.Ptr, 1, 512))
	r.ok(side.WaitFor(main, markOf(t, main)))
	r.ok(side.Copy(ofSide.Ptr, used.Ptr, 512))
	a.Free(used, side)
	early := take()
	r.ok(main.Fill(early.Ptr, 2, 512))
	r.ok(main.WaitFor(side, markOf(t, side)))
	late := take()
	r.ok(main.Fill(late.Ptr, 3, 512))
	r.ok(main.Copy(ofMain.Ptr, late.Ptr, 512))
	if early.Ptr == used.Ptr || late.Ptr != used.Ptr {
		t.Errorf("the block at %#x was used again at %#x before the join, and at %#x after", used.Ptr, early.Ptr, late.Ptr)
	}
	g, err := graphs.End(main)
	r.ok(err)
	a.EndAllocateToPool(id)
	for range 3 {
		r.ok(main.Fill(ofSide.Ptr, 0, 512))
		r.ok(main.Fill(ofMain.Ptr, 0, 512))
		r.ok(g.Launch(main))
		r.holds(main, ofSide.Ptr, bytes.Repeat([]byte{1}, 512))
		r.holds(main, ofMain.Ptr, bytes.Repeat([]byte{3}, 512))
	}
	r.ok(g.Close())
	for _, b := range []mem.Block{ofSide, ofMain, early, late} {
		a.Free(b)
	}
	a.ReleasePool(id)
	r.ok(a.EmptyCache())
	r.ok(a.Close())
}
