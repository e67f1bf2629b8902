package planned_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/trace"
)

// A closer counts its Close calls. The first one fails.
type closer struct {
	mem.Allocator
	n int
}

var errNotYet = errors.New("not yet")

func (c *closer) Close() error {
	if c.n++; c.n == 1 {
		return errNotYet
	}
	return nil
}

// After a Close that fails, the allocator still works, or the next Close finishes. The fallback is closed once.
func TestClose(t *testing.T) {
	inner := drivertest.OpenSim(t, 64<<20)
	dev := fault.Wrap(inner)
	under, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	fallback := &closer{Allocator: under}
	a, err := planned.New(dev, plan(t, rounds(3, 3), planned.Options{}), planned.Settings{Fallback: fallback})
	testkit.Must(t, err)
	b, err := a.Alloc(dev.DefaultStream(), 10_000)
	testkit.Must(t, err)
	if err := a.Close(); err == nil || fallback.n > 0 {
		t.Errorf("Close with a live block: %v", err)
	}
	a.Free(b)
	if err := a.Close(); !errors.Is(err, errNotYet) {
		t.Errorf("Close of the fallback: %v", err)
	}
	b, err = a.Alloc(dev.DefaultStream(), 10_001)
	testkit.Must(t, err)
	a.Free(b)
	if c := a.Counts(); c.Served != 2 {
		t.Errorf("%+v after a Close that failed", c)
	}
	dev.SetRules(fault.Rule{Kind: intercept.Free, Nth: 1})
	if err := a.Close(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Close with a device that does not free: %v", err)
	}
	if _, err := a.Alloc(dev.DefaultStream(), 10_002); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
	testkit.Must(t, a.Close())
	testkit.Must(t, a.Close())
	if free, total, err := inner.Available(); err != nil || free != total || fallback.n != 2 {
		t.Errorf("%d bytes of %d are free, %v; the fallback was closed %d times", free, total, err, fallback.n)
	}
}

// The peak includes blocks that are freed late, besides the live blocks of the plan.
func TestPeakWithLateBlocks(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, &planned.Plan{Streams: []planned.StreamPlan{{Loop: -1, Size: 4096, Slots: []planned.Slot{
		{Size: 1024, Offset: 0, End: 1}, {Size: 3072, Offset: 1024, End: 2},
	}}}})
	late, err := a.Alloc(dev.DefaultStream(), 1024)
	testkit.Must(t, err)
	b, err := a.Alloc(dev.DefaultStream(), 3072)
	testkit.Must(t, err)
	a.Free(b)
	a.Free(late)
	if s := a.Stats(); s.AllocatedBytes.All.Peak != 4096 || a.Counts().Served != 2 {
		t.Errorf("%+v, %+v", s.AllocatedBytes.All, a.Counts())
	}
}

// The peak includes the live blocks of streams that make no requests while those of another come and go.
func TestPeakOfSeveralStreams(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	other, err := dev.NewStream(driver.StreamOptions{})
	testkit.Must(t, err)
	a := open(t, dev, &planned.Plan{Streams: []planned.StreamPlan{
		{Loop: -1, Size: 4096, Slots: []planned.Slot{{Size: 4096, End: planned.Forever}}},
		{Stream: 1, Loop: 0, Size: 1024, Slots: []planned.Slot{{Size: 1024, End: 1}}},
	}})
	kept, err := a.Alloc(dev.DefaultStream(), 4096)
	testkit.Must(t, err)
	if s := a.Stats(); s.AllocatedBytes.All.Peak != 4096 {
		t.Fatalf("%+v", s.AllocatedBytes.All)
	}
	for range 3 {
		b, err := a.Alloc(other, 1024)
		testkit.Must(t, err)
		a.Free(b)
	}
	if s := a.Stats(); s.AllocatedBytes.All.Peak != 5120 || s.Allocation.All.Peak != 2 {
		t.Errorf("%+v, %+v", s.AllocatedBytes.All, s.Allocation.All)
	}
	a.Free(kept)
	if c := a.Counts(); c.Served != 4 {
		t.Errorf("%+v", c)
	}
}

// After a reset the peak is of the blocks since then, and not of earlier ones.
func TestPeakAfterReset(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, &planned.Plan{Streams: []planned.StreamPlan{{Loop: 1, Size: 8192, Slots: []planned.Slot{
		{Size: 8192, End: 1}, {Size: 512, End: 2},
	}}}})
	use := func(size int64) {
		b, err := a.Alloc(dev.DefaultStream(), size)
		testkit.Must(t, err)
		a.Free(b)
	}
	use(8192)
	a.ResetPeakStats()
	for range 5 {
		use(512)
	}
	if s := a.Stats(); s.AllocatedBytes.All.Peak != 512 || a.Counts().Served != 6 {
		t.Errorf("%+v, %+v", s.AllocatedBytes.All, a.Counts())
	}
}

