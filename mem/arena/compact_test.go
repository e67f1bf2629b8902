package arena_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

const kib = 1 << 10

// checkerboard fills an arena with blocks of a size on all streams in turn and frees every second one, starting with
// the first.
func (w *world) checkerboard(y *yard, size int64, movable bool) (kept []*block) {
	w.t.Helper()
	var all []*block
	for i := 0; ; i++ {
		b, err := w.alloc(y, w.streams[i%len(w.streams)], size, movable)
		if errors.Is(err, mem.ErrNoMemory) {
			break
		}
		w.must(err)
		all = append(all, b)
	}
	for i, b := range all {
		if i%2 == 0 {
			w.free(b)
		} else {
			kept = append(kept, b)
		}
	}
	return kept
}

// After Compact the free memory is one hole, behind all blocks, and the blocks have their bytes and their order.
func TestCompactLeavesOneHole(t *testing.T) {
	w := simWorld(t, 1<<20)
	kept := w.checkerboard(w.root, 24*kib, true)
	w.must(w.root.Compact(w.streams[1]))
	w.agree()
	if h := holes(w.root); len(h) != 1 || h[0].Size != 1<<20-int64(len(kept))*24*kib {
		t.Errorf("holes after Compact of %d blocks of 24 KiB: %v", len(kept), h)
	}
	for i, b := range kept {
		if i > 0 && b.Ptr != kept[i-1].Ptr+driver.Pointer(kept[i-1].Size) {
			t.Errorf("b%d does not follow b%d", b.number, kept[i-1].number)
		}
		w.check(b, w.streams[i%4])
	}
	want := arena.MoveStats{Compactions: 1, Blocks: int64(len(kept)), Bytes: int64(len(kept)) * 24 * kib}
	if m := w.root.Moves(); m != want {
		t.Errorf("Moves: %+v, want %+v", m, want)
	}
	lifts := w.lifts
	w.must(w.root.Compact(w.streams[2]))
	if w.lifts != lifts || w.root.Moves() != want {
		t.Error("Compact asked holders, or moved, where there is nothing to gain")
	}
	w.finish()
}

// Compact waits for nothing: all streams may be held back.
func TestCompactDoesNotWait(t *testing.T) {
	w := simWorld(t, 1<<20)
	for _, s := range w.streams {
		w.sim.Hold(s.ID())
	}
	w.checkerboard(w.root, 24*kib, true)
	before := make([]int, 4)
	for i, s := range w.streams {
		before[i] = w.sim.Pending(s.ID())
	}
	w.must(w.root.Compact(w.streams[3]))
	for i, s := range w.streams {
		if n := w.sim.Pending(s.ID()); n < before[i] {
			t.Errorf("stream %d had %d pieces of work pending, now %d", i, before[i], n)
		}
	}
	w.finish()
}

// Blocks without a holder, blocks whose holder says no, frozen ones and children stay; the others slide as far as
// they go between them.
func TestCompactGoesAroundObstacles(t *testing.T) {
	w := simWorld(t, 1<<20)
	s := w.streams[1]
	frozen := w.mustAlloc(w.root, s, 10*kib, true)
	w.must(w.freeze(w.root, s))
	hole1 := w.mustAlloc(w.root, s, 8*kib, true)
	a := w.mustAlloc(w.root, s, 16*kib, true)
	hole2 := w.mustAlloc(w.root, s, 8*kib, true)
	raw := w.mustAlloc(w.root, s, 4*kib, false)
	hole3 := w.mustAlloc(w.root, s, 12*kib, true)
	b := w.mustAlloc(w.root, s, 2*kib, true)
	busy := w.mustAlloc(w.root, s, 2*kib, true)
	hole4 := w.mustAlloc(w.root, s, 2*kib, true)
	c := w.mustAlloc(w.root, s, 6*kib, true)
	_, err := w.child(w.root, 100*kib)
	w.must(err)
	stays := []*block{frozen, raw, busy}
	var places []driver.Pointer
	for _, o := range stays {
		places = append(places, o.Ptr)
	}
	busy.refuses = true
	for _, h := range []*block{hole1, hole2, hole3, hole4} {
		w.free(h)
	}
	w.must(w.root.Compact(w.streams[2]))
	w.agree()
	for i, o := range stays {
		if o.Ptr != places[i] {
			t.Errorf("%v was moved", o)
		}
	}
	end := func(b *block) driver.Pointer { return b.Ptr + driver.Pointer(b.Size) }
	if a.Ptr != end(frozen) || b.Ptr != end(raw) || c.Ptr != end(busy) {
		t.Errorf("frozen %v a %v raw %v b %v busy %v c %v", frozen.Block, a.Block, raw.Block, b.Block, busy.Block, c.Block)
	}
	if m := w.root.Moves(); m.Blocks != 3 || m.Refused != 1 || frozen.lifts != 0 {
		t.Errorf("%+v, %d lifts of a frozen block", m, frozen.lifts)
	}
	busy.refuses = false
	w.must(w.root.Compact(w.streams[2]))
	if h := holes(w.root); len(h) != 2 || h[0].Ptr != end(a) || busy.Ptr != end(b) {
		t.Errorf("holes after a second Compact: %v", h)
	}
	w.finish()
}

