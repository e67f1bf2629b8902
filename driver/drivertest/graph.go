package drivertest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A captor is a device's graphs under test, with streams of its own and blocks of cells.
type capturer struct {
	driver.Graphs
	t       *testing.T
	d       driver.Device
	a, b, c driver.Stream
	p       driver.Pointer
}

const cells, cellSize = 6, 3000

// openCapturer returns nil if the device captures nothing. Its cells hold 1, 2, 3 and so on.
func openCapturer(t *testing.T, open openFunc) *capturer {
	d := open(t)
	g := d.Graphs()
	if g == nil {
		return nil
	}
	k := &capturer{Graphs: g, t: t, d: d}
	for _, s := range []*driver.Stream{&k.a, &k.b, &k.c} {
		*s = NewStream(t, d)
	}
	k.p = Alloc(t, d, cells*cellSize)
	k.reset()
	return k
}

// reset gives the cells their first contents, with nothing queued.
func (k *capturer) reset() {
	k.t.Helper()
	syncAll(k.t, k.a, k.b, k.c)
	for i := range cells {
		testkit.Must(k.t, k.a.Fill(k.cell(i), byte(i+1), cellSize))
	}
	testkit.Must(k.t, k.a.Sync(context.Background()))
}

func (k *capturer) cell(i int) driver.Pointer { return k.p + driver.Pointer(i*cellSize) }

// set queues the filling of a cell, and move the copying of one to another.
func (k *capturer) set(s driver.Stream, i int, pattern byte) {
	k.t.Helper()
	testkit.Must(k.t, s.Fill(k.cell(i), pattern, cellSize))
}

func (k *capturer) move(s driver.Stream, to, from int) {
	k.t.Helper()
	testkit.Must(k.t, s.Copy(k.cell(to), k.cell(from), cellSize))
}

// fork makes s wait for what from has been asked so far.
func (k *capturer) fork(s, from driver.Stream) {
	k.t.Helper()
	testkit.Must(k.t, s.WaitFor(from, mustMark(k.t, from)))
}

// holds waits for s and fails the test unless the cells hold the patterns.
func (k *capturer) holds(s driver.Stream, patterns ...byte) {
	k.t.Helper()
	for i, pattern := range patterns {
		wantBytes(k.t, s, k.cell(i), bytes.Repeat([]byte{pattern}, cellSize))
	}
}

func (k *capturer) capturing(want bool, streams ...driver.Stream) {
	k.t.Helper()
	for _, s := range streams {
		if got, err := k.Capturing(s); got != want || err != nil {
			k.t.Fatalf("stream %d captures: %v, %v; want %v", s.ID(), got, err, want)
		}
	}
}

// capture captures what work asks of k.a and the streams that it draws in, which is nodes pieces of work.
func (k *capturer) capture(nodes int, work func()) driver.Graph {
	k.t.Helper()
	k.capturing(false, k.a)
	testkit.Must(k.t, k.Begin(k.a))
	k.capturing(true, k.a)
	work()
	g, err := k.End(k.a)
	testkit.Must(k.t, err)
	k.capturing(false, k.a, k.b, k.c)
	if n := g.Nodes(); n != nodes {
		k.t.Errorf("%d nodes captured, want %d", n, nodes)
	}
	return g
}

func (k *capturer) finish(graphs ...driver.Graph) {
	k.t.Helper()
	for _, g := range graphs {
		testkit.Must(k.t, g.Close())
	}
	testkit.Must(k.t, k.d.Free(k.p))
}

// testGraphs: capturing does nothing, and every launch does all of it once, in order.
func testGraphs(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil {
		return
	}
	// Each launch shifts the cells: done twice, or in another order, they would hold something else.
	shift := k.capture(cells-1, func() {
		for i := cells - 1; i > 0; i-- {
			k.move(k.a, i, i-1)
		}
	})
	k.holds(k.a, 1, 2, 3, 4, 5, 6)
	testkit.Must(t, shift.Launch(k.a))
	k.holds(k.a, 1, 1, 2, 3, 4, 5)
	testkit.Must(t, shift.Launch(k.a))
	testkit.Must(t, shift.Launch(k.a))
	k.holds(k.a, 1, 1, 1, 1, 2, 3)

	// A launch is work of its stream: after what is queued there, before what follows, and marks order it.
	k.reset()
	k.set(k.a, 0, 40)
	testkit.Must(t, shift.Launch(k.a))
	k.set(k.a, 0, 50)
	k.fork(k.b, k.a)
	testkit.Must(t, shift.Launch(k.b))
	k.fork(k.c, k.b)
	k.holds(k.c, 50, 50, 40, 2, 3, 4)

	// Launches of one graph do not overlap, also on streams that do not wait for each other.
	k.reset()
	for range 2 {
		for _, s := range []driver.Stream{k.a, k.b} {
			testkit.Must(t, shift.Launch(s))
		}
	}
	syncAll(t, k.a, k.b)
	k.holds(k.a, 1, 1, 1, 1, 1, 2)

	// An empty graph is a graph, and a stream captures as often as it likes.
	empty := k.capture(0, func() {})
	testkit.Must(t, empty.Launch(k.a))
	k.reset()
	fills := k.capture(2, func() {
		k.set(k.a, 1, 70)
		k.move(k.a, 2, 1)
	})
	testkit.Must(t, errors.Join(shift.Launch(k.a), fills.Launch(k.a), empty.Launch(k.a), shift.Launch(k.a)))
	k.holds(k.a, 1, 1, 70, 70, 3, 4)

	if kernels := goKernels(t, k.d); kernels != nil {
		k.reset()
		change := k.capture(1, func() {
			testkit.Must(t, kernels.Launch(k.a, changeKernel(k.cell(1), k.cell(1), cellSize, 5)))
		})
		for range 3 {
			testkit.Must(t, change.Launch(k.a))
		}
		k.holds(k.a, 1, 17, 3)
		testkit.Must(t, change.Close())
	}
	k.finish(shift, empty, fills)
}

