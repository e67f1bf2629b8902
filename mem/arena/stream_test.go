package arena_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// A request whose memory no other stream used makes no driver call, nor does any Free; one that follows another waits
// for it once, as long as that frees nothing more there.
func TestWarmCalls(t *testing.T) {
	w := simWorld(t, 1<<20)
	calls := func(what string, waits int64, f func()) {
		t.Helper()
		before := w.sim.Calls()
		f()
		after := w.sim.Calls()
		if n := after.Total().Count - before.Total().Count; n != 2*waits { // a mark and a wait
			t.Errorf("%s: %d driver calls, want %d", what, n, 2*waits)
		}
	}
	var b mem.Block
	get := func(stream int) func() {
		return func() {
			var err error
			b, err = w.root.Alloc(w.streams[stream], 4*kib)
			w.must(err)
		}
	}
	calls("fresh memory", 0, get(1))
	calls("Free", 0, func() { w.root.Free(b) })
	calls("memory of the same stream", 0, get(1))
	calls("Free with others", 0, func() { w.root.Free(b, w.streams[1], w.streams[2], w.streams[3]) })
	calls("memory of three", 2, get(1))
	calls("Free", 0, func() { w.root.Free(b) })
	calls("memory of three, two of which were waited for", 0, get(1))
	calls("Free", 0, func() { w.root.Free(b) })
	calls("another stream", 3, get(0))
	w.root.Free(b)
	w.finish()
}

// A hole between moved blocks that stays unchanged keeps its history.
func TestCompactKeepsPasts(t *testing.T) {
	w := simWorld(t, 256*kib)
	one, two, three := w.streams[1], w.streams[2], w.streams[3]
	low := w.mustAlloc(w.root, one, 4*kib, true)
	w.mustAlloc(w.root, one, 4*kib, true)
	w.mustAlloc(w.root, one, 4*kib, false)
	between := w.mustAlloc(w.root, one, 16*kib, true)
	w.mustAlloc(w.root, one, 4*kib, false)
	high := w.mustAlloc(w.root, one, 4*kib, true)
	w.mustAlloc(w.root, one, 4*kib, true)
	w.sim.Hold(one.ID())
	w.fill(between, one)
	for _, b := range []*block{low, between, high} {
		w.free(b)
	}
	w.must(w.root.Compact(two))
	if w.moved != 2 {
		t.Fatalf("%d blocks were moved, want those beside", w.moved)
	}
	if b := w.mustAlloc(w.root, three, 16*kib, true); b.Ptr != between.Ptr { // filled at once
		t.Errorf("a block in the place of one at %#x is at %#x", between.Ptr, b.Ptr)
	}
	w.finish()
}

// A stream that is closed has done its work: no stream waits for it, and a new one with its number is not taken for it.
func TestClosedStreams(t *testing.T) {
	w := simWorld(t, 256*kib)
	old := w.streams[3]
	b := w.mustAlloc(w.root, old, 128*kib, true)
	c := w.mustAlloc(w.root, old, 128*kib, true)
	w.must(old.Close())
	w.streams[3] = w.newStream()
	if w.streams[3].ID() != old.ID() {
		t.Fatal("the device did not give the number to the new stream")
	}
	d := w.streams[3]
	w.sim.Hold(d.ID())
	w.fill(c, d)
	w.root.Free(b.Block, old, d) // told of both, the closed one first
	w.blocks = w.blocks[1:]
	e := w.mustAlloc(w.root, w.streams[1], 128*kib, true)
	w.free(e)
	w.fill(c, w.streams[2])
	w.root.Free(c.Block, d, old, w.streams[2]) // and last: the new one's work must not be forgotten
	w.blocks = nil
	w.mustAlloc(w.root, w.streams[1], 256*kib, true)
	// A stream of the model's own that is closed cannot be allocated for.
	if _, err := w.root.Alloc(old, 512); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("Alloc in a full arena: %v", err)
	}
	w.free(w.blocks[0])
	x := w.mustAlloc(w.root, w.streams[2], 512, false)
	w.free(x)
	if _, err := w.root.Alloc(old, 64*kib); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Alloc for a closed stream of memory that others used: %v", err)
	}
	w.agree()
	w.finish()
}

