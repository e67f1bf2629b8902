package paged_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

var (
	histories   = flag.Int("histories", 40, "histories of TestGraphsInRandomHistories")
	historySeed = flag.Uint64("histories.seed", 0, "the seed of the first; 0: a fresh one")
)

// TestGraphsInRandomHistories captures graphs one after another, each as though those before it on its path had just
// been launched, as PyTorch's trees of graphs do, and launches them again in random order. Before each launch, all
// memory of the pool that the graph may not read is filled with other bytes. Requests outside the pool take all other
// memory, so pages move. Each graph must leave the results that it left when it was captured, and the device must
// report no race.
func TestGraphsInRandomHistories(t *testing.T) {
	from := testkit.SeedFlag(t, "histories.seed", *historySeed)
	var sum treeTally
	const group = 100 // a subtest each, whose devices are closed at its end
	for done := uint64(0); done < uint64(*histories) && !t.Failed(); done += group {
		t.Run(fmt.Sprint(done), func(t *testing.T) {
			for i := done; i < min(done+group, uint64(*histories)); i++ {
				runTree(t, from+i, 24, &sum)
				if t.Failed() {
					t.Fatalf("-histories.seed %d -histories 1 (history %d)", from+i, i)
				}
			}
		})
	}
	t.Logf("%+v", sum)
	if *histories >= 40 && min(sum.graphs, sum.launches, sum.restores, sum.short, sum.forks, sum.driverCalls) == 0 {
		t.Error("some of what was to be tried has not happened")
	}
}

// TestTreesInRandomOrder launches the graphs of one tree in 1,000 random orders.
func TestTreesInRandomOrder(t *testing.T) {
	var sum treeTally
	seed := testkit.SeedFlag(t, "histories.seed", *historySeed)
	w := newTree(t, seed, &sum)
	for len(w.nodes) < 12 {
		w.capture()
	}
	for sum.launches < 1000 {
		w.launch(w.nodes[w.rng.IntN(len(w.nodes))])
		w.outside()
	}
	w.end()
	t.Logf("seed %d: %+v", seed, sum)
}

// A treeTally counts what histories did.
type treeTally struct{ graphs, launches, restores, short, forks, eager, driverCalls int }

// A tree is a pool's graphs, and a model of their results.
type tree struct {
	*rig
	*treeTally
	rng    *rand.Rand
	id     mem.PoolID
	s      [2]driver.Stream // captured together
	nodes  []*treeNode
	at     *treeNode // the node whose graph was launched or captured last
	live   []result  // blocks of the pool that are live now
	others []result  // of the default pool
	inside bool      // a capture is going on, and the allocator is called
}

// A treeNode is a graph, captured after those of its parents.
type treeNode struct {
	parent *treeNode
	graph  driver.Graph
	reads  []driver.Pointer // results of its parents that were live during its capture
	state  *paged.PoolState
	live   []result // at the end of the capture
}

// A result is a block, full of one byte.
type result struct {
	mem.Block
	value byte
}

func runTree(t *testing.T, seed uint64, steps int, sum *treeTally) {
	t.Helper()
	w := newTree(t, seed, sum)
	for range steps {
		switch n := w.rng.IntN(10); {
		case n < 3 || len(w.nodes) == 0:
			w.capture()
		case n < 7:
			w.launch(w.nodes[w.rng.IntN(len(w.nodes))])
		case n < 8:
			w.eagerly()
		default:
			w.outside()
		}
	}
	w.end()
}

func newTree(t testing.TB, seed uint64, sum *treeTally) *tree {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 20))
	cfg := paged.Config{NoAliases: rng.IntN(8) == 0}
	if rng.IntN(2) == 0 {
		cfg.Limit = 100 * granule
	}
	if rng.IntN(4) == 0 {
		cfg.Page = 4 * granule
	}
	o := sim.Options{Completion: []sim.Completion{sim.AtRandom, sim.OnDemand, sim.AtOnce}[rng.IntN(3)], Seed: seed}
	w := &tree{treeTally: sum, rng: rng, id: mem.PoolID{1 + seed%7, 0}}
	r := newRig(t, 160, o, cfg, func(d driver.Device) driver.Device { return intercept.Wrap(d, w.during) })
	w.rig = r
	w.s = [2]driver.Stream{r.stream(), r.stream()}
	if rng.IntN(2) == 0 {
		w.id = mem.NewPoolID()
	}
	w.a.RetainPool(w.id)
	return w
}