// The peak includes a block that the plan has live from one round into the next.
func TestPeakOfRounds(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, &planned.Plan{Streams: []planned.StreamPlan{{Loop: 0, Size: 3072, Slots: []planned.Slot{
		{Size: 1024, Offset: 0, End: 1}, {Size: 2048, Offset: 1024, End: 3},
	}}}})
	var kept mem.Block
	for round := range 3 {
		b, err := a.Alloc(dev.DefaultStream(), 1024)
		testkit.Must(t, err)
		a.Free(kept)
		a.Free(b)
		if kept, err = a.Alloc(dev.DefaultStream(), 2048); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			a.ResetPeakStats()
		}
	}
	a.Free(kept)
	if s := a.Stats(); s.AllocatedBytes.All.Peak != 3072 || s.Allocation.All.Peak != 2 || a.Counts().Served != 6 {
		t.Errorf("%+v, %+v, %+v", s.AllocatedBytes.All, s.Allocation.All, a.Counts())
	}
}

// A neighbour is a fallback whose blocks begin at an address.
type neighbour struct {
	at    driver.Pointer
	freed []mem.Block
}

func (n *neighbour) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	return mem.Block{Ptr: n.at, Size: size}, nil
}

func (n *neighbour) Free(b mem.Block, _ ...driver.Stream) { n.freed = append(n.freed, b) }

func (n *neighbour) SlowSizes(driver.Pointer) (requested, allocated int64, ok bool) {
	return 7, 9, true
}

// A block of the fallback may lie right behind the region, or right before it.
func TestFallbackBesideTheRegion(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	fallback := &neighbour{}
	a, err := planned.New(dev, &planned.Plan{Streams: []planned.StreamPlan{
		{Loop: -1, Size: 512, Slots: []planned.Slot{{Size: 512, End: planned.Forever}}},
	}}, planned.Settings{Fallback: fallback})
	testkit.Must(t, err)
	own, err := a.Alloc(dev.DefaultStream(), 512)
	testkit.Must(t, err)
	for i, at := range []driver.Pointer{own.Ptr + 512, own.Ptr - 512} {
		fallback.at = at
		b, err := a.Alloc(dev.DefaultStream(), 512)
		testkit.Must(t, err)
		if requested, allocated, ok := a.SlowSizes(b.Ptr); !ok || requested != 7 || allocated != 9 {
			t.Errorf("SlowSizes of %+v: %d, %d, %v", b, requested, allocated, ok)
		}
		a.Free(b)
		if len(fallback.freed) != i+1 || fallback.freed[i] != b {
			t.Errorf("the fallback has %+v back, want %+v last", fallback.freed, b)
		}
	}
	a.Free(own)
	testkit.Must(t, a.Close())
}

// A plan's room is a percentage of every byte of the recorded size.
func TestRoomOfSmallRequests(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	a := open(t, dev, &planned.Plan{Room: 1000, Streams: []planned.StreamPlan{
		{Loop: 0, Size: 1536, Slots: []planned.Slot{{Size: 99, End: 1}}},
	}})
	for i, size := range []int64{9, 1089, 8, 1090} {
		b, err := a.Alloc(dev.DefaultStream(), size)
		testkit.Must(t, err)
		a.Free(b)
		if c := a.Counts(); c.Served != int64(min(i+1, 2)) {
			t.Errorf("after a request of %d bytes: %+v", size, c)
		}
	}
}

// A block that a new stream uses when it is freed is not reused before that stream is done, even if the stream has the
// number of the block's own, which is closed.
func TestUsedByASuccessor(t *testing.T) {
	p := &trace.Program{Streams: 3, Blocks: 2, Pools: []mem.PoolID{{}}, Ops: []trace.Op{
		{Kind: trace.OpAlloc, Block: 0, Size: 10_000, Stream: 1},
		{Kind: trace.OpFree, Block: 0},
		{Kind: trace.OpAlloc, Block: 1, Size: 10_000, Stream: 2},
		{Kind: trace.OpFree, Block: 1},
	}}
	dev := drivertest.OpenSim(t, 64<<20)
	s1, s2 := drivertest.NewStream(t, dev), drivertest.NewStream(t, dev)
	a := open(t, dev, plan(t, p, planned.Options{Steps: 1}))
	b, err := a.Alloc(s1, 10_000)
	testkit.Must(t, err)
	testkit.Must(t, s1.Close())
	successor := drivertest.NewStream(t, dev)
	if successor.ID() != s1.ID() {
		t.Fatalf("stream %d follows the closed stream %d", successor.ID(), s1.ID())
	}
	testkit.Must(t, successor.Fill(b.Ptr, 1, b.Size))
	a.Free(b, successor)
	c, err := a.Alloc(s2, 10_000)
	testkit.Must(t, err)
	if c.Ptr != b.Ptr {
		t.Fatalf("%+v is not in the place of %+v", c, b)
	}
	testkit.Must(t, s2.Fill(c.Ptr, 2, c.Size))
	a.Free(c)
}