// testGraphFork captures on streams that were drawn in, with their order kept.
func testGraphFork(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil {
		return
	}
	// b and c are joined one by one.
	diamond := k.capture(5, func() {
		k.set(k.a, 0, 11)
		k.fork(k.b, k.a)
		k.fork(k.c, k.a)
		k.capturing(true, k.a, k.b, k.c)
		k.move(k.b, 1, 0)
		k.move(k.c, 2, 0)
		k.fork(k.a, k.b)
		k.fork(k.a, k.c)
		k.move(k.a, 3, 1)
		k.move(k.a, 4, 2)
	})
	k.holds(k.a, 1, 2, 3, 4, 5, 6)
	for _, s := range []driver.Stream{k.b, k.d.DefaultStream()} {
		k.reset()
		testkit.Must(t, diamond.Launch(s))
		k.holds(s, 11, 11, 11, 11, 11, 6)
	}

	// c is joined through b, and work on it comes between two pieces of b's.
	k.reset()
	chain := k.capture(4, func() {
		k.fork(k.b, k.a)
		k.set(k.b, 0, 21)
		k.fork(k.c, k.b)
		k.move(k.c, 1, 0)
		k.fork(k.b, k.c)
		k.set(k.b, 0, 22)
		k.fork(k.a, k.b)
		k.move(k.a, 2, 1)
	})
	testkit.Must(t, chain.Launch(k.c))
	k.holds(k.c, 22, 21, 21, 4)

	// The streams are ordinary again, and can be drawn in again.
	k.reset()
	k.set(k.b, 0, 31)
	k.fork(k.c, k.b)
	k.move(k.c, 1, 0)
	k.holds(k.c, 31, 31)
	again := k.capture(1, func() {
		k.fork(k.c, k.a)
		k.set(k.c, 5, 32)
		k.fork(k.a, k.c)
	})
	testkit.Must(t, again.Launch(k.a))
	k.holds(k.a, 31, 31, 3, 4, 5, 32)
	k.finish(diamond, chain, again)
}

// testGraphInFlight closes a graph while launches of it may be under way.
func testGraphInFlight(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil {
		return
	}
	big := Alloc(t, k.d, 1<<20)
	g := k.capture(3, func() {
		testkit.Must(t, k.a.Fill(big, 5, 1<<20))
		testkit.Must(t, k.a.Copy(k.p, big, cellSize))
		k.move(k.a, 1, 0)
	})
	for range 20 {
		k.set(k.a, 0, 0)
		testkit.Must(t, g.Launch(k.a))
	}
	testkit.Must(t, g.Close())
	k.holds(k.a, 5, 5, 3)
	WantErr(t, "Launch of a graph that was closed", g.Launch(k.a), driver.ErrClosed)
	k.holds(k.a, 5, 5, 3)
	testkit.Must(t, k.d.Free(big))
	k.finish()
}

// testGraphOfPinned captures asynchronous copies: each launch reads page-locked memory anew.
func testGraphOfPinned(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil || k.d.Pinned() == nil {
		return
	}
	pinned := k.d.Pinned()
	src, dst := mustPin(t, pinned, cellSize), mustPin(t, pinned, cellSize)
	copy(src, bytes.Repeat([]byte{60}, cellSize))
	clear(dst)
	g := k.capture(3, func() {
		testkit.Must(t, pinned.CopyInAsync(k.a, k.p, src))
		k.move(k.a, 1, 0)
		testkit.Must(t, pinned.CopyOutAsync(k.a, dst, k.cell(1)))
	})
	k.holds(k.a, 1, 2)
	for _, pattern := range []byte{61, 62} {
		want := bytes.Repeat([]byte{pattern}, cellSize)
		copy(src, want)
		testkit.Must(t, g.Launch(k.a))
		k.holds(k.a, pattern, pattern)
		if !bytes.Equal(dst, want) {
			t.Errorf("pattern %d: other bytes came out", pattern)
		}
	}
	k.finish(g)
	testkit.Must(t, pinned.FreeHost(src))
	testkit.Must(t, pinned.FreeHost(dst))
}