// capture launches the graphs up to a random node, has some results die, and captures a graph that reads others.
func (w *tree) capture() {
	w.t.Helper()
	if len(w.nodes) > 0 {
		w.launch(w.nodes[w.rng.IntN(len(w.nodes))])
	}
	w.live = slices.DeleteFunc(w.live, func(b result) bool {
		dies := w.rng.IntN(3) == 0
		if dies {
			w.a.Free(b.Block)
		}
		return dies
	})
	n := &treeNode{parent: w.at}
	readable := slices.Clone(w.live)
	for _, b := range readable {
		n.reads = append(n.reads, b.Ptr)
	}
	w.a.BeginAllocateToPool(w.id, every)
	w.must(w.dev.Graphs().Begin(w.s[0]))
	short := false
	for range 2 + w.rng.IntN(10) {
		if !w.capturedOp(&readable, n) {
			short = true
			break
		}
	}
	var err error
	n.graph, err = w.dev.Graphs().End(w.s[0])
	w.must(err)
	w.a.EndAllocateToPool(w.id)
	w.check()
	if n.state, err = w.a.Checkpoint(w.id); err != nil {
		w.t.Fatal(err)
	}
	if w.graphs++; short {
		w.short++
	}
	n.live = slices.Clone(w.live)
	w.nodes, w.at = append(w.nodes, n), n
	w.launchNow(n)
}

// capturedOp captures an allocation and work on it, or a free. It returns false if there was no room.
func (w *tree) capturedOp(readable *[]result, n *treeNode) bool {
	w.t.Helper()
	own := slices.DeleteFunc(slices.Clone(w.live), func(b result) bool { return slices.Contains(n.reads, b.Ptr) })
	if len(own) > 0 && w.rng.IntN(5) < 2 {
		w.drop(own[w.rng.IntN(len(own))], readable)
		return true
	}
	s := w.s[0]
	if w.rng.IntN(4) == 0 { // on the other stream, which then waits and is waited for
		s = w.s[1]
		w.follow(s, w.s[0])
		w.forks++
	}
	w.inside = true
	b, err := w.a.Alloc(s, w.size())
	w.inside = false
	if err != nil {
		if !errors.Is(err, mem.ErrNoMemory) && !errors.Is(err, driver.ErrCapturing) {
			w.t.Fatal(err)
		}
		if s != w.s[0] {
			w.follow(w.s[0], s)
		}
		return false
	}
	made := result{b, byte(1 + w.rng.IntN(200))}
	w.must(s.Fill(b.Ptr, made.value, b.Size))
	if from := w.largeEnough(*readable, b.Size); from != nil {
		w.must(s.Copy(b.Ptr, from.Ptr, b.Size))
		made.value = from.value
	}
	if s != w.s[0] {
		w.follow(w.s[0], s)
	}
	*readable, w.live = append(*readable, made), append(w.live, made)
	return true
}

func (w *tree) size() int64 {
	if w.rng.IntN(3) == 0 {
		return 1 + w.rng.Int64N(8<<10)
	}
	return 1 + w.rng.Int64N(6*granule)
}

func (w *tree) largeEnough(readable []result, size int64) *result {
	for range 4 {
		if len(readable) == 0 {
			return nil
		}
		if b := &readable[w.rng.IntN(len(readable))]; b.Size >= size {
			return b
		}
	}
	return nil
}

func (w *tree) follow(s, other driver.Stream) {
	w.t.Helper()
	m, err := other.Mark()
	w.must(err)
	w.must(s.WaitFor(other, m))
}

// during checks the driver calls that the allocator makes during captures: none may end a capture of CUDA.
func (w *tree) during(c intercept.Call, next func() error) error {
	if !w.inside {
		return next()
	}
	w.driverCalls++
	captures := c.Stream != nil && (c.Stream.ID() == 0 || c.Stream.ID() == w.s[0].ID() || c.Stream.ID() == w.s[1].ID())
	switch c.Kind {
	case intercept.Reserve, intercept.Release, intercept.Create, intercept.Drop, intercept.Map, intercept.Unmap,
		intercept.Capturing, intercept.Ordered, intercept.Available, intercept.Processes, intercept.NewStream:
	case intercept.Mark, intercept.Reached, intercept.WaitFor: // an error of the driver package at worst
	case intercept.Sync:
		if captures {
			w.t.Errorf("%v of stream %d during a capture", c.Kind, c.Stream.ID())
		}
	default:
		w.t.Errorf("%v during a capture", c.Kind)
	}
	return next()
}

// drop frees a block during its capture, sometimes with both streams as its users.
func (w *tree) drop(b result, readable *[]result) {
	same := func(other result) bool { return other.Ptr == b.Ptr }
	*readable, w.live = slices.DeleteFunc(*readable, same), slices.DeleteFunc(w.live, same)
	w.inside = true
	if w.rng.IntN(3) == 0 {
		w.a.Free(b.Block, w.s[:]...)
	} else {
		w.a.Free(b.Block)
	}
	w.inside = false
}

