package layer_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
)

var (
	stackCount = flag.Int("stacks", 120, "how many random stacks of adaptors are tried")
	stackSeed  = flag.Uint64("stackseed", 0, "the seed of the first of them; 0 is a fresh one")
)

// Adaptors in any order, up to six on one allocator, over a device of which calls fail: blocks keep their contents
// wherever they are moved, streams wait for each other where they must, and in the end nothing is left.
func TestRandomStacksKeepContents(t *testing.T) {
	seed := testkit.SeedFlag(t, "stackseed", *stackSeed)
	var sum tower
	for i := range uint64(*stackCount) {
		w := &tower{rng: rand.New(rand.NewPCG(seed+i, 0x737461636b))}
		if err := w.try(); err != nil {
			t.Fatalf("-stackseed %d: %s\n%v", seed+i, strings.Join(w.names, " over "), err)
		}
		sum.allocs, sum.refused = sum.allocs+w.allocs, sum.refused+w.refused
		sum.moved, sum.spilled, sum.failed = sum.moved+w.moved, sum.spilled+w.spilled, sum.failed+w.failed
	}
	t.Logf("%d blocks, %d requests refused, %d moves, %d spilled, %d driver calls failed",
		sum.allocs, sum.refused, sum.moved, sum.spilled, sum.failed)
	if *stackCount >= 100 && (sum.moved == 0 || sum.spilled == 0 || sum.failed == 0 || sum.refused == 0) {
		t.Error("some of what was to be tried has not happened")
	}
}

// A tower is a stack of adaptors, and a model of the live blocks from it.
type tower struct {
	rng     *rand.Rand
	dev     *fault.Device
	streams []driver.Stream
	scratch driver.Pointer // a piece for each stream
	top     mem.Allocator
	names   []string
	closers []io.Closer
	zeroed  bool // blocks come as zeros
	faults  bool
	blocks  []*brick
	wrong   error // what a holder saw go wrong

	allocs, refused, moved, spilled int
	failed                          int64
}

// A brick is a live block. It is written on its own stream alone.
type brick struct {
	mem.Block
	w       *tower
	own     driver.Stream
	readers []driver.Stream
	pattern byte
	busy    bool // it is being freed
	lifted  bool
}

const towerScratch = 256

