package arena_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// A world is a device, an arena with children on it, and a model of what they were asked: each block has contents of
// its own, which must be there at every check, wherever the block is by then. Work on several streams is ordered by the
// model as a tensor's storage does it, and by the arena where the arena has to.
type world struct {
	t       testing.TB
	rng     *rand.Rand
	dev     driver.Device
	sim     *sim.Device // nil if the device is another
	streams []driver.Stream
	root    *yard
	yards   []*yard // that are open, the root first
	blocks  []*block
	holds   []*arena.Hold
	next    int
	lifted  int    // that have not landed
	lifts   int    // in all
	moved   int64  // blocks that landed elsewhere
	undone  int64  // blocks that a move failed on
	onMove  func() // called at each BeginMove, by tests that look there
	baseLen int64  // available bytes before the arena
	calls   int64  // driver calls that failing has counted
}

// A yard is an arena and its children.
type yard struct {
	*arena.Arena
	parent   *yard
	children []*yard
	held     int
}

// A block is a live block and, if it may be moved, its holder.
type block struct {
	mem.Block
	w       *world
	yard    *yard
	number  int
	asked   int64
	origin  driver.Stream
	writer  driver.Stream
	readers []driver.Stream // since the last write
	users   []driver.Stream // beside the origin, since it was allocated or moved: what BeginMove and Free have to be told
	movable bool
	frozen  bool
	lifted  bool
	refuses bool
	lifts   int
}

func newWorld(t testing.TB, dev driver.Device, cfg arena.Config, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 0x6172656e61)), dev: dev}
	w.sim, _ = dev.(*sim.Device)
	w.streams = []driver.Stream{dev.DefaultStream()}
	for range 3 {
		w.streams = append(w.streams, w.newStream())
	}
	var err error
	w.baseLen, _, err = dev.Available()
	w.must(err)
	a, err := arena.New(dev, cfg)
	w.must(err)
	w.root = &yard{Arena: a}
	w.yards = []*yard{w.root}
	return w
}