// Where a stream captures a graph: a wait that cannot be had is an error, and nothing has changed; no stream is drawn
// into the capture, and nothing is moved in one.
func TestCapturingStreams(t *testing.T) {
	w := simWorld(t, 256*kib)
	g := w.dev.Graphs()
	one, two := w.streams[1], w.streams[2]
	b := w.mustAlloc(w.root, one, 256*kib, true)
	w.free(b)
	w.must(g.Begin(one))
	before := w.root.Snapshot()
	if _, err := w.root.Alloc(two, 512); !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("Alloc where a capturing stream worked: %v, want ErrCapturing", err)
	}
	if c, err := g.Capturing(two); err != nil || c {
		t.Errorf("it was drawn into the capture: %t, %v", c, err)
	}
	if after := w.root.Snapshot(); !slices.Equal(before[0].Blocks, after[0].Blocks) {
		t.Errorf("a request that failed has left %v", after[0].Blocks)
	}
	w.must(w.root.Compact(one))      // there is nothing to move
	a, err := w.root.Alloc(one, 512) // its own memory is its own
	w.must(err)
	w.root.Free(a)
	graph, err := g.End(one)
	w.must(err)
	w.must(graph.Close())

	w.checkerboard(w.root, 16*kib, true)
	w.must(g.Begin(one))
	places := w.root.Snapshot()[0].Blocks
	lifts := w.lifts
	if err := w.root.Compact(one); !errors.Is(err, driver.ErrCapturing) || w.lifts != lifts {
		t.Errorf("Compact on a stream that captures: %v, %d lifts", err, w.lifts-lifts)
	}
	if _, err := w.root.Alloc(one, 64*kib); !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("Alloc that needs blocks moved, on a stream that captures: %v", err)
	}
	if err := w.root.Compact(two); !errors.Is(err, driver.ErrCapturing) || w.lifted != 0 {
		t.Errorf("Compact where a stream that captures uses blocks: %v; %d blocks have not landed", err, w.lifted)
	}
	if after := w.root.Snapshot()[0].Blocks; !slices.Equal(places, after) {
		t.Error("blocks were moved")
	}
	graph, err = g.End(one)
	w.must(err)
	w.must(graph.Close())
	w.must(w.root.Compact(two))
	w.finish()
}

// A request passes over memory that it cannot have while a stream captures, and takes other memory where there is some.
func TestAllocBesideACapture(t *testing.T) {
	w := simWorld(t, 256*kib)
	g := w.dev.Graphs()
	one, two := w.streams[1], w.streams[2]
	var captures, free []*block
	for i := range 8 { // 16 KiB each, with 16 KiB of another between and behind
		s := []driver.Stream{one, two}[i/4]
		b := w.mustAlloc(w.root, s, 16*kib, false)
		w.mustAlloc(w.root, two, 16*kib, false)
		if s == one {
			captures = append(captures, b)
		} else {
			free = append(free, b)
		}
	}
	for _, b := range append(slices.Clone(captures), free...) {
		w.free(b)
	}
	before := w.root.Snapshot()[0].Blocks
	w.must(g.Begin(one))
	a := w.mustAlloc(w.root, two, 8*kib, true)
	if a.Ptr != free[0].Ptr {
		t.Errorf("the block is at %#x, want it at %#x", a.Ptr, free[0].Ptr)
	}
	ooms := w.root.Stats().NumOOMs
	if n := w.root.Stats().InactiveSplit.All.Current; n != int64(len(holes(w.root))) {
		t.Errorf("%d holes are counted of %d", n, len(holes(w.root)))
	}
	for range 3 {
		w.mustAlloc(w.root, two, 16*kib, true)
	}
	if _, err := w.root.Alloc(two, 16*kib); !errors.Is(err, driver.ErrCapturing) || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("Alloc where only the capturing stream's memory is left: %v", err)
	}
	if n := w.root.Stats().NumOOMs; n != ooms {
		t.Errorf("%d requests are counted as out of memory", n-ooms)
	}
	graph, err := g.End(one)
	w.must(err)
	w.must(graph.Close())
	if b := w.mustAlloc(w.root, two, 16*kib, true); b.Ptr != captures[0].Ptr || before[0].Ptr != b.Ptr {
		t.Errorf("afterwards a block is at %#x, want it in the lowest hole at %#x", b.Ptr, captures[0].Ptr)
	}
	w.finish()
}

// A failed wait changes nothing: it is only made again.
func TestFailedWait(t *testing.T) {
	inner := drivertest.OpenSim(t, 64<<20)
	dev := fault.Wrap(inner)
	closeDevice(t, dev)
	w := newWorld(t, dev, arena.Config{Size: 256 * kib}, 1)
	w.sim = inner
	w.free(w.mustAlloc(w.root, w.streams[1], 256*kib, true))
	for _, kind := range []intercept.Kind{intercept.Mark, intercept.WaitFor, intercept.Capturing} {
		dev.SetRules(fault.Rule{Kind: kind})
		b, err := w.root.Alloc(w.streams[2], 4*kib)
		dev.SetRules()
		if !errors.Is(err, driver.ErrLost) || b != (mem.Block{}) {
			t.Errorf("%s fails, and Alloc gives %+v, %v", kind, b, err)
		}
		w.agree()
	}
	w.mustAlloc(w.root, w.streams[2], 256*kib, true)
	w.finish()
}