// A request that fits in no hole, though the free memory is enough, has blocks moved first.
func TestAllocCompacts(t *testing.T) {
	w := simWorld(t, 1<<20)
	kept := w.checkerboard(w.root, 16*kib, true)
	big := w.mustAlloc(w.root, w.streams[2], 400*kib, true)
	if w.moved == 0 || w.root.Moves().Compactions != 1 {
		t.Errorf("%d blocks moved, %+v", w.moved, w.root.Moves())
	}
	w.agree()
	for _, b := range append(kept, big) {
		w.check(b, w.streams[0])
	}
	if n := w.root.Stats().NumOOMs; n == 0 {
		t.Error("the request that filled the checkerboard was no OOM")
	}
	w.finish()
}

// Nothing is moved, and no holder asked, for a request that is not to be retried: it takes a hole, or fails and says
// why.
func TestNoRetry(t *testing.T) {
	w := simWorld(t, 1<<20)
	w.checkerboard(w.root, 16*kib, true)
	hasty := mem.AllocOptions{NoRetry: true}
	b, err := w.root.AllocWith(w.streams[2], 16*kib, hasty)
	if err != nil {
		t.Fatal(err)
	}
	w.root.Free(b)
	_, err = w.root.AllocWith(w.streams[2], 400*kib, hasty)
	if !errors.Is(err, mem.ErrNoMemory) || !strings.Contains(err.Error(), "without NoRetry") || w.lifts != 0 {
		t.Errorf("%v; %d holders were asked", err, w.lifts)
	}
	w.mustAlloc(w.root, w.streams[2], 400*kib, true)
	w.agree()
	w.finish()
}

// Nothing is moved, and no holder asked, for a request that it would not help.
func TestAllocCompactsOnlyIfItHelps(t *testing.T) {
	w := simWorld(t, 1<<20)
	s := w.streams[1]
	var all []*block
	for i := range 16 {
		all = append(all, w.mustAlloc(w.root, s, 64*kib, i != 7)) // one in the middle stays
	}
	for i := 0; i < 16; i += 2 {
		w.free(all[i])
	}
	_, err := w.root.Alloc(s, 500*kib)
	if oom := (*mem.OutOfMemory)(nil); !errors.As(err, &oom) || len(oom.Pinning) == 0 || oom.Pinning[0].Ptr != all[7].Ptr {
		t.Errorf("Alloc: %v; want the block at %#x named", err, all[7].Ptr)
	}
	if w.lifts != 0 {
		t.Errorf("%d holders were asked for a request that cannot be met", w.lifts)
	}
	// All holders refuse when asked: each block lands where it was, and the error names the obstacle.
	for _, b := range w.blocks {
		b.refuses = true
	}
	_, err = w.root.Alloc(s, 256*kib)
	if oom := (*mem.OutOfMemory)(nil); !errors.As(err, &oom) || len(oom.Pinning) != 5 || w.lifts == 0 {
		t.Errorf("Alloc: %v; want five blocks named", err)
	}
	w.agree()
	for _, b := range w.blocks {
		b.refuses = false
	}
	w.mustAlloc(w.root, s, 256*kib, true) // behind the one in the middle
	if w.moved == 0 {
		t.Error("nothing was moved for a request that can be met")
	}
	w.agree()
	w.finish()
}

