package planned_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/invariants"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/trace"
)

// A scribe writes programs.
type scribe struct{ trace.Program }

func (s *scribe) alloc(size int64) uint32 {
	b := uint32(s.Blocks)
	s.Blocks++
	s.Streams = 1
	s.Ops = append(s.Ops, trace.Op{Kind: trace.OpAlloc, Block: b, Size: size})
	return b
}

func (s *scribe) free(b uint32) { s.Ops = append(s.Ops, trace.Op{Kind: trace.OpFree, Block: b}) }

// training is a program of steps whose gradients live into the next step, and that keep nothing else. Scale says what
// shape each step has.
func training(scales []int64) *trace.Program {
	s := &scribe{}
	const layers = 12
	for i := range layers {
		s.alloc(int64(100_000 + 512*i)) // weights
	}
	var grads []uint32
	for _, scale := range scales {
		var acts []uint32
		for i := range layers {
			acts = append(acts, s.alloc(scale*int64(5000+100*i)))
		}
		for _, g := range grads {
			s.free(g)
		}
		grads = nil
		for i := range layers {
			grads = append(grads, s.alloc(int64(100_000+512*(layers-1-i))))
			s.free(acts[layers-1-i])
		}
		for i := range 2 * layers { // the optimizer's
			s.free(s.alloc(int64(77_777 + i%3)))
		}
	}
	return &s.Program
}

// run makes a program's requests. It does not free the blocks that the program leaves live.
func run(t testing.TB, a mem.Allocator, dev driver.Device, p *trace.Program) []mem.Block {
	t.Helper()
	blocks := make([]mem.Block, p.Blocks)
	for _, op := range p.Ops {
		if op.Kind == trace.OpFree {
			a.Free(blocks[op.Block])
			blocks[op.Block] = mem.Block{}
			continue
		}
		var err error
		blocks[op.Block], err = a.Alloc(dev.DefaultStream(), op.Size)
		testkit.Must(t, err)
	}
	return blocks
}

func steps(n int, scales ...int64) (out []int64) {
	for i := range n {
		out = append(out, scales[i%len(scales)])
	}
	return out
}

// Repeating rounds are planned once and served as long as they repeat, including blocks that live from one round into
// the next.
func TestRepeating(t *testing.T) {
	for _, period := range [][]int64{{10}, {10, 3}, {1, 2, 30, 4}} {
		made := plan(t, training(steps(3*len(period), period...)), planned.Options{Steps: 1})
		l := &made.Streams[0]
		if n := len(l.Slots) - l.Loop; len(made.Streams) != 1 || l.Loop < 12 || n%(48*len(period)) != 0 || n > 2*48*len(period) {
			t.Fatalf("%v: %d slots, of which those from %d repeat", period, len(l.Slots), l.Loop)
		}
		t.Logf("%v: region %d, bound %d", period, made.Size(), made.Bound())
		if float64(made.Size()) > 1.005*float64(made.Bound()) {
			t.Errorf("%v: a region of %d bytes, the bound is %d", period, made.Size(), made.Bound())
		}
		dev := drivertest.OpenSim(t, 64<<20)
		a := open(t, dev, made)
		before := memoryCalls(dev)
		run(t, a, dev, training(steps(50*len(period), period...)))
		if c := a.Counts(); c.Missed > 0 || memoryCalls(dev) > before {
			t.Errorf("%v: %+v, %d driver calls", period, c, memoryCalls(dev)-before)
		}
	}
}

// Rounds that repeat and then end are no loop: a plan of them also has what followed.
func TestRoundsThatEndAreNoLoop(t *testing.T) {
	rounds := steps(6, 10)
	if l := plan(t, training(append(rounds, 10, 1)), planned.Options{Steps: 1}).Streams[0]; l.Loop < 0 {
		t.Error("one other round follows, which may be the first one cut short: want a loop")
	}
	made := plan(t, training(append(rounds, 1, 2, 3, 4)), planned.Options{Steps: 1})
	if l := made.Streams[0]; l.Loop >= 0 {
		t.Errorf("four other rounds follow, but the plan loops from slot %d of %d", l.Loop, len(l.Slots))
	}
}

// A plan serves steps of recorded shapes in an order other than the recorded one.
func TestShapesInAnyOrder(t *testing.T) {
	made := plan(t, training([]int64{1, 9, 4, 7, 2, 8, 3}), planned.Options{Steps: 1})
	if made.Streams[0].Loop >= 0 {
		t.Fatal("there is no period")
	}
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, made)
	p := training([]int64{3, 1, 4, 1, 9, 2, 8, 2, 7, 4, 4, 4, 3})
	run(t, a, dev, p)
	c := a.Counts()
	t.Logf("%+v", c)
	if c.Missed > 40 { // of blocks that the step before left, and of a step's first requests after one that is not the recorded one
		t.Errorf("%+v", c)
	}
	// A shape that the plan does not have is the fallback's, but for what does not depend on it.
	before := a.Counts()
	run(t, a, dev, training([]int64{5}))
	if c := a.Counts(); c.Missed == before.Missed || c.Served == before.Served {
		t.Errorf("%+v, then %+v", before, c)
	}
}