func (w *tower) try() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	inner := sim.New(sim.Options{Total: 24 << 20, Completion: sim.AtRandom, Seed: w.rng.Uint64(), CallSites: *stackSeed != 0})
	w.dev = fault.Wrap(inner)
	w.streams = []driver.Stream{w.dev.DefaultStream()}
	for range 2 {
		s, err := w.dev.NewStream(driver.StreamOptions{})
		if err != nil {
			return err
		}
		w.streams = append(w.streams, s)
	}
	if w.scratch, err = w.dev.Alloc(towerScratch * int64(len(w.streams))); err != nil {
		return err
	}
	before, leaks := w.free(), inner.Leaks().String()
	w.build()
	w.faults = w.rng.IntN(2) == 0
	for range 70 {
		if err := w.step(); err != nil {
			return err
		}
	}
	w.faults = false
	for len(w.blocks) > 0 {
		if err := w.give(w.blocks[w.rng.IntN(len(w.blocks))]); err != nil {
			return err
		}
	}
	if trimmer, ok := mem.Find[mem.Trimmer](w.top); ok {
		if err := trimmer.EmptyCache(); err != nil {
			return err
		}
	}
	for _, c := range w.closers {
		if err := c.Close(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	if reports := inner.Reports(); len(reports) > 0 {
		return fmt.Errorf("the device reports: %w", errors.Join(reports...))
	}
	if now := w.free(); now != before || inner.Leaks().String() != leaks {
		return fmt.Errorf("%d bytes are left behind: %v", before-now, inner.Leaks())
	}
	return inner.Close()
}

func (w *tower) free() int64 {
	free, _, _ := w.dev.Available()
	return free
}

// base makes an allocator of the device's.
func (w *tower) base() mem.Allocator {
	var a mem.Allocator
	var err error
	switch w.rng.IntN(3) {
	case 0:
		a, err = caching.New(w.dev, caching.Default())
		w.names = append(w.names, "caching")
	case 1:
		a = direct.New(w.dev, direct.Config{Session: w.rng.IntN(2) == 0})
		w.names = append(w.names, "direct")
	default:
		a, err = arena.New(w.dev, arena.Config{Size: 3 << 20, Bounce: 64 << 10})
		w.names = append(w.names, "arena")
	}
	if err != nil {
		panic(err)
	}
	w.closers = append(w.closers, a.(io.Closer))
	return a
}

// build makes the stack. w.names begins with the top.
func (w *tower) build() {
	w.top = w.base()
	for range 1 + w.rng.IntN(6) {
		name := w.add()
		w.names = slices.Insert(w.names, 0, name)
		switch strings.Fields(name)[0] {
		case "zero":
			w.zeroed = true
		case "slab", "binning", "fallback": // what was used is allocated again, or comes from elsewhere
			w.zeroed = false
		}
	}
}

func (w *tower) add() string {
	a := w.top
	limit := int64(1+w.rng.IntN(4)) << 20
	switch w.rng.IntN(14) {
	case 0:
		w.top = layer.NewLimiter(a, limit)
		return fmt.Sprintf("limit %d", limit)
	case 1:
		w.top = layer.NewLeakTracker(a, layer.LeakTrackerOptions{Depth: -1, Freed: 2})
		return "track"
	case 2:
		w.top = layer.NewScope(a)
		return "scope"
	case 3:
		w.top = layer.NewCounter(a)
		return "measure"
	case 4:
		w.top = layer.NewLogger(a, io.Discard, nil)
		return "log"
	case 5:
		w.top = layer.NewZeroer(a)
		return "zero"
	case 6:
		w.top = layer.NewPrefetcher(a, nil)
		return "prefetch"
	case 7:
		steps := []layer.Step{w.spill}
		if _, ok := mem.Find[mem.Trimmer](a); ok {
			steps = append(steps, layer.TrimStep(a))
		}
		if _, ok := mem.Find[mem.Compactor](a); ok {
			steps = append(steps, layer.CompactStep(a))
		}
		w.top = layer.NewRetry(a, layer.RetryOptions{Steps: steps})
		return fmt.Sprintf("retry %d", len(steps))
	case 8:
		quotas := layer.NewQuotas(a, limit)
		t, err := quotas.Tenant("a", limit/4, limit)
		if err != nil {
			panic(err)
		}
		w.top = t
		return fmt.Sprintf("quota %d", limit)
	case 9:
		to := int64(512) << w.rng.IntN(5)
		w.top = layer.NewAligner(a, to, layer.AlignerOptions{From: 1, Above: w.rng.Int64N(2000)})
		return fmt.Sprintf("align %d", to)
	case 10:
		zone := int64(1 + w.rng.IntN(400))
		w.top = layer.NewGuard(a, layer.GuardOptions{Zone: zone})
		return fmt.Sprintf("guard %d", zone)
	case 11:
		if _, ok := mem.Find[*layer.Zeroer](a); ok {
			return w.add() // Slabs refuse it
		}
		size, n := int64(1)<<(6+w.rng.IntN(8)), int64(1+w.rng.IntN(20))
		w.top = layer.NewSlabs(a, size, n)
		return fmt.Sprintf("slab %d*%d", size, n)
	case 12:
		w.top = layer.NewSizeTracker(a, layer.SizeTrackerOptions{From: 1, Empty: w.rng.IntN(2) == 0})
		return "tracked"
	}
	names := w.names
	w.names = nil
	other := w.base()
	name := fmt.Sprintf("binning (4096 %s)", w.names[0])
	w.top = layer.NewBinning(a, layer.Bin{Size: 4096, Allocator: other})
	if w.rng.IntN(2) == 0 {
		w.top, name = layer.NewFallback(a, other), fmt.Sprintf("fallback (%s)", w.names[0])
	}
	w.names = names
	return name
}

// call runs a call of the stack, in which driver calls may fail.
func (w *tower) call(f func()) error {
	w.rules(w.faults)
	f()
	w.rules(false)
	return w.wrong
}

func (w *tower) rules(on bool) {
	w.failed += w.dev.Failed()
	if on {
		w.dev.SetRules(fault.Rule{Rate: 0.03, Seed: w.rng.Uint64()})
	} else {
		w.dev.SetRules()
	}
}

func (w *tower) step() (err error) {
	p := w.rng.IntN(20)
	switch {
	case p < 10 || len(w.blocks) == 0:
		return w.take()
	case p < 15:
		return w.give(w.blocks[w.rng.IntN(len(w.blocks))])
	case p < 18:
		return w.read(w.blocks[w.rng.IntN(len(w.blocks))])
	}
	var failed error
	if p == 18 {
		if c, ok := mem.Find[mem.Compactor](w.top); ok {
			err = w.call(func() { failed = c.Compact(w.streams[w.rng.IntN(len(w.streams))]) })
		}
	} else if t, ok := mem.Find[mem.Trimmer](w.top); ok {
		err = w.call(func() { failed = t.EmptyCache() })
	}
	return errors.Join(err, w.tolerate(failed))
}

// tolerate returns an error that the stack had no reason for.
func (w *tower) tolerate(err error) error {
	var failed *driver.Error
	if err == nil || errors.Is(err, mem.ErrNoMemory) || w.faults && errors.As(err, &failed) {
		return nil
	}
	return fmt.Errorf("an error without a reason: %w", err)
}

// take allocates a block and writes it.
func (w *tower) take() error {
	size := 1 + w.rng.Int64N(1<<(4+w.rng.IntN(18)))
	b := &brick{w: w, own: w.streams[w.rng.IntN(len(w.streams))], pattern: byte(1 + w.rng.IntN(255))}
	var failed error
	request := func() { b.Block, failed = w.top.Alloc(b.own, size) }
	switch t, ok := w.top.(*layer.SizeTracker); {
	case ok && w.rng.IntN(3) == 0:
		alignment := int64(1) << w.rng.IntN(13)
		request = func() {
			if b.Block, failed = t.AllocRaw(b.own, alignment, size, w.wishes()); failed == nil && int64(b.Ptr)%alignment != 0 {
				w.wrong = fmt.Errorf("%+v is no multiple of %d", b.Block, alignment)
			}
		}
	case w.rng.IntN(3) == 0:
		request = func() { b.Block, failed = mem.AllocWith(w.top, b.own, size, w.wishes()) }
	}
	if err := w.call(request); err != nil {
		return err
	}
	if failed != nil {
		w.refused++
		return w.tolerate(failed)
	}
	w.allocs++
	for _, o := range w.blocks {
		if b.Ptr < o.Ptr+driver.Pointer(o.Size) && o.Ptr < b.Ptr+driver.Pointer(b.Size) {
			return fmt.Errorf("%+v overlaps %+v", b.Block, o.Block)
		}
	}
	if b.Size < size {
		return fmt.Errorf("%+v for %d bytes", b.Block, size)
	}
	if w.zeroed && w.rng.IntN(4) == 0 {
		if err := b.holds(0); err != nil {
			return err
		}
	}
	w.blocks = append(w.blocks, b)
	if err := b.own.Fill(b.Ptr, b.pattern, b.Size); err != nil {
		return err
	}
	if w.rng.IntN(4) == 0 {
		return nil
	}
	return w.call(func() { mem.Movable(w.top, b.Block, b) })
}

// wishes are options that no allocator here does otherwise for, but in what it tries before it fails.
func (w *tower) wishes() mem.AllocOptions {
	o := mem.AllocOptions{NoRetry: w.rng.IntN(2) == 0, Logged: w.rng.IntN(2) == 0}
	if w.rng.IntN(2) == 0 {
		o.FreedBefore = func() uint64 { return 0 }
	}
	return o
}

// holds checks, on the block's own stream, that all its bytes have one value.
func (b *brick) holds(want byte) error {
	got := make([]byte, b.Size)
	if err := b.own.CopyOut(got, b.Ptr); err != nil {
		return err
	}
	if i := slices.IndexFunc(got, func(c byte) bool { return c != want }); i >= 0 {
		return fmt.Errorf("byte %d of %+v is %#02x, want %#02x", i, b.Block, got[i], want)
	}
	return nil
}

// read has another stream copy from a block, which no stream waits for.
func (w *tower) read(b *brick) error {
	i := w.rng.IntN(len(w.streams))
	s := w.streams[i]
	m, err := b.own.Mark()
	if err != nil {
		return err
	}
	if s != b.own {
		if err := s.WaitFor(b.own, m); err != nil {
			return err
		}
		if !slices.Contains(b.readers, s) {
			b.readers = append(b.readers, s)
		}
	}
	return s.Copy(w.scratch+driver.Pointer(i*towerScratch), b.Ptr, min(b.Size, towerScratch))
}

// give checks a block's contents and frees it.
func (w *tower) give(b *brick) error {
	if w.rng.IntN(2) == 0 {
		if err := b.holds(b.pattern); err != nil {
			return err
		}
	} // Otherwise nothing waits, and the device says if the memory is allocated too early
	b.busy = true
	w.blocks = slices.DeleteFunc(w.blocks, func(o *brick) bool { return o == b })
	return w.call(func() { w.top.Free(b.Block, b.readers...) })
}

// spill is a step that frees a block, and allocates one itself at times.
func (w *tower) spill(s driver.Stream, size int64) error {
	on := w.faults
	w.rules(false)
	w.faults = false
	defer func() { w.faults = on; w.rules(on) }()
	if w.rng.IntN(3) == 0 {
		if b, err := w.top.Alloc(s, size); err == nil {
			w.top.Free(b)
		}
	}
	if len(w.blocks) == 0 {
		return errors.New("nothing to spill")
	}
	w.spilled++
	return w.give(w.blocks[w.rng.IntN(len(w.blocks))])
}

// BeginMove implements mem.Holder.
func (b *brick) BeginMove() ([]driver.Stream, bool) {
	if b.lifted {
		b.w.wrong = fmt.Errorf("%+v is lifted twice", b.Block)
	}
	b.lifted = !b.busy && b.w.rng.IntN(5) > 0
	return b.readers, b.lifted
}

// EndMove implements mem.Holder.
func (b *brick) EndMove(at mem.Block, s driver.Stream) {
	if !b.lifted || at.Size != b.Size || s == nil && at != b.Block {
		b.w.wrong = fmt.Errorf("%+v landed as %+v", b.Block, at)
	}
	b.lifted, b.Block = false, at
	if s == nil {
		return
	}
	b.w.moved++
	b.readers = nil
	b.w.rules(false)
	if m, err := s.Mark(); err != nil || s != b.own && b.own.WaitFor(s, m) != nil {
		b.w.wrong = fmt.Errorf("a move cannot be waited for: %w", err)
	}
	b.w.rules(b.w.faults)
}