// While any hold is there, nothing moves. Holds nest, and releasing one twice is releasing it once (BMEngine's
// GCStopper does not nest).
func TestHoldStill(t *testing.T) {
	w := simWorld(t, 1<<20)
	w.checkerboard(w.root, 16*kib, true)
	first, second := w.root.Pin(), w.root.Pin()
	refused := func(when string) {
		t.Helper()
		if err := w.root.Compact(w.streams[1]); !errors.Is(err, arena.ErrPinned) {
			t.Errorf("%s: Compact: %v, want ErrPinned", when, err)
		}
		if err := w.root.Freeze(w.streams[1]); !errors.Is(err, arena.ErrPinned) {
			t.Errorf("%s: Freeze: %v, want ErrPinned", when, err)
		}
		_, err := w.root.Alloc(w.streams[1], 300*kib)
		if !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, arena.ErrPinned) || !strings.Contains(err.Error(), "Hold.Release") {
			t.Errorf("%s: Alloc: %v; want it to say that holds are in the way", when, err)
		}
		if w.lifts != 0 {
			t.Fatalf("%s: a holder was asked", when)
		}
	}
	refused("two holds")
	first.Release()
	first.Release()
	refused("one hold")
	third := w.root.Pin()
	second.Release()
	refused("another hold")
	third.Release()
	w.must(w.root.Compact(w.streams[1]))
	if len(holes(w.root)) != 1 {
		t.Error("all holds are released, and Compact does not compact")
	}
	w.finish()
}

// Freeze may be repeated, and a frozen block is never lifted again; once it is freed, its bytes are reused.
func TestFreeze(t *testing.T) {
	w := simWorld(t, 1<<20)
	s := w.streams[1]
	var weights []*block
	for round := range 3 {
		var more []*block
		for range 6 {
			more = append(more, w.mustAlloc(w.root, s, 20*kib, round != 1))
		}
		w.free(more[0])
		w.must(w.freeze(w.root, s))
		weights = append(weights, more[1:]...)
	}
	lifts := make([]int, len(weights))
	places := make([]driver.Pointer, len(weights))
	for i, b := range weights {
		lifts[i], places[i] = b.lifts, b.Ptr
		if w.root.Movable(b.Block, b) {
			t.Errorf("Movable of the frozen %v is true", b)
		}
	}
	for range 3 {
		w.checkerboard(w.root, 16*kib, true)
		w.must(w.root.Compact(w.streams[2]))
		w.agree()
	}
	for i, b := range weights {
		w.check(b, w.streams[3])
		if b.lifts != lifts[i] || b.Ptr != places[i] {
			t.Errorf("the frozen %v was lifted %d times more, and is at %#x: it was at %#x", b, b.lifts-lifts[i], b.Ptr, places[i])
		}
	}
	at := weights[3].Ptr
	w.free(weights[3])
	again := w.mustAlloc(w.root, s, 20*kib, true)
	if again.Ptr != at {
		t.Errorf("a block of the size of a freed frozen one is at %#x, not in its place %#x", again.Ptr, at)
	}
	w.must(w.root.Compact(s))
	w.finish()
}

// With compaction off no holder is kept, and every method reports that.
func TestNoCompact(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	w := newWorld(t, dev, arena.Config{Size: 1 << 20, NoCompact: true}, 1)
	kept := w.checkerboard(w.root, 16*kib, false)
	if mem.Movable(w.root, kept[0].Block, kept[0]) {
		t.Error("Movable is true")
	}
	if err := w.root.Compact(w.streams[1]); !errors.Is(err, arena.ErrOff) {
		t.Errorf("Compact: %v, want ErrOff", err)
	}
	_, err := w.root.Alloc(w.streams[1], 300*kib)
	if !errors.Is(err, mem.ErrNoMemory) || !strings.Contains(err.Error(), "compact=on") {
		t.Errorf("Alloc: %v; want the remedy compact=on", err)
	}
	w.finish()
}

