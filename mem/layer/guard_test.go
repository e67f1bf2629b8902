package layer_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// guarded is a Guard allocator on a device, with the damage found so far.
type guarded struct {
	*layer.Guard
	testing.TB
	dev    *fault.Device
	sim    *sim.Device
	s, u   driver.Stream
	damage []*layer.Damage
}

func guard(t testing.TB, below func(testing.TB, driver.Device) mem.Allocator) *guarded {
	g := &guarded{TB: t, sim: drivertest.OpenSim(t, arenaSize+arenaBounce+1<<20)}
	g.dev = fault.Wrap(g.sim)
	g.s = g.dev.DefaultStream()
	g.u = drivertest.NewStream(t, g.dev)
	g.Guard = layer.NewGuard(below(t, g.dev), layer.GuardOptions{Zone: 64, Damaged: func(d *layer.Damage) { g.damage = append(g.damage, d) }})
	return g
}

func (g *guarded) get(size int64) mem.Block {
	g.Helper()
	b, err := g.Alloc(g.s, size)
	testkit.Must(g, err)
	testkit.Must(g, g.s.Fill(b.Ptr, 0x11, b.Size))
	return b
}

// write puts a byte at an offset from a block's start, on the other stream.
func (g *guarded) write(b mem.Block, offset int64) {
	g.Helper()
	m, err := g.s.Mark()
	testkit.Must(g, err)
	testkit.Must(g, g.u.WaitFor(g.s, m))
	testkit.Must(g, g.u.Fill(b.Ptr+driver.Pointer(offset), 0x22, 1))
}

// The first byte past a block, the last one before it, and any in a red zone, written by whatever stream, are found
// when the block is freed; what is written inside is not.
func TestGuardFindsWritesOutside(t *testing.T) {
	g := guard(t, newCaching)
	for _, size := range []int64{1, 100, 512, 5000} {
		for _, offset := range []int64{-64, -30, -1, size, size + 1, size + 63} {
			b := g.get(size)
			if b.Size != size {
				t.Fatalf("%d bytes for %d: the byte after would be the block's", b.Size, size)
			}
			g.damage = nil
			g.sim.Hold(g.u.ID())
			g.write(b, size-1)
			g.write(b, offset)
			g.Free(b, g.u) // waits for the stream
			if len(g.damage) != 1 {
				t.Fatalf("a byte at %d of a block of %d: found %v", offset, size, g.damage)
			}
			want := layer.Damage{Block: b, Offset: offset, Got: 0x22, Bytes: 1}
			if *g.damage[0] != want {
				t.Errorf("found %+v, want %+v", *g.damage[0], want)
			}
			g.sim.Resume(g.u.ID())
		}
		b := g.get(size)
		g.write(b, 0)
		g.damage = nil
		g.Free(b, g.u)
		if g.damage != nil {
			t.Errorf("a byte inside is taken for damage: %v", g.damage[0])
		}
	}
	if n := g.Unchecked(); n != 0 {
		t.Errorf("%d blocks were not looked at", n)
	}
}

func TestGuardSaysWhatIsDamaged(t *testing.T) {
	g := guard(t, newCaching)
	b, c := g.get(100), g.get(100)
	if err := g.Check(); err != nil {
		t.Errorf("of sound blocks: %v", err)
	}
	for _, at := range []int64{103, 105} {
		testkit.Must(t, g.s.Fill(b.Ptr+driver.Pointer(at), 7, 1))
	}
	testkit.Must(t, g.s.Fill(c.Ptr-3, 8, 1))
	err := g.Check()
	var d *layer.Damage
	if !errors.As(err, &d) {
		t.Fatalf("Check: %v", err)
	}
	testkit.Contains(t, err.Error(), "layer: Guard", "2 bytes changed, the nearest to the block at +103 from its start, which is 0x07",
		"1 bytes changed, the nearest to the block at -3 from its start, which is 0x08")
	if err := g.Check(); err == nil {
		t.Error("a second Check finds nothing")
	}
	g.Free(b)
	g.Free(c)
	if err := g.Check(); err != nil || len(g.damage) != 2 {
		t.Errorf("once both are freed: %v, with %d reports", err, len(g.damage))
	}
	strict := layer.NewGuard(newCaching(t, g.dev), layer.GuardOptions{})
	d1, err := strict.Alloc(g.s, 10)
	testkit.Must(t, err)
	testkit.Must(t, g.s.Fill(d1.Ptr+10, 1, 1))
	testkit.Contains(t, testkit.Panic(t, func() { strict.Free(d1) }), "layer: Guard: a write outside of a block of 10 bytes", "at +10 from its start")
	testkit.Contains(t, testkit.Panic(t, func() { strict.Free(d1) }), "layer: Guard: Free", "not live") // it has gone back all the same
	testkit.Contains(t, testkit.Panic(t, func() { layer.NewGuard(strict, layer.GuardOptions{Zone: -1}) }), "layer: Guard with red zones of -1")
}