// A plan with room serves shapes that were not recorded.
func TestRoom(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	for _, room := range []int{0, 50} {
		a := open(t, dev, plan(t, training(steps(4, 10)), planned.Options{Room: room}))
		run(t, a, dev, training(steps(10, 10, 11, 12, 9, 13, 8, 14, 7)))
		if c := a.Counts(); (c.Missed == 0) != (room > 0) {
			t.Errorf("room of %d percent: %+v", room, c)
		}
		s, segments := a.Stats(), a.Snapshot()
		var asked int64
		for _, seg := range segments {
			asked += seg.RequestedSize
		}
		if s.RequestedBytes.All.Current != asked {
			t.Errorf("room of %d percent: %d bytes requested, the snapshot says %d", room, s.RequestedBytes.All.Current, asked)
		}
	}
}

// A block freed late keeps its memory; the fallback serves the requests that the plan has there.
func TestFreedLate(t *testing.T) {
	s := &scribe{}
	for range 3 {
		x := s.alloc(1000)
		s.free(x)
		y := s.alloc(2000)
		s.free(y)
	}
	dev := drivertest.OpenSim(t, 64<<20)
	made := plan(t, &s.Program, planned.Options{})
	a := open(t, dev, made)
	if made.Size() != 2048 {
		t.Fatalf("a region of %d bytes", made.Size())
	}
	get := func(size int64) mem.Block {
		b, err := a.Alloc(dev.DefaultStream(), size)
		testkit.Must(t, err)
		return b
	}
	x := get(1000)
	y := get(2000) // x is still live
	if c := a.Counts(); c.Served != 1 || c.Missed != 1 {
		t.Errorf("%+v", c)
	}
	a.Free(y)
	a.Free(x)
	x = get(1000)
	a.Free(x)
	a.Free(get(2000))
	if c := a.Counts(); c.Served != 3 || c.Missed != 1 {
		t.Errorf("%+v", c)
	}
	testkit.WantPanic(t, "a second Free", "planned: Free of", func() { a.Free(x) })
}

// The memory of a block that another stream uses is allocated once its own stream waits for that one.
func TestFreedInUse(t *testing.T) {
	s := &scribe{}
	for range 4 {
		s.free(s.alloc(1000))
	}
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, plan(t, &s.Program, planned.Options{}))
	other := drivertest.NewStream(t, dev)
	x, err := a.Alloc(dev.DefaultStream(), 1000)
	testkit.Must(t, err)
	testkit.Must(t, other.Fill(x.Ptr, 1, x.Size))
	a.Free(x, other)
	y, err := a.Alloc(dev.DefaultStream(), 1000)
	testkit.Must(t, err)
	testkit.Must(t, dev.DefaultStream().Fill(y.Ptr, 2, y.Size)) // the device finds a race otherwise
	if x.Ptr != y.Ptr || a.Counts().Missed > 0 {
		t.Errorf("%+v, then %+v, %+v", x, y, a.Counts())
	}
}

// Expected requests make no driver call and no heap allocation.
func TestWarm(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	p := rounds(100, 3)
	a := open(t, dev, plan(t, p, planned.Options{}))
	s := dev.DefaultStream()
	run(t, a, dev, rounds(0, 0))
	round := func() {
		for i := range 100 {
			b, err := a.Alloc(s, int64(512+i*1000))
			testkit.Must(t, err)
			a.Free(b)
		}
	}
	round()
	calls := dev.Calls()
	if n := testing.AllocsPerRun(20, round); n > 0 && !invariants.Enabled {
		t.Errorf("%v heap allocations in a round", n)
	}
	if dev.Calls() != calls || a.Counts().Missed > 0 {
		t.Errorf("%+v, driver calls %v, then %v", a.Counts(), calls, dev.Calls())
	}
}

