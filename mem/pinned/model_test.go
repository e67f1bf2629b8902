package pinned_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// A model makes random requests and knows the contents that every block and every copy must have. On a device that
// fails it accepts errors, but no wrong byte.
type model struct {
	t   *testing.T
	rng *rand.Rand
	d   *device
	a   *pinned.Allocator

	pools   [2]*pinned.Pool
	streams []driver.Stream
	live    []*loan
	copies  []*copied
	graphs  []*captured
	open    *captured // the capture under way
	doubted []*loan
	stamp   byte
}

// A loan is a block with the bytes written to it, and the graphs that captured it.
type loan struct {
	b       mem.Block
	content byte
	graphs  int
	doubted bool // Record failed: it is kept, and no graph will end that
}

// A copied is device memory that a queued copy of a block will fill.
type copied struct {
	s       driver.Stream
	p       driver.Pointer
	size    int
	content byte
}

// A captured is a graph with its copies.
type captured struct {
	s      driver.Stream
	graph  driver.Graph // nil if End failed
	copies []*copied
	loans  []*loan
}

func newModel(t *testing.T, seed uint64, cfg pinned.Config, rules ...fault.Rule) *model {
	d := newDeviceOf(sim.Options{Completion: sim.AtRandom, Seed: seed, Pinned: 2 * mib})
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 0)), d: d}
	for range 3 {
		m.streams = append(m.streams, d.stream(t))
	}
	m.a = open(t, d, cfg)
	for i := range m.pools {
		m.pools[i] = m.a.NewPool()
	}
	d.SetRules(rules...)
	return m
}

// ok reports whether a call succeeded. It may fail only after the device has, or for the reasons named.
func (m *model) ok(err error, reasons ...error) bool {
	m.t.Helper()
	for _, reason := range reasons {
		if errors.Is(err, reason) {
			return false
		}
	}
	if err != nil && m.d.Failed() == 0 {
		m.t.Fatal(err)
	}
	return err == nil
}

func (m *model) step() {
	switch n := m.rng.IntN(100); {
	case n < 30:
		m.alloc()
	case n < 55:
		m.copy()
	case n < 80:
		m.free()
	case n < 88:
		m.verify()
	case n < 92:
		m.capture()
	case n < 95:
		m.launch()
	case n < 97:
		m.drop()
	case n < 98:
		m.find()
	case n < 99 || m.rng.IntN(2) == 0:
		m.ok(m.a.EmptyCache())
	default:
		p := &m.pools[m.rng.IntN(len(m.pools))]
		if m.rng.IntN(2) == 0 {
			m.ok((*p).EmptyCache())
			return
		}
		m.ok((*p).Close())
		*p = m.a.NewPool()
	}
}

// request asks for a block: of the default pool, of a pool, or in a pool's scope.
func (m *model) request(size int64) (b mem.Block, err error) {
	p := m.pools[m.rng.IntN(len(m.pools))]
	switch m.rng.IntN(4) {
	case 0:
		return p.Alloc(size)
	case 1:
		p.Use(mem.CurrentGoroutine(), func() { b, err = m.a.Alloc(size) })
		return b, err
	}
	return m.a.Alloc(size)
}

func (m *model) alloc() {
	if len(m.live) >= 12 {
		return
	}
	size := 1 + m.rng.Int64N(1<<m.rng.IntN(15))
	b, err := m.request(size)
	if !m.ok(err, driver.ErrNoMemory) {
		return
	}
	for _, l := range m.live {
		if b.Ptr < l.b.Ptr+driver.Pointer(l.b.Size) && l.b.Ptr < b.Ptr+driver.Pointer(b.Size) {
			m.t.Fatalf("%d bytes overlap a live block of %d", b.Size, l.b.Size)
		}
	}
	m.stamp++
	fill(m.a.Bytes(b)[:b.Size], m.stamp)
	m.live = append(m.live, &loan{b: b, content: m.stamp})
}

func (m *model) pick() *loan {
	if len(m.live) == 0 {
		return nil
	}
	return m.live[m.rng.IntN(len(m.live))]
}

// copy queues a copy of a block to the device.
func (m *model) copy() {
	l, s := m.pick(), m.streams[m.rng.IntN(len(m.streams))]
	if l == nil {
		return
	}
	p, err := m.d.sim.Alloc(l.b.Size)
	if err != nil {
		m.t.Fatal(err)
	}
	if !m.ok(m.d.Pinned().CopyInAsync(s, p, m.a.Bytes(l.b))) {
		return
	}
	l.doubted = !m.ok(m.a.RecordStream(l.b, s)) || l.doubted
	if l.doubted && !slices.Contains(m.doubted, l) {
		m.doubted = append(m.doubted, l)
	}
	c := &copied{s, p, len(m.a.Bytes(l.b)), l.content}
	if m.open != nil && m.open.s == s {
		m.open.copies = append(m.open.copies, c)
		if !slices.Contains(m.open.loans, l) {
			m.open.loans = append(m.open.loans, l)
			l.graphs++
		}
		return
	}
	m.copies = append(m.copies, c)
}