// Goroutines allocate, free, read addresses and compact at once, with holders that have locks of their own (BMEngine's
// collection runs without its lock).
func TestConcurrentHolders(t *testing.T) {
	const workers = 4
	dev := openHost(t)
	root, err := arena.New(dev, arena.Config{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	kid, err := root.Child(256 * kib)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range workers {
		wg.Go(func() {
			s, err := dev.NewStream(driver.StreamOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			rng := rand.New(rand.NewPCG(5, uint64(n)))
			a := []*arena.Arena{root, kid}[n%2]
			var own []*locked
			defer func() {
				for _, l := range own {
					l.free(t, a)
				}
			}()
			for range 800 {
				switch op := rng.IntN(16); {
				case op < 8:
					l, err := newLocked(a, s, 1+rng.Int64N(20*kib), byte(1+rng.IntN(255)))
					if errors.Is(err, mem.ErrNoMemory) {
						break
					}
					if err != nil {
						t.Error(err)
						return
					}
					own = append(own, l)
				case op == 8:
					if err := a.Compact(s); err != nil && !errors.Is(err, arena.ErrPinned) {
						t.Error(err)
						return
					}
				case op == 9:
					h := a.Pin()
					a.Stats()
					h.Release()
				case op == 10:
					a.Snapshot()
				case len(own) > 0:
					i := rng.IntN(len(own))
					own[i].free(t, a)
					own = slices.Delete(own, i, i+1)
				}
			}
		})
	}
	wg.Wait()
	for _, a := range []*arena.Arena{kid, root} {
		if err := errors.Join(a.Check(), a.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A locked holder is used by one goroutine and moved by all.
type locked struct {
	s     driver.Stream
	value byte

	mu    sync.Mutex // held from BeginMove to EndMove
	gone  bool
	block mem.Block
}

func newLocked(a *arena.Arena, s driver.Stream, size int64, value byte) (*locked, error) {
	b, err := a.Alloc(s, size)
	if err != nil {
		return nil, err
	}
	l := &locked{s: s, block: b, value: value}
	if err := s.Fill(b.Ptr, value, b.Size); err != nil {
		return nil, err
	}
	a.Movable(b, l)
	return l, nil
}

func (l *locked) BeginMove() ([]driver.Stream, bool) {
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return nil, false
	}
	return nil, true
}

func (l *locked) EndMove(b mem.Block, s driver.Stream) {
	defer l.mu.Unlock()
	l.block = b
	if s == nil || s == l.s {
		return
	}
	m, err := s.Mark()
	if err == nil {
		err = l.s.WaitFor(s, m)
	}
	if err != nil {
		panic(err)
	}
}

// free looks at the contents and gives the block back.
func (l *locked) free(t *testing.T, a *arena.Arena) {
	l.mu.Lock()
	got := make([]byte, l.block.Size)
	err := l.s.CopyOut(got, l.block.Ptr)
	l.gone = true
	b := l.block
	l.mu.Unlock() // the arena may be waiting for it
	if err != nil || slices.ContainsFunc(got, func(v byte) bool { return v != l.value }) {
		t.Errorf("%+v has lost its contents: %v", b, err)
	}
	a.Free(b)
}

// Streams with high numbers are told apart: what each of many has freed it gets again without a call of the device, and
// another waits for those alone that used the memory; also after a compaction on one.
func TestDefect22_StreamsWithHighNumbersWaitForNoOthers(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	a := newArena(t, dev, arena.Config{Size: 1 << 20})
	streams := make([]driver.Stream, 100)
	blocks := make([]mem.Block, len(streams))
	alloc := func(i int, size int64) mem.Block {
		t.Helper()
		b, err := a.Alloc(streams[i], size)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for i := range streams {
		var err error
		if streams[i], err = dev.NewStream(driver.StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		blocks[i] = alloc(i, 4*kib)
	}
	waits := func(what string, want int64, do func()) {
		t.Helper()
		before := dev.Calls()[sim.CallWaitFor].Count
		do()
		if n := dev.Calls()[sim.CallWaitFor].Count - before; n != want {
			t.Errorf("%s: %d waits, want %d", what, n, want)
		}
	}
	waits("each its own", 0, func() {
		for i := range streams {
			a.Free(blocks[i])
			blocks[i] = alloc(i, 4*kib)
		}
	})
	waits("one hole of three others", 3, func() {
		a.Free(blocks[64])
		a.Free(blocks[65], streams[2])
		blocks[64] = alloc(99, 8*kib)
	})
	waits("the second half of it, by one of those", 1, func() {
		a.Free(blocks[64])
		blocks[64] = alloc(65, 8*kib)
	})
}

// A block that two streams move in turn is moved by the second after the first.
func TestCompactFollowsTheLastMove(t *testing.T) {
	w := simWorld(t, 256*kib)
	first := w.mustAlloc(w.root, w.streams[0], 4*kib, true)
	middle := w.mustAlloc(w.root, w.streams[0], 4*kib, true)
	last := w.mustAlloc(w.root, w.streams[0], 4*kib, true)
	for i, b := range []*block{middle, first} {
		w.free(b)
		w.must(w.root.Compact(w.streams[1+i]))
		if last.Ptr != b.Ptr {
			t.Fatalf("the last block is at %#x, want %#x", last.Ptr, b.Ptr)
		}
	}
	w.check(last, w.streams[2])
	w.finish() // the device reports no race
}