// Every driver call fails in turn during requests, compactions and EmptyCache: nothing is lost, every lifted holder has
// landed, all bytes are where their holders expect them, and once the device works again all memory can be allocated.
func TestFaults(t *testing.T) {
	for _, cfg := range []arena.Config{{Size: 256 * kib}, {Size: 256 * kib, Page: 64 * kib, Bounce: 64 * kib}} {
		for _, rule := range []fault.Rule{{}, {Onwards: true}, {Code: driver.ErrNoMemory}, {Code: driver.ErrInvalid, Onwards: true}} {
			calls := int64(0)
			for n := int64(1); ; n++ {
				rule.Nth = n
				if !failing(t, cfg, rule) {
					calls = n - 1
					break
				}
			}
			if calls < 10 {
				t.Errorf("%+v %+v: only %d driver calls failed", cfg, rule, calls)
			}
		}
	}
}

// failing reports whether the rule was applied.
func failing(t *testing.T, cfg arena.Config, rule fault.Rule) bool {
	t.Helper()
	inner := sim.New(sim.Options{Total: 4 << 20, Granularity: 64 * kib, CallSites: true})
	dev := fault.Wrap(inner)
	closeDevice(t, dev)
	w := newWorld(t, dev, cfg, 1)
	w.sim = inner
	for _, size := range []int64{7 * kib, 30 * kib} {
		w.checkerboard(w.root, size, true)
	}
	s := w.streams[1]
	// The model's own calls do not fail.
	var failed int64
	call := func(f func() error) error {
		rule := rule
		if rule.Nth -= w.calls; rule.Nth < 1 && rule.Onwards {
			rule.Nth = 1
		}
		if rule.Nth > 0 {
			dev.SetRules(rule)
		}
		err := f()
		failed += dev.Failed()
		w.calls += dev.Calls()
		dev.SetRules()
		return err
	}
	var got mem.Block
	work := []func() error{
		func() (err error) { got, err = w.root.Alloc(s, 60*kib); return err },
		func() error { return w.root.Compact(w.streams[2]) },
		w.root.EmptyCache,
		func() error { w.root.Free(got); return nil },
	}
	for i, f := range work {
		if i == 3 && got == (mem.Block{}) {
			break
		}
		err := call(f)
		if i == 0 && err != nil {
			if got != (mem.Block{}) || failed == 0 && !errors.Is(err, mem.ErrNoMemory) {
				t.Fatalf("%+v: Alloc: %+v, %v", rule, got, err)
			}
		}
		if w.lifted != 0 {
			t.Fatalf("%+v: %d holders have not landed after %v", rule, w.lifted, err)
		}
		w.must(w.root.Check())
		if failed == 0 && err != nil {
			t.Fatalf("%+v: no call failed, and: %v", rule, err)
		}
	}
	for _, b := range w.blocks {
		w.check(b, b.origin)
	}
	w.must(w.root.Compact(s))
	w.must(w.root.EmptyCache())
	w.free(w.mustAlloc(w.root, s, 60*kib, true))
	w.finish()
	w.must(dev.Close())
	return failed > 0
}