// goTo restores the state at the end of a node's capture.
func (w *tree) goTo(n *treeNode) {
	w.t.Helper()
	before := len(w.live)
	d, err := w.a.Restore(n.state)
	w.must(err)
	w.restores++
	if len(d.Live) != len(n.live) || len(d.Freed) > before {
		w.t.Fatalf("%d blocks live, want %d; %d of %d freed", len(d.Live), len(n.live), len(d.Freed), before)
	}
	w.live = w.live[:0]
	for _, b := range n.live {
		now, ok := d.At(b.Ptr)
		if !ok || now.Size != b.Size {
			w.t.Fatalf("the block at %#x of %d bytes became %+v", uint64(b.Ptr), b.Size, now)
		}
		w.live = append(w.live, result{now, b.value})
	}
	w.at = n
	w.check()
}

// launch launches the graphs from the root to a node.
func (w *tree) launch(n *treeNode) {
	w.t.Helper()
	if n.parent != nil {
		w.launch(n.parent)
		w.goTo(n.parent)
	}
	w.launchNow(n)
}

// launchNow launches a node's graph after its parent's, in memory of which all but the results that it may read is
// filled with other bytes, and checks its results.
func (w *tree) launchNow(n *treeNode) {
	w.t.Helper()
	if n.parent != nil && w.at != n {
		w.keepOnly(n.reads)
	}
	if w.at != n || n.parent == nil {
		w.poison(n)
	}
	w.must(n.graph.Launch(w.s[0]))
	w.launches++
	w.goTo(n)
	for _, b := range n.live {
		w.holds(w.s[0], b.Block, b.value)
	}
}

// keepOnly frees the live blocks that a graph does not read.
func (w *tree) keepOnly(reads []driver.Pointer) {
	w.live = slices.DeleteFunc(w.live, func(b result) bool {
		dead := !slices.Contains(reads, b.Ptr)
		if dead {
			w.a.Free(b.Block)
		}
		return dead
	})
}

// poison fills the free memory of the pool. For the first graph of a tree that is all of it.
func (w *tree) poison(n *treeNode) {
	w.t.Helper()
	if n.parent == nil {
		w.keepOnly(nil)
	}
	for _, seg := range w.a.Snapshot() {
		for _, b := range seg.Blocks {
			if seg.Pool == w.id && b.State == mem.Inactive {
				w.must(w.s[0].Fill(b.Ptr, 0xDD, b.Size))
			}
		}
	}
}

// eagerly works in the pool without a capture, as a warm-up does.
func (w *tree) eagerly() {
	w.t.Helper()
	w.a.BeginAllocateToPool(w.id, func(s driver.Stream) bool { return s == w.s[0] })
	for range 1 + w.rng.IntN(3) {
		b, err := w.a.Alloc(w.s[0], w.size())
		if errors.Is(err, mem.ErrNoMemory) {
			w.short++
			break
		}
		w.must(err)
		w.fill(w.s[0], b, 0xEE)
		w.holds(w.s[0], b, 0xEE)
		w.a.Free(b)
	}
	w.a.EndAllocateToPool(w.id)
	w.a.ReleasePool(w.id)
	w.eager++
}

// outside allocates and frees memory of the default pool, whose contents stay.
func (w *tree) outside() {
	w.t.Helper()
	for range w.rng.IntN(6) {
		if i := len(w.others); i > 0 && w.rng.IntN(2) == 0 {
			b := w.others[i-1]
			w.holds(w.rig.s, b.Block, b.value)
			w.a.Free(b.Block)
			w.others = w.others[:i-1]
			continue
		}
		b, err := w.a.Alloc(w.rig.s, 1+w.rng.Int64N(30*granule))
		if errors.Is(err, mem.ErrNoMemory) {
			w.short++
			continue
		}
		w.must(err)
		made := result{b, byte(w.rng.IntN(256))}
		w.fill(w.rig.s, b, made.value)
		w.others = append(w.others, made)
	}
	if w.rng.IntN(4) == 0 {
		w.must(w.a.EmptyCache())
	}
}

// end closes the graphs, after which the pool's memory serves others.
func (w *tree) end() {
	w.t.Helper()
	for _, n := range w.nodes {
		w.must(n.graph.Close())
		w.a.ReleasePool(w.id)
	}
	w.a.ReleasePool(w.id)
	w.keepOnly(nil)
	for _, b := range w.others {
		w.holds(w.rig.s, b.Block, b.value)
		w.a.Free(b.Block)
	}
	all := int64(160)
	if w.a.Limit() > 0 {
		all = w.a.Limit() / granule
	}
	b := w.granules(all)
	w.fill(w.rig.s, b, 1)
	w.free(b)
	w.must(w.a.EmptyCache())
	if pools := w.a.ReservedByPrivatePools(); len(pools) > 0 {
		w.t.Fatalf("pools at the end: %v", pools)
	}
	for _, s := range w.s {
		w.must(s.Close())
	}
	w.rig.finish()
}