func (w *world) newStream() driver.Stream {
	s, err := w.dev.NewStream(driver.StreamOptions{})
	w.must(err)
	return s
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

// BeginMove implements mem.Holder.
func (b *block) BeginMove() ([]driver.Stream, bool) {
	switch {
	case b.frozen:
		b.w.t.Errorf("BeginMove of the frozen b%d", b.number)
	case b.lifted:
		b.w.t.Errorf("BeginMove of b%d, which is lifted", b.number)
	case b.yard.held > 0:
		b.w.t.Errorf("BeginMove of b%d while it is held still", b.number)
	}
	b.lifts++
	b.w.lifts++
	if b.w.onMove != nil {
		b.w.onMove()
	}
	if b.refuses {
		return nil, false
	}
	b.lifted = true
	b.w.lifted++
	return b.users, true
}

// EndMove implements mem.Holder.
func (b *block) EndMove(to mem.Block, s driver.Stream) {
	switch {
	case !b.lifted:
		b.w.t.Errorf("EndMove of b%d, which is not lifted", b.number)
	case to.Size != b.Size || s == nil && to != b.Block || to.Ptr > b.Ptr:
		b.w.t.Errorf("b%d at %+v landed at %+v, moved by %v", b.number, b.Block, to, s)
	}
	b.lifted = false
	b.w.lifted--
	if to.Ptr != b.Ptr {
		b.w.moved++
	} else if s != nil {
		b.w.undone++
	}
	b.Block = to
	if s != nil {
		b.writer, b.readers, b.users = s, nil, nil
	}
}

// alloc returns a filled block, or the error.
func (w *world) alloc(y *yard, s driver.Stream, size int64, movable bool) (*block, error) {
	w.t.Helper()
	mb, err := y.Alloc(s, size)
	if err != nil {
		return nil, err
	}
	w.next++
	b := &block{Block: mb, w: w, yard: y, number: w.next, asked: size, origin: s, writer: s}
	w.blocks = append(w.blocks, b)
	if movable {
		if b.movable = y.Movable(mb, b); !b.movable {
			w.t.Errorf("Movable of b%d is false", b.number)
		}
	}
	w.fill(b, s)
	return b, nil
}

func (w *world) mustAlloc(y *yard, s driver.Stream, size int64, movable bool) *block {
	w.t.Helper()
	b, err := w.alloc(y, s, size, movable)
	w.must(err)
	return b
}

// contents visits the pieces of a block, each of one byte repeated: 64 bytes, then ever twice as many.
func (b *block) contents(visit func(at, size int64, value byte)) {
	for at, size, i := int64(0), int64(64), 0; at < b.Size; at, size, i = at+size, 2*size, i+1 {
		visit(at, min(size, b.Size-at), byte(b.number*31+i*57+1))
	}
}

// use notes that s works on the block.
func (b *block) use(s driver.Stream) {
	if s != b.origin && !slices.Contains(b.users, s) {
		b.users = append(b.users, s)
	}
}

// fill writes the contents on s, after all that others do with the block.
func (w *world) fill(b *block, s driver.Stream) {
	w.t.Helper()
	for _, o := range append(b.readers, b.writer) {
		w.follow(s, o)
	}
	b.use(s)
	b.writer, b.readers = s, nil
	b.contents(func(at, size int64, value byte) {
		w.t.Helper()
		w.must(s.Fill(b.Ptr+driver.Pointer(at), value, size))
	})
}

// follow makes s wait for the work queued on other.
func (w *world) follow(s, other driver.Stream) {
	w.t.Helper()
	if s == other || !slices.Contains(w.streams, other) { // it is closed
		return
	}
	m, err := other.Mark()
	w.must(err)
	w.must(s.WaitFor(other, m))
}

// read has s read the block, when it gets there.
func (w *world) read(b *block, s driver.Stream, scratch driver.Pointer) {
	w.t.Helper()
	w.follow(s, b.writer)
	b.use(s)
	if s != b.writer && !slices.Contains(b.readers, s) {
		b.readers = append(b.readers, s)
	}
	w.must(s.Copy(scratch, b.Ptr, min(b.Size, 512)))
}

// check looks at the contents, on s.
func (w *world) check(b *block, s driver.Stream) {
	w.t.Helper()
	w.follow(s, b.writer)
	b.use(s)
	if s != b.writer && !slices.Contains(b.readers, s) {
		b.readers = append(b.readers, s)
	}
	got := make([]byte, b.Size)
	w.must(s.CopyOut(got, b.Ptr))
	b.contents(func(at, size int64, value byte) {
		if want := bytes.Repeat([]byte{value}, int(size)); !bytes.Equal(got[at:at+size], want) {
			i := 0
			for got[at+int64(i)] == value {
				i++
			}
			w.t.Fatalf("b%d (%+v): byte %d is %#x: want %#x", b.number, b.Block, at+int64(i), got[at+int64(i)], value)
		}
	})
}

// free gives a block back, naming the streams that use it.
func (w *world) free(b *block) {
	i := slices.Index(w.blocks, b)
	w.blocks[i] = w.blocks[len(w.blocks)-1]
	w.blocks = w.blocks[:len(w.blocks)-1]
	b.yard.Free(b.Block, b.users...)
}

// freeze freezes an arena's blocks.
func (w *world) freeze(y *yard, s driver.Stream) error {
	if err := y.Freeze(s); err != nil {
		return err
	}
	for _, b := range w.blocks {
		if b.yard == y {
			b.frozen = true
		}
	}
	return nil
}

// child opens a child arena.
func (w *world) child(y *yard, size int64) (*yard, error) {
	a, err := y.Child(size)
	if err != nil {
		return nil, err
	}
	c := &yard{Arena: a, parent: y}
	y.children = append(y.children, c)
	w.yards = append(w.yards, c)
	return c, nil
}

// closeYard frees all blocks of an arena and its children, and closes it.
func (w *world) closeYard(y *yard) {
	w.t.Helper()
	for len(y.children) > 0 {
		w.closeYard(y.children[w.rng.IntN(len(y.children))])
	}
	for _, b := range slices.Clone(w.blocks) {
		if b.yard == y {
			w.free(b)
		}
	}
	w.agree()
	w.must(y.Close())
	w.yards = slices.DeleteFunc(w.yards, func(o *yard) bool { return o == y })
	if y.parent != nil {
		y.parent.children = slices.DeleteFunc(y.parent.children, func(o *yard) bool { return o == y })
	}
}

// agree checks the arenas by themselves and against the model.
func (w *world) agree() {
	w.t.Helper()
	if w.lifted != 0 {
		w.t.Fatalf("%d blocks are lifted and have not landed", w.lifted)
	}
	sorted := slices.Clone(w.blocks)
	slices.SortFunc(sorted, func(x, y *block) int { return int(int64(x.Ptr) - int64(y.Ptr)) })
	for i, b := range sorted {
		if i > 0 && sorted[i-1].Ptr+driver.Pointer(sorted[i-1].Size) > b.Ptr {
			w.t.Fatalf("b%d %+v overlaps b%d %+v", sorted[i-1].number, sorted[i-1].Block, b.number, b.Block)
		}
	}
	for _, y := range w.yards {
		w.must(y.Check())
		var n, size, asked int64
		for _, b := range w.blocks {
			if b.yard == y {
				n, size, asked = n+1, size+b.Size, asked+b.asked
			}
		}
		for _, c := range y.children {
			n, size, asked = n+1, size+c.Size(), asked+c.Size()
		}
		s := y.Stats()
		if s.Allocation.All.Current != n || s.AllocatedBytes.All.Current != size || s.RequestedBytes.All.Current > asked {
			w.t.Fatalf("the statistics say %d blocks of %d bytes; want %d of %d", s.Allocation.All.Current,
				s.AllocatedBytes.All.Current, n, size)
		}
	}
}

// holes returns the free spans of an arena, in order.
func holes(a mem.Snapshotter) (out []driver.Range) {
	for _, seg := range a.Snapshot() {
		for _, b := range seg.Blocks {
			if b.State == mem.Inactive {
				out = append(out, driver.Range{Ptr: b.Ptr, Size: b.Size})
			}
		}
	}
	return out
}

// finish looks at all contents, closes everything, and checks that nothing is left.
func (w *world) finish() {
	w.t.Helper()
	for _, h := range w.holds {
		h.Release()
	}
	for _, b := range w.blocks {
		w.check(b, w.streams[w.rng.IntN(len(w.streams))])
	}
	w.closeYard(w.root)
	free, _, err := w.dev.Available()
	w.must(err)
	if free != w.baseLen && w.dev.Info().Driver != "cuda" { // others use a GPU too
		w.t.Errorf("the closed arena has left the device with %d bytes fewer", w.baseLen-free)
	}
	for _, s := range w.streams {
		w.must(s.Close())
	}
	if w.sim != nil {
		if err := errors.Join(w.sim.Reports()...); err != nil {
			w.t.Errorf("the device reports: %v", err)
		}
	}
}

// closeDevice closes the device when the test ends.
func closeDevice(t testing.TB, dev driver.Device) driver.Device {
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// simWorld is a world on a simulated device, with a region of so many bytes.
func simWorld(t testing.TB, size int64) *world {
	t.Helper()
	dev := drivertest.OpenSim(t, 64<<20)
	return newWorld(t, dev, arena.Config{Size: size}, 1)
}

func (b *block) String() string { return fmt.Sprintf("b%d", b.number) }