func (m *model) free() {
	if len(m.live) == 0 {
		return
	}
	i := m.rng.IntN(len(m.live))
	l := m.live[i]
	m.holds("a live block", m.a.Bytes(l.b)[:l.b.Size], l.content)
	m.live = slices.Delete(m.live, i, i+1)
	m.a.Free(l.b)
}

func (m *model) holds(what string, p []byte, content byte) {
	m.t.Helper()
	if i := slices.IndexFunc(p, func(c byte) bool { return c != content }); i >= 0 {
		m.t.Fatalf("%s of %d bytes has %d at %d, want %d", what, len(p), p[i], i, content)
	}
}

// verify checks the bytes of a copy.
func (m *model) verify() {
	if len(m.copies) == 0 {
		return
	}
	i := m.rng.IntN(len(m.copies))
	if m.check(m.copies[i]) {
		m.copies = slices.Delete(m.copies, i, i+1)
	}
}

func (m *model) check(c *copied) bool {
	m.t.Helper()
	if m.open != nil && m.open.s == c.s {
		return false
	}
	got := make([]byte, c.size)
	if !m.ok(c.s.CopyOut(got, c.p)) {
		return false
	}
	m.holds("a copy", got, c.content)
	return true
}

// capture begins a capture or ends the one under way.
func (m *model) capture() {
	if m.open == nil {
		s := m.streams[m.rng.IntN(len(m.streams))]
		if m.ok(m.d.Graphs().Begin(s)) {
			m.open = &captured{s: s}
		}
		return
	}
	g, err := m.d.Graphs().End(m.open.s)
	if m.ok(err) {
		m.open.graph = g
	}
	m.graphs = append(m.graphs, m.open)
	m.open = nil
}

// launch runs a graph and checks its copies. All its blocks may be freed.
func (m *model) launch() {
	if len(m.graphs) == 0 {
		return
	}
	g := m.graphs[m.rng.IntN(len(m.graphs))]
	if g.graph == nil || m.open != nil && m.open.s == g.s || !m.ok(g.graph.Launch(g.s)) {
		return
	}
	for _, c := range g.copies {
		m.check(c)
	}
}

// drop closes a graph, and forgets the blocks that only the graph kept.
func (m *model) drop() {
	if len(m.graphs) == 0 {
		return
	}
	i := m.rng.IntN(len(m.graphs))
	g := m.graphs[i]
	if m.open != nil && m.open.s == g.s || !m.ok(g.s.Sync(m.t.Context())) || g.graph != nil && !m.ok(g.graph.Close()) {
		return
	}
	m.graphs = slices.Delete(m.graphs, i, i+1)
	for _, l := range g.loans {
		if l.graphs--; l.graphs == 0 {
			m.a.ReleaseCaptured(l.b)
			l.doubted = false
		}
	}
}

func (m *model) find() {
	if l := m.pick(); l != nil {
		p := m.a.Bytes(l.b)
		p = p[m.rng.IntN(len(p)):]
		if b, ok := m.a.Find(p); !ok || b != l.b {
			m.t.Fatalf("Find of %d bytes in a block of %d: %v", len(p), l.b.Size, ok)
		}
	}
}

// end makes the device work again, frees everything and closes the allocator.
func (m *model) end() {
	m.d.healthy()
	_ = m.a.Err()
	if m.open != nil {
		m.capture()
	}
	for len(m.live) > 0 {
		m.free()
	}
	for len(m.graphs) > 0 {
		m.launch()
		m.drop()
	}
	for len(m.copies) > 0 {
		m.verify()
	}
	for _, l := range m.doubted {
		if l.doubted {
			m.a.ReleaseCaptured(l.b)
		}
	}
	for _, p := range m.pools {
		m.ok(p.Close())
	}
	if err := m.a.Err(); err != nil {
		m.t.Errorf("a device that no longer fails: %v", err)
	}
	closeAll(m.t, m.a, m.d)
	s := m.a.Stats()
	if s.ActiveRequests.Current != 0 || s.Allocations.Current != 0 || s.AllocatedBytes.Current != 0 || s.ActiveBytes.Current != 0 {
		m.t.Errorf("after Close: %+v", s)
	}
}

var configs = map[string]pinned.Config{
	"default":  {},
	"exact":    {MaxRoundThreshold: 1024, MaxCachedSize: 12 << 10},
	"reserved": {ReserveSegment: 64 << 10, MaxRoundThreshold: -1},
	"register": {HostRegister: true, RegisterThreads: 2, MaxCachedSize: 8 << 10},
}

func TestModel(t *testing.T) {
	seed := testkit.Seed(t)
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, seed, cfg)
			for range 5000 {
				m.step()
			}
			m.end()
		})
	}
}

// Every call of the device fails in turn. No byte is wrong, and no memory is lost.
func TestModelWithFaults(t *testing.T) {
	seed := testkit.Seed(t)
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				m := newModel(t, seed, cfg, fault.Rule{Nth: n})
				for range 100 {
					m.step()
				}
				struck := m.d.Failed() > 0
				m.end()
				if t.Failed() {
					t.Fatalf("call %d failed", n)
				}
				if !struck {
					break
				}
			}
		})
	}
}