// A plan is accepted only for the device and the streams that it names.
func TestMismatch(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	fallback, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	p := rounds(2, 2)
	for i := range p.Ops {
		p.Ops[i].Stream = 1
	}
	p.Streams = 2
	for _, c := range []struct {
		what    string
		device  planned.Device
		streams []driver.Stream
	}{
		{"name", planned.Device{Name: "another"}, nil},
		{"total memory", planned.Device{TotalMemory: 1 << 20}, nil},
		{"alignment", planned.Device{Alignment: 1 << 20}, nil},
		{"streams", planned.Device{}, []driver.Stream{dev.DefaultStream()}},
	} {
		_, err := planned.New(dev, plan(t, p, planned.Options{Device: c.device}), planned.Settings{Fallback: fallback, Streams: c.streams})
		if wrong := (*planned.Mismatch)(nil); !errors.As(err, &wrong) || wrong.What != c.what {
			t.Errorf("%+v: %v", c, err)
		}
	}
	info := dev.Info()
	same := planned.Device{Name: info.Name, TotalMemory: info.TotalMemory, Alignment: info.Alignment}
	a, err := planned.New(dev, plan(t, p, planned.Options{Device: same}), planned.Settings{Fallback: fallback})
	testkit.Must(t, err)
	testkit.Must(t, a.Close())
	_, err = a.Alloc(dev.DefaultStream(), 10)
	if !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Alloc of a closed allocator: %v", err)
	}
	small := sim.New(sim.Options{Total: 64 << 10, NoVirtualMemory: true})
	if _, err = planned.New(small, plan(t, training([]int64{9, 1}), planned.Options{}), planned.Settings{Fallback: fallback}); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a region on a device without room: %v", err)
	}
}

// The plan follows each stream independently, while each is used by a separate goroutine and others read statistics.
func TestConcurrent(t *testing.T) {
	one := training(steps(4, 3))
	both := &trace.Program{Streams: 2, Blocks: 2 * one.Blocks}
	for _, op := range one.Ops {
		both.Ops = append(both.Ops, op)
		op.Stream, op.Block = 1, op.Block+uint32(one.Blocks)
		both.Ops = append(both.Ops, op)
	}
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, plan(t, both, planned.Options{}))
	second := drivertest.NewStream(t, dev)
	var wait sync.WaitGroup
	for _, s := range []driver.Stream{dev.DefaultStream(), second} {
		wait.Go(func() {
			blocks := make([]mem.Block, one.Blocks)
			for _, op := range one.Ops {
				if op.Kind == trace.OpFree {
					a.Free(blocks[op.Block])
				} else if b, err := a.Alloc(s, op.Size); err == nil {
					blocks[op.Block] = b
				} else {
					t.Error(err)
				}
			}
		})
	}
	wait.Go(func() {
		for range 30 {
			a.Stats()
			a.Snapshot()
			if err := a.Check(); err != nil {
				t.Error(err)
			}
		}
	})
	// And a third shares the first stream, so that neither finds what it expects.
	wait.Go(func() {
		for i := range 200 {
			b, err := a.Alloc(dev.DefaultStream(), int64(100_000+512*(i%12)))
			if err != nil {
				t.Error(err)
			}
			a.Free(b)
		}
	})
	wait.Wait()
	if c := a.Counts(); c.Served == 0 || c.Served+c.Missed != int64(2*countAllocs(one)+200) {
		t.Errorf("%+v of %d requests", c, 2*countAllocs(one)+200)
	}
}

// A request that failed in the recording has a place beside the blocks that were live then, and the next request may
// use the same bytes. A request larger than any device has no place.
func TestDefect03_ARequestThatFailedHasAPlace(t *testing.T) {
	s := &scribe{}
	a := s.alloc(1 << 20)
	s.Ops = append(s.Ops, trace.Op{Kind: trace.OpTry, Size: 3 << 20}, trace.Op{Kind: trace.OpTry, Size: 1 << 60})
	b := s.alloc(2 << 20)
	s.free(a)
	s.free(b)
	made := plan(t, &s.Program, planned.Options{})
	if placed, all := made.Slots(); placed != 3 || all != 3 || made.Size() != 4<<20 || made.Bound() != 4<<20 {
		t.Fatalf("%d of %d requests have a place, in %d bytes", placed, all, made.Size())
	}
	dev := drivertest.OpenSim(t, 0)
	served := open(t, dev, made)
	first, err := served.Alloc(dev.DefaultStream(), 1<<20)
	testkit.Must(t, err)
	tried, err := served.Alloc(dev.DefaultStream(), 3<<20)
	testkit.Must(t, err)
	served.Free(tried)
	last, err := served.Alloc(dev.DefaultStream(), 2<<20)
	testkit.Must(t, err)
	served.Free(first)
	served.Free(last)
	if c := served.Counts(); c != (planned.Counts{Served: 3}) {
		t.Errorf("%+v", c)
	}
}

func countAllocs(p *trace.Program) int { s := p.Stats(); return s.Allocs }

