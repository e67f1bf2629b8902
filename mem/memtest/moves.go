package memtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// checkMoves: an allocator that moves blocks asks each holder first, waits for the streams that it names, copies all
// bytes, and passes the new address to the holder. An allocator that does not move blocks keeps no holder
// (mem/move.go).
func checkMoves(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	b := w.mustAlloc(t, 0, min(4096, cfg.MaxBlock))
	moves, probe := w.probe(b)
	if !moves {
		for range 2 {
			runtime.GC()
		}
		if probe.Value() != nil {
			t.Fatal("Movable is false, and the allocator keeps the holder")
		}
		testkit.Must(t, w.compact(0)) // of a layer below: what is above it cannot follow
		testkit.Must(t, w.free(b))
		testkit.Must(t, w.finish())
		return
	}
	w.slide(t)
	testkit.Must(t, w.finish())
	for i := range cfg.Seeds {
		cfg := cfg
		cfg.Seed += uint64(i)
		h := generateMoves(cfg, cfg.Seed, cfg.Ops/2, 48)
		run := func(h history) *failure { return h.run(t, cfg, i%2 == 1) }
		if f := run(h); f != nil {
			t.Fatalf("seed %d, tight %v:\n%s", cfg.Seed, i%2 == 1, shrink(h, run, f))
		}
	}
	failures := int64(0)
	for i, rule := range []fault.Rule{{}, {Onwards: true}} {
		cfg := cfg
		cfg.Seed += uint64(i)
		h := generateMoves(cfg, cfg.Seed, cfg.FaultOps, 12)
		for j := 7; j < len(h); j += 8 { // more to move than usual
			h[j] = op{kind: opCompact, stream: j % cfg.Streams}
		}
		failures += h.failEach(t, cfg, i == 0, rule)
	}
	t.Logf("%d driver calls have failed, each in a run of its own", failures)
	checkMovesConcurrently(t, cfg)
}

// probe calls Movable for a block, with a holder of its own.
func (w *model) probe(b *block) (bool, weak.Pointer[testHolder]) {
	h := &testHolder{w: w, b: b}
	return mem.Movable(w.a, b.Block, h), weak.Make(h)
}

// slide makes holes on all streams, and compacts while the streams that use the blocks are busy.
func (w *model) slide(t testing.TB) {
	for round := range 4 {
		var blocks []*block
		for i := range 8 {
			blocks = append(blocks, w.mustAlloc(t, i%w.cfg.Streams, min(w.cfg.MaxBlock, int64(3000+7000*i))))
		}
		testkit.Must(t, w.sync())
		on := round % w.cfg.Streams
		for s := range w.cfg.Streams {
			w.hold(s, s != on)
		}
		for i, b := range blocks {
			if user := (b.owner + 1 + round) % w.cfg.Streams; i%2 == 0 {
				testkit.Must(t, w.check(b, user, "in a hole to be"))
				testkit.Must(t, w.free(b))
			} else {
				testkit.Must(t, w.rewrite(b, user)) // the owner does not know when that is done
				testkit.Must(t, w.check(b, (user+1)%w.cfg.Streams, "by a stream that its holder names"))
				testkit.Must(t, w.movable(b))
			}
		}
		blocks[1+2*round].toggleRefuse()
		testkit.Must(t, w.compact(on))
		testkit.Must(t, w.checkReports(true))
		for _, b := range w.live {
			testkit.Must(t, w.check(b, b.owner, "after a move"))
		}
		// where blocks have left
		testkit.Must(t, w.free(w.mustAlloc(t, (on+1)%w.cfg.Streams, min(w.cfg.MaxBlock, 20_000))))
		for s := range w.cfg.Streams {
			w.hold(s, false)
		}
		testkit.Must(t, w.sync())
		for _, b := range w.live {
			if testkit.Must(t, w.movable(b)); b.holder.refuses {
				b.toggleRefuse()
			}
		}
		testkit.Must(t, w.compact(0)) // no holder refuses, nothing is pending: the free memory is one hole
		testkit.Must(t, w.checkReports(true))
		for len(w.live) > 4 {
			testkit.Must(t, w.free(w.live[0]))
		}
	}
}

// A testHolder follows one block for the model.
type testHolder struct {
	w       *model
	b       *block
	refuses bool
	moving  bool
	from    mem.Block     // the block at BeginMove
	on      driver.Stream // the stream that moves it
}

// BeginMove implements mem.Holder.
func (h *testHolder) BeginMove() ([]driver.Stream, bool) {
	w := h.w
	switch {
	case w.numbers[h.b.number] != h.b:
		w.recordError(fmt.Errorf("BeginMove of %v, which has been freed", h.b))
		return nil, false
	case h.moving:
		w.recordError(fmt.Errorf("BeginMove of %v, which has not landed since it was lifted", h.b))
		return nil, false
	case h.refuses:
		return nil, false
	}
	h.moving, h.from = true, h.b.Block
	w.moving = append(w.moving, h)
	w.unlist(h.b) // another block may move here before its EndMove
	var used []driver.Stream
	for _, u := range w.users(h.b) {
		used = append(used, w.streams[u])
	}
	return used, true
}