// Who reads freed memory reads poison: the next block in its place shows it.
func TestGuardPoisonsWhatIsFreed(t *testing.T) {
	g := guard(t, newCaching)
	b := g.get(1000)
	g.Free(b)
	c, err := g.Alloc(g.s, 1000)
	testkit.Must(t, err)
	if c.Ptr != b.Ptr {
		t.Fatalf("%+v is not in the place of %+v", c, b)
	}
	for i, v := range contents(t, g.s, c) {
		if v != 0xFF {
			t.Fatalf("byte %d is %#02x", i, v)
		}
	}
	g.Free(c)
}

// Red zones move along with their block, and are looked at where it is then.
func TestGuardFollowsMoves(t *testing.T) {
	g := guard(t, newArena)
	for _, offset := range []int64{-1, 300, 0} {
		hole, b := g.get(5000), g.get(300)
		o := &follower{Block: b, own: g.s}
		if !mem.Movable(g.Guard, b, o) {
			t.Fatal("Movable is false")
		}
		g.Free(hole)
		c, _ := mem.Find[mem.Compactor](g.Guard)
		testkit.Must(t, c.Compact(g.u))
		if o.Ptr >= b.Ptr || o.Size != b.Size {
			t.Fatalf("%+v was moved to %+v", b, o.Block)
		}
		if err := g.Check(); err != nil {
			t.Errorf("moved: %v", err)
		}
		testkit.Must(t, g.s.Fill(o.Ptr+driver.Pointer(offset), 3, 1))
		if err := g.Check(); (err == nil) != (offset == 0) {
			t.Errorf("a byte at %d: Check says %v", offset, err)
		}
		g.damage = nil
		g.Free(o.Block)
		if (len(g.damage) == 0) != (offset == 0) {
			t.Errorf("a byte at %d: Free found %v", offset, g.damage)
		}
	}
}

// A pending move that is not ordered with the block's own stream is waited for.
func TestGuardWaitsForTheMove(t *testing.T) {
	g := guard(t, newArena)
	hole, b := g.get(5000), g.get(300)
	o := &follower{Block: b}
	mem.Movable(g.Guard, b, o)
	g.Free(hole)
	g.sim.Hold(g.u.ID())
	c, _ := mem.Find[mem.Compactor](g.Guard)
	testkit.Must(t, c.Compact(g.u))
	if o.Ptr == b.Ptr || g.sim.Pending(g.u.ID()) == 0 {
		t.Fatal("no move is under way")
	}
	g.Free(o.Block)
	if g.damage != nil || g.Unchecked() != 0 {
		t.Errorf("found %v, %d blocks not looked at", g.damage, g.Unchecked())
	}
	g.sim.Resume(g.u.ID())
}

// A follower is a holder that lets its block move, and has a stream of its own, if there is one, wait for that.
type follower struct {
	mem.Block
	own driver.Stream
}

func (f *follower) BeginMove() ([]driver.Stream, bool) { return nil, true }

func (f *follower) EndMove(b mem.Block, s driver.Stream) {
	if f.Block = b; s != nil && f.own != nil {
		m, _ := s.Mark()
		_ = f.own.WaitFor(s, m)
	}
}

// A capture does nothing of what it records: its blocks go unguarded, and are not taken for damaged. Streams that
// capture are not drawn into anything.
func TestGuardDuringACapture(t *testing.T) {
	g := guard(t, newCaching)
	before, err := g.Alloc(g.s, 100)
	testkit.Must(t, err)
	testkit.Must(t, g.dev.Graphs().Begin(g.u))
	b, err := g.Alloc(g.u, 100)
	testkit.Must(t, err)
	g.Free(before, g.u) // which may use it, and cannot be waited for
	graph, err := g.dev.Graphs().End(g.u)
	testkit.Must(t, err)
	testkit.Must(t, graph.Close())
	if err := g.Check(); err != nil {
		t.Error(err)
	}
	g.Free(b)
	if g.damage != nil || g.Unchecked() != 2 {
		t.Errorf("found %v; %d not looked at, want 2", g.damage, g.Unchecked())
	}
}

// A device that fails costs a look, or a block that is not allocated, and no more.
func TestGuardOnADeviceThatFails(t *testing.T) {
	g := guard(t, newCaching)
	b := g.get(100)
	g.dev.SetRules(fault.Rule{Kind: intercept.CopyOut})
	if err := g.Check(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Check: %v", err)
	}
	g.Free(b)
	for nth := int64(1); nth <= 2; nth++ {
		g.dev.SetRules(fault.Rule{Kind: intercept.CopyIn, Nth: nth})
		if b, err := g.Alloc(g.s, 100); !errors.Is(err, driver.ErrLost) || b != (mem.Block{}) {
			t.Errorf("Alloc: %+v, %v", b, err)
		}
	}
	g.dev.SetRules()
	if r, _ := mem.Find[mem.StatsReporter](g.Guard); r.Stats().Allocation.All.Current != 0 || g.Unchecked() != 1 {
		t.Errorf("%d blocks are left, %d were not looked at", r.Stats().Allocation.All.Current, g.Unchecked())
	}
}