// A block that another stream uses when it is freed keeps its place until that stream's work is done.
func TestDeferred(t *testing.T) {
	s := &scribe{}
	x := s.alloc(1000)
	s.Ops = append(s.Ops, trace.Op{Kind: trace.OpFreeDeferred, Block: x})
	y := s.alloc(1001)
	s.Ops = append(s.Ops, trace.Op{Kind: trace.OpComplete, Block: x})
	z := s.alloc(3000)
	p := plan(t, &s.Program, planned.Options{})
	slots := p.Streams[0].Slots
	if slots[x].End != 2 || slots[y].End != planned.Forever || slots[z].End != planned.Forever || slots[x].Offset == slots[y].Offset {
		t.Errorf("%+v", slots)
	}
}

// A block of a repeating round keeps its place for its longest lifetime in any round.
func TestLivesOfRounds(t *testing.T) {
	s := &scribe{}
	for round := range 4 {
		x := s.alloc(1000)
		for i := range 4 {
			if i == []int{1, 3, 2, 1}[round] {
				s.free(x)
			}
			s.free(s.alloc(int64(2000 + i)))
		}
	}
	p := plan(t, &s.Program, planned.Options{})
	if l := p.Streams[0]; l.Loop != 0 || len(l.Slots) != 5 || l.Slots[0].End != 4 {
		t.Errorf("%+v", l)
	}
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, p)
	run(t, a, dev, &s.Program)
	if c := a.Counts(); c.Missed > 0 {
		t.Errorf("%+v", c)
	}
}

// The fallback serves blocks that outlive four rounds. Blocks that outlive one round are planned for several.
func TestLongLivesOfRounds(t *testing.T) {
	s := &scribe{}
	var kept []uint32
	for range 12 {
		kept = append(kept, s.alloc(1000))
		if n := len(kept); n > 2 {
			s.free(kept[n-3])
		}
		s.alloc(77) // never freed
		s.free(s.alloc(3000))
	}
	p := plan(t, &s.Program, planned.Options{})
	if placed, all := p.Slots(); p.Streams[0].Loop != 0 || all != 9 || placed != 6 || p.Size() > 3*1024+3072 {
		t.Errorf("%+v", p)
	}
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, p)
	run(t, a, dev, &s.Program)
	if c := a.Counts(); c.Missed != 12 || c.Served != 24 {
		t.Errorf("%+v", c)
	}
}

// A block that streams with high IDs use is allocated again once its stream waits for exactly those streams, in many
// combinations.
func TestDefect22_StreamsWithHighNumbersWaitForNoOthers(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	streams := make([]driver.Stream, 100)
	for i := range streams {
		streams[i] = drivertest.NewStream(t, dev)
	}
	s := &scribe{}
	const rounds = 2000
	for range rounds {
		s.free(s.alloc(4096))
	}
	a := open(t, dev, plan(t, &s.Program, planned.Options{}))
	var used []driver.Stream
	for i := range rounds {
		before := dev.Calls()[sim.CallWaitFor].Count
		b, err := a.Alloc(dev.DefaultStream(), 4096)
		testkit.Must(t, err)
		// the device reports it if another still uses the block
		testkit.Must(t, dev.DefaultStream().Fill(b.Ptr, byte(i), b.Size))
		if n := dev.Calls()[sim.CallWaitFor].Count - before; n != int64(len(used)) {
			t.Fatalf("round %d: %d waits for %d streams that used the block", i, n, len(used))
		}
		used = []driver.Stream{streams[i%64], streams[64+i%36]}
		m, err := dev.DefaultStream().Mark()
		testkit.Must(t, err)
		for j, u := range used { // each a half
			testkit.Must(t, u.WaitFor(dev.DefaultStream(), m))
			testkit.Must(t, u.Fill(b.Ptr+driver.Pointer(2048*j), byte(i), 2048))
		}
		a.Free(b, used...)
	}
	if n := a.Counts().Missed; n != 0 {
		t.Errorf("the fallback served %d requests", n)
	}
}

// After an unexpected request, two requests in a row that the plan has not far on are enough to find the position again.
func TestTwoRequestsInARowAreFound(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	s := &scribe{}
	for i := range int64(20) {
		s.alloc(100_000 * (i + 1))
	}
	a := open(t, dev, plan(t, &s.Program, planned.Options{}))
	var blocks []mem.Block
	for _, size := range []int64{1, 2, 3, 70, 7, 8, 9, 10} {
		b, err := a.Alloc(dev.DefaultStream(), 100_000*size)
		testkit.Must(t, err)
		blocks = append(blocks, b)
	}
	testkit.Equal(t, "requests that the plan did not serve", a.Counts().Missed, 2)
	for _, b := range blocks {
		a.Free(b)
	}
}
