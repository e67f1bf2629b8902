package arena_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// Children are closed in every order, and their bytes are one hole with the rest each time (BMEngine's only last in,
// first out).
func TestChildrenCloseInAnyOrder(t *testing.T) {
	var order func(done []int)
	order = func(done []int) {
		if len(done) < 4 {
			for i := range 4 {
				if !slices.Contains(done, i) {
					order(append(done, i))
				}
			}
			return
		}
		w := simWorld(t, 1<<20)
		keep := w.mustAlloc(w.root, w.streams[1], 8*kib, true)
		var kids []*yard
		for i := range 4 {
			k, err := w.child(w.root, int64(50+i)*kib)
			w.must(err)
			w.mustAlloc(k, w.streams[i], 20*kib, true)
			kids = append(kids, k)
		}
		for _, i := range done {
			w.closeYard(kids[i])
			w.agree()
		}
		if h := holes(w.root); len(h) != 1 || h[0].Size != 1<<20-8*kib {
			t.Errorf("children closed in the order %v leave the holes %v", done, h)
		}
		w.check(keep, w.streams[2])
		w.finish()
	}
	order(nil)
}

// A child is cut from the end of the free memory, never from under live blocks (BMEngine's carve does not look), and
// blocks are moved together for it.
func TestChildAvoidsLiveBlocks(t *testing.T) {
	w := simWorld(t, 1<<20)
	last := w.checkerboard(w.root, 64*kib, true) // the last of sixteen, at the very end, is live
	tail := last[len(last)-1]
	kid, err := w.child(w.root, 64*kib)
	w.must(err)
	if seg := kid.Snapshot()[0]; seg.Ptr != tail.Ptr-64*kib || seg.TotalSize != 64*kib {
		t.Errorf("the child is at %#x: want the highest hole, below the block at %#x", seg.Ptr, tail.Ptr)
	}
	if w.lifts != 0 {
		t.Error("a holder was asked for a child that fits")
	}
	big, err := w.child(w.root, 200*kib)
	w.must(err)
	if w.moved == 0 {
		t.Error("no block was moved for a child that fits in no hole")
	}
	b := w.mustAlloc(big, w.streams[2], 200*kib, true)
	w.agree()
	for _, o := range append(last, b) {
		w.check(o, w.streams[3])
	}
	if _, err := w.child(w.root, 1<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a child larger than its parent: %v", err)
	}
	if _, err := w.child(w.root, 1<<62); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a child of 4 EiB: %v", err)
	}
	w.finish()
}

// Close of an arena with live blocks or children fails, names them, and leaves the arena usable.
func TestCloseWithBlocksOnLoan(t *testing.T) {
	w := simWorld(t, 1<<20)
	kid, err := w.child(w.root, 100*kib)
	w.must(err)
	b := w.mustAlloc(kid, w.streams[1], 3000, true)
	for _, y := range []*yard{w.root, kid} {
		want := map[bool]string{true: "1 live blocks, of 102400 bytes in total, 1 of them children", false: "1 live blocks, of 3072 bytes"}[y == w.root]
		if err := y.Close(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Close: %v: want %q in it", err, want)
		}
	}
	w.agree()
	w.check(b, w.streams[2])
	w.mustAlloc(kid, w.streams[1], 3000, true)
	c := kid.Arena
	w.closeYard(kid)
	w.must(c.Close())
	w.must(c.Close())
	if h := holes(w.root); len(h) != 1 || h[0].Size != 1<<20 {
		t.Errorf("a child closed three times leaves the holes %v", h)
	}
	for name, err := range map[string]error{
		"Alloc":   func() error { _, err := c.Alloc(w.streams[1], 1); return err }(),
		"Child":   func() error { _, err := c.Child(512); return err }(),
		"Compact": c.Compact(w.streams[1]),
		"Freeze":  c.Freeze(w.streams[1]),
	} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s of a closed arena: %v", name, err)
		}
	}
	w.finish()
	w.must(w.root.Close())
	w.must(w.root.EmptyCache())
	if s := w.root.Stats(); s.ReservedBytes.All.Current != 0 || s.Segment.All.Current != 0 {
		t.Errorf("a closed arena has %+v", s.ReservedBytes.All)
	}
}

// A child's memory goes back to its parent in stream order: no stream waited when the child was closed, and each that
// uses the memory next waits.
func TestChildReturnsInStreamOrder(t *testing.T) {
	w := simWorld(t, 256*kib)
	for _, s := range w.streams {
		w.sim.Hold(s.ID())
	}
	before := w.mustAlloc(w.root, w.streams[3], 256*kib, false)
	w.free(before)
	kid, err := w.child(w.root, 256*kib)
	w.must(err)
	a := w.mustAlloc(kid, w.streams[1], 100*kib, true) // waits for what the parent's block did
	w.free(a)
	w.must(kid.Close())
	w.yards, w.root.children = w.yards[:1], nil
	w.free(w.mustAlloc(w.root, w.streams[2], 256*kib, true))
	w.finish() // in which the device reports what was not ordered
}

// With pages a child has memory behind it, and only as much is mapped as there is need of.
func TestChildOfPages(t *testing.T) {
	dev := closeDevice(t, sim.New(sim.Options{Total: 16 << 20, Granularity: 64 * kib}))
	w := newWorld(t, dev, arena.Config{Size: 8 << 20, Page: 64 * kib, Bounce: 64 * kib}, 1)
	kid, err := w.child(w.root, 100*kib)
	w.must(err)
	if n := w.root.Stats().ReservedBytes.All.Current; n != 128*kib {
		t.Errorf("%d bytes are mapped for a child of 100 KiB: want 128 KiB", n)
	}
	b := w.mustAlloc(kid, w.streams[1], 100*kib, true)
	w.must(kid.EmptyCache())
	w.check(b, w.streams[2])
	w.finish()
}

// Moving the blocks in a child is up to the child, and a hold on the parent does not prevent it.
func TestChildCompactsItself(t *testing.T) {
	w := simWorld(t, 1<<20)
	kid, err := w.child(w.root, 256*kib)
	w.must(err)
	w.checkerboard(kid, 16*kib, true)
	w.checkerboard(w.root, 16*kib, true)
	h := w.root.Pin()
	w.mustAlloc(kid, w.streams[2], 100*kib, true)
	if m := kid.Moves(); m.Compactions != 1 || w.root.Moves() != (arena.MoveStats{}) {
		t.Errorf("the child's moves are %+v, its parent's %+v", m, w.root.Moves())
	}
	h.Release()
	w.finish()
}