// BMEngine's free takes any expired entry for the one that it is given; here stale and foreign blocks panic, also after
// their record stands for another block, and nothing changes.
func TestStaleBlocksPanic(t *testing.T) {
	w := simWorld(t, 1<<20)
	s := w.streams[1]
	hole := w.mustAlloc(w.root, s, 8*kib, true)
	b := w.mustAlloc(w.root, s, 8*kib, true)
	before := b.Block
	w.free(hole)
	w.must(w.root.Compact(s))
	freed := w.mustAlloc(w.root, s, 4*kib, false)
	w.free(freed)
	again := w.mustAlloc(w.root, s, 4*kib, false) // of the same record and address
	kid, err := w.child(w.root, 8*kib)
	w.must(err)
	inKid := w.mustAlloc(kid, s, 8*kib, false) // of the same address as the child
	other := simWorld(t, 1<<20)
	foreign := other.mustAlloc(other.root, other.streams[1], 8*kib, false)
	for _, c := range []struct {
		what, want string
		b          mem.Block
	}{
		{"a block where it was before it was moved", "it was moved", before},
		{"a freed block whose place is another's", "freed already", freed.Block},
		{"another arena's block", "no block of this arena", mem.Block{Ptr: foreign.Ptr, Size: foreign.Size, Tag: foreign.Tag + 100}},
		{"a child's block", "", inKid.Block},
		{"the inside of a block", "", mem.Block{Ptr: again.Ptr + 512, Size: again.Size - 512, Tag: again.Tag}},
		{"a block of no tag", "no block of this arena", mem.Block{Ptr: b.Ptr, Size: b.Size}},
	} {
		for name, f := range map[string]func(){
			"Free":    func() { w.root.Free(c.b) },
			"Movable": func() { w.root.Movable(c.b, b) },
		} {
			if got := testkit.Panic(t, f); !strings.HasPrefix(got, "arena: "+name) || !strings.Contains(got, c.want) {
				t.Errorf("%s of %s panicked with %q: want %q in it", name, c.what, got, c.want)
			}
			w.agree()
		}
	}
	for name, f := range map[string]func(){
		"Alloc on nil":    func() { w.root.Alloc(nil, 1) },
		"Compact on nil":  func() { w.root.Compact(nil) },
		"Freeze on nil":   func() { w.root.Freeze(nil) },
		"a nil holder":    func() { w.root.Movable(b.Block, nil) },
		"Free for nil":    func() { w.root.Free(b.Block, nil) },
		"a child of 0":    func() { w.root.Child(0) },
		"a limit below 0": func() { w.root.SetLimit(-1) },
	} {
		if got := testkit.Panic(t, f); !strings.HasPrefix(got, "arena: ") {
			t.Errorf("%s panicked with %q", name, got)
		}
	}
	w.finish()
	other.finish()
}

// The order in which blocks were allocated is of no matter: those of all sizes and streams come to lie in the order of
// their addresses.
func TestMovesAreMerged(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	w := newWorld(t, dev, arena.Config{Size: 16 << 20}, 1)
	s := w.streams[1]
	hole := w.mustAlloc(w.root, s, 6<<20, true)
	var rest []*block
	for range 20 {
		rest = append(rest, w.mustAlloc(w.root, s, 300*kib, true))
	}
	w.free(hole)
	copies := func() int64 {
		c := w.sim.Calls()
		return c[sim.CallCopy].Count + c[sim.CallLaunch].Count
	}
	before := copies()
	w.must(w.root.Compact(s))
	if n := copies() - before; n != 1 || w.moved != 20 {
		t.Errorf("%d blocks that lie side by side were moved by %d calls: want 20 by one", w.moved, n)
	}
	if !slices.IsSortedFunc(rest, func(x, y *block) int { return int(x.Ptr - y.Ptr) }) {
		t.Error("blocks have overtaken each other")
	}
	w.finish()
}

// TestNoRoomToMove has blocks moved on a device that has nothing left beside the region.
func TestNoRoomToMove(t *testing.T) {
	dev := drivertest.OpenSim(t, 16<<20)
	w := newWorld(t, dev, arena.Config{Size: 8 << 20}, 1)
	free, _, err := dev.Available()
	w.must(err)
	rest, err := dev.Alloc(free)
	w.must(err)
	s := w.streams[1]
	hole := w.mustAlloc(w.root, s, 512*kib, true)
	large := w.mustAlloc(w.root, s, 7<<20, true) // more than the simulator's kernels move
	w.free(hole)
	b, err := w.root.Alloc(s, 1<<20)
	w.must(err)
	w.root.Free(b)
	w.agree()
	w.check(large, w.streams[2])
	w.must(dev.Free(rest))
	w.free(w.mustAlloc(w.root, s, 1<<20, true))
	w.check(large, w.streams[2])
	w.finish()
}