// EndMove implements mem.Holder.
func (h *testHolder) EndMove(b mem.Block, s driver.Stream) {
	w := h.w
	switch {
	case !h.moving:
		w.recordError(fmt.Errorf("EndMove of %v, which is not lifted", h.b))
		return
	case s == nil && b != h.from:
		w.recordError(fmt.Errorf("%v landed, not moved, as %+v: want %+v", h.b, b, h.from))
	case b.Size != h.from.Size:
		w.recordError(fmt.Errorf("%v has become %d bytes by being moved", h.b, b.Size))
	}
	if b != h.from {
		w.moveCount++
	} else if s != nil {
		w.unmoved = append(w.unmoved, h.b)
	}
	h.moving, h.b.Block, h.on = false, b, s
	w.moving = slices.DeleteFunc(w.moving, func(l *testHolder) bool { return l == h })
	if err := w.list(h.b); err != nil {
		w.recordError(fmt.Errorf("a move left %w", err))
	}
	if s != nil {
		w.moved = append(w.moved, h)
	}
}

// recordError records the first failure, for the end of the call.
func (w *model) recordError(err error) {
	if w.firstError == nil {
		w.firstError = err
	}
}

// call runs a call of the allocator, and updates the model with the blocks that it moved.
func (w *model) call(f func()) error {
	w.unmoved = nil
	w.callWrapper(f)
	landed := w.moved
	w.moved = nil
	for _, h := range landed {
		if err := h.follow(); err != nil {
			return err
		}
	}
	if w.firstError == nil && len(w.moving) > 0 {
		w.recordError(fmt.Errorf("%v was lifted, and has not landed by the end of the call", w.moving[0].b))
	}
	return w.firstError
}

// follow makes later work on a block that was moved, or may have been moved and back, wait for the stream that did, and
// for nothing else: the allocator has waited for earlier work.
func (h *testHolder) follow() error {
	m, err := h.on.Mark()
	if err != nil {
		return err
	}
	w, b := h.w, h.b
	by := slices.Index(w.streams, h.on)
	if by < 0 { // a stream of the allocator's own
		if by = b.owner; w.streams[by].WaitFor(h.on, m) != nil {
			return fmt.Errorf("%v was moved on stream %d, which cannot be waited for", b, h.on.ID())
		}
		if m, err = w.streams[by].Mark(); err != nil {
			return err
		}
	}
	b.writer, b.uses = by, []use{{by, m}}
	return nil
}

// loseContents is called after a call in which a move failed and could not be undone.
func (w *model) loseContents() {
	for _, b := range w.unmoved {
		b.lost = true
	}
}

// movable permits a block to be moved.
func (w *model) movable(b *block) error {
	if b.holder != nil {
		return nil
	}
	b.holder = &testHolder{w: w, b: b}
	ok := false
	if err := w.call(func() { ok = mem.Movable(w.a, b.Block, b.holder) }); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("Movable of %v is false, though the allocator has moved others", b)
	}
	return nil
}

// toggleRefuse makes the holder, if there is one, refuse moves from now on, or permit them again.
func (b *block) toggleRefuse() {
	if b.holder != nil {
		b.holder.refuses = !b.holder.refuses
	}
}

// compact compacts the allocator, if it can, and checks that it waits for nothing, and that the free memory is one hole
// if the holders permit it.
func (w *model) compact(stream int) error {
	c, ok := mem.Find[mem.Compactor](w.a)
	if !ok {
		return nil
	}
	pending := w.heldBack()
	before := w.moveCount
	var err error
	if wrong := w.call(func() { err = c.Compact(w.streams[stream]) }); wrong != nil {
		return wrong
	}
	for s, n := range w.heldBack() {
		if n < pending[s] {
			return fmt.Errorf("it waited for s%d", s)
		}
	}
	willing := !slices.ContainsFunc(w.live, func(b *block) bool { return b.holder == nil || b.holder.refuses })
	var failed *driver.Error
	switch {
	case err == nil && willing:
		return w.oneHole()
	case err != nil && !willing && w.moveCount == before && !errors.As(err, &failed):
		return nil // the error has the reason
	}
	return err
}

// heldBack returns the number of pieces of work that each held stream has left.
func (w *model) heldBack() map[int]int {
	out := map[int]int{}
	for s, held := range w.held {
		if held {
			out[s] = w.sim.Pending(w.streams[s].ID())
		}
	}
	return out
}

// oneHole checks that the free blocks of each segment are neighbours, unless frees are pending there.
func (w *model) oneHole() error {
	snapshotter, ok := mem.Find[mem.Snapshotter](w.a)
	if !ok {
		return nil
	}
	for _, seg := range snapshotter.Snapshot() {
		holes, pending := 0, false
		for i, b := range seg.Blocks {
			pending = pending || b.State == mem.ActivePendingFree
			if b.State == mem.Inactive && (i == 0 || seg.Blocks[i-1].State != mem.Inactive) {
				holes++
			}
		}
		if holes > 1 && !pending {
			return fmt.Errorf("every block may be moved, and the segment at %#x is left with %d holes", uint64(seg.Ptr),
				holes)
		}
	}
	return nil
}

// generateMoves is generate, with most blocks movable most of the time.
func generateMoves(cfg Config, seed uint64, n, maxLive int) history {
	rng := rand.New(rand.NewPCG(seed, 0x6d6f7665))
	var h history
	next := 0
	for _, o := range generate(cfg, seed, n, maxLive) {
		h = append(h, o)
		if o.kind == opAlloc {
			if next = o.block + 1; rng.IntN(8) > 0 {
				h = append(h, op{kind: opMovable, block: o.block})
			}
		}
		switch p := rng.IntN(24); {
		case p < 2:
			h = append(h, op{kind: opCompact, stream: rng.IntN(cfg.Streams)})
		case p < 4 && next > 0:
			h = append(h, op{kind: opRefuse, block: max(0, next-1-rng.IntN(maxLive))})
		}
	}
	return h
}