// Where the device fails in the middle of a block, the block's first bytes are moved back, on the stream of the move.
// Its holder is told that stream, for which work on the block must wait. A compaction that fails before its first copy
// names no stream.
func TestMovesUndone(t *testing.T) {
	undone, given := 0, 0
	for nth := int64(1); ; nth++ {
		inner := sim.New(sim.Options{Total: 16 << 20, CallSites: true, Completion: sim.OnDemand})
		dev := fault.Wrap(inner)
		w := newWorld(t, dev, arena.Config{Size: 8 << 20, Bounce: 1 << 20}, 1)
		w.sim = inner
		hole := w.mustAlloc(w.root, w.streams[1], 512*kib, true)
		large := w.mustAlloc(w.root, w.streams[1], 7<<20, true) // more than the simulator's kernels move
		w.free(hole)
		dev.SetRules(fault.Rule{Nth: nth})
		err := w.root.Compact(w.streams[2])
		failed := dev.Failed() > 0
		dev.SetRules()
		switch {
		case err == nil != (w.moved == 1) || err != nil && !failed:
			t.Errorf("call %d fails: %v, %d blocks moved", nth, err, w.moved)
		case err == nil: // the arena could do without the call
		case w.undone > 0:
			undone++
		default:
			given++
		}
		w.check(large, w.streams[1])
		b := w.mustAlloc(w.root, w.streams[1], 512*kib, false)
		w.free(large)
		w.free(b)
		w.finish()
		w.must(dev.Close())
		if !failed {
			break
		}
	}
	if undone < 5 || given == 0 {
		t.Errorf("%d compactions failed in copies, and %d before: want some of both", undone, given)
	}
}

// Where a move fails and cannot be undone, no block moves any more, and the error says why. Memory is still allocated
// and given back.
func TestMoveLost(t *testing.T) {
	dev := fault.Wrap(sim.New(sim.Options{Total: 16 << 20, Granularity: 64 * kib}))
	closeDevice(t, dev)
	w := newWorld(t, dev, arena.Config{Page: 64 * kib, Bounce: 64 * kib}, 1)
	hole := w.mustAlloc(w.root, w.streams[1], 4*kib, true)
	large := w.mustAlloc(w.root, w.streams[1], 7<<20, true) // more than the simulator's kernels move
	w.free(hole)
	dev.SetRules(fault.Rule{Kind: intercept.Copy, Nth: 4, Onwards: true})
	for _, when := range []string{"while the device fails", "afterwards"} {
		if err := w.root.Compact(w.streams[2]); !errors.Is(err, mem.ErrContentsLost) {
			t.Errorf("%s: Compact: %v, want ErrContentsLost", when, err)
		}
		dev.SetRules()
	}
	w.free(w.mustAlloc(w.root, w.streams[1], 1<<20, true)) // of new pages
	w.fill(large, w.streams[1])
	w.check(large, w.streams[1])
	w.free(large)
	w.must(w.root.EmptyCache())
	if n := w.root.Stats().ReservedBytes.All.Current; n != 0 {
		t.Errorf("%d bytes are reserved with no block live", n)
	}
	w.finish()
}

// A holder that panics does not leave the others lifted, and the arena stays usable.
func TestHolderPanics(t *testing.T) {
	w := simWorld(t, 256*kib)
	kept := w.checkerboard(w.root, 16*kib, true)
	places := w.root.Snapshot()[0].Blocks
	w.onMove = func() {
		if w.lifts == 3 {
			panic("a holder's own")
		}
	}
	if text := testkit.Panic(t, func() { _ = w.root.Compact(w.streams[1]) }); text != "a holder's own" {
		t.Errorf("the panic that came out is %q", text)
	}
	if w.lifted != 0 {
		t.Errorf("%d holders were lifted and have not landed", w.lifted)
	}
	if after := w.root.Snapshot()[0].Blocks; !slices.Equal(places, after) {
		t.Error("blocks were moved")
	}
	w.onMove = nil
	w.must(w.root.Compact(w.streams[1]))
	if w.moved != int64(len(kept)) {
		t.Errorf("%d blocks were moved afterwards, want %d", w.moved, len(kept))
	}
	w.finish()
}
