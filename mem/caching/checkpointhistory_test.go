package caching_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
)

var (
	checkpoints    = flag.Int("checkpoints", 1500, "restores that TestRestoresInRandomHistories makes")
	checkpointSeed = flag.Uint64("checkpoints.seed", 0, "the seed of its first history; 0 is a fresh one")
)

// Pools are used at random, checkpoints taken, and restored in any order, many times each: what is live then, and what
// the snapshot says of the segments that there were, is what was at the checkpoint, to the block.
func TestRestoresInRandomHistories(t *testing.T) {
	seed := testkit.SeedFlag(t, "checkpoints.seed", *checkpointSeed)
	var sum poolTally
	for i := uint64(0); sum.restores < *checkpoints; i++ {
		h := newPoolHistory(t, seed+i)
		if err := h.run(min(200, *checkpoints-sum.restores)); err != nil {
			t.Fatalf("-checkpoints.seed %d (history %d), settings %q, step %d: %v", seed+i, i, h.settings, h.step, err)
		}
		sum.add(&h.poolTally)
	}
	t.Logf("%+v", sum)
	if *checkpoints >= 1000 && (sum.notReady == 0 || sum.grown == 0 || sum.freed == 0 || sum.gone == 0) {
		t.Error("some of what was to be tried has not happened")
	}
}

// A poolTally counts the cases that the histories covered.
type poolTally struct {
	restores, notReady, gone int // restores, and those refused: for a pending block, for a segment that is gone
	grown                    int // segments of states that are a part of a larger run now
	blocks, freed            int // live after restores, and freed by them
}

func (t *poolTally) add(o *poolTally) {
	t.restores, t.notReady, t.gone = t.restores+o.restores, t.notReady+o.notReady, t.gone+o.gone
	t.grown, t.blocks, t.freed = t.grown+o.grown, t.blocks+o.blocks, t.freed+o.freed
}

// A poolHistory is an allocator, and a model of the blocks in its pools.
type poolHistory struct {
	*caching.Allocator
	poolTally
	t           *testing.T
	r           *rand.Rand
	sim         *sim.Device
	dev         *fault.Device // counts calls
	settings    string
	streams     []driver.Stream
	side        driver.Stream // uses blocks of others
	held        bool
	pools       []*poolModel                 // the default pool first
	seen        map[driver.Pointer]mem.Event // what events say is live; nil without an observer
	counts      eventSum                     // as events say, and the most since the peaks were reset
	peaks       eventSum
	step        int
	allocations int
}

type eventSum struct{ blocks, requested int64 }

type poolModel struct {
	id     mem.PoolID
	user   *caching.Pool // who made it; nil of the default pool, and of those of captured graphs
	live   []liveBlock   // by address
	begun  bool          // it has a user; never, if it is the default pool
	states []*keptState
}

type liveBlock struct {
	mem.Block
	asked int64
	n     int // which it is; the same when it is live again
}

type keptState struct {
	*caching.PoolState
	live     []liveBlock
	segments []mem.SegmentInfo
}

func newPoolHistory(t *testing.T, seed uint64) *poolHistory {
	settings := []string{
		"", "expandable_segments:True", "max_split_size_mb:25", "roundup_power2_divisions:4",
		"expandable_segments:True,large_segment_size_mb:12",
	}
	d := sim.New(sim.Options{Total: 8 * gib, Unchecked: true})
	h := &poolHistory{
		t: t, r: rand.New(rand.NewPCG(seed, 0)), sim: d, dev: fault.Wrap(d), settings: settings[seed%uint64(len(settings))],
		pools: []*poolModel{{}, {id: mem.PoolID{7, 0}}, {id: mem.PoolID{0, 1 << 40}}},
	}
	h.Allocator = newAllocator(t, h.dev, h.settings)
	h.streams = []driver.Stream{h.dev.DefaultStream()}
	for range 3 {
		s := drivertest.NewStream(t, h.dev)
		h.streams = append(h.streams, s)
	}
	h.side, h.streams = h.streams[3], h.streams[:1+h.r.IntN(3)]
	for _, o := range []caching.PoolOptions{{NoSplit: h.r.IntN(2) == 0}, {Upstream: direct.New(h.dev, direct.Config{})}} {
		p := h.NewPool(o)
		h.pools = append(h.pools, &poolModel{id: p.ID(), user: p, begun: true})
	}
	if h.r.IntN(2) == 0 {
		h.seen = map[driver.Pointer]mem.Event{}
		h.Observe(h.observe)
	}
	return h
}

func (h *poolHistory) observe(e mem.Event) {
	switch was, ok := h.seen[e.Ptr]; e.Action {
	case mem.ActionAlloc:
		if ok {
			h.t.Errorf("event: %#x is allocated twice", e.Ptr)
		}
		h.seen[e.Ptr] = e
		h.counts.blocks++
		h.counts.requested += e.Size
		h.peaks.blocks = max(h.peaks.blocks, h.counts.blocks)
		h.peaks.requested = max(h.peaks.requested, h.counts.requested)
	case mem.ActionFreeRequested:
		if was.Size != e.Size || was.Pool != e.Pool || was.Stream != e.Stream {
			h.t.Errorf("event: freed %+v, allocated %+v", e, was)
		}
		delete(h.seen, e.Ptr)
		h.counts.blocks--
	case mem.ActionFreeCompleted:
		h.counts.requested -= e.Size
	}
}

func (h *poolHistory) run(restores int) error {
	for ; h.restores < restores; h.step++ {
		if err := h.do(); err != nil {
			return err
		}
	}
	return h.finish()
}

func (h *poolHistory) do() error {
	m := h.pools[h.r.IntN(len(h.pools))]
	switch n := h.r.IntN(100); {
	case n < 45 && len(m.live) < 60:
		return h.alloc(m)
	case n < 82:
		h.free(m)
	case n < 88:
		return h.checkpoint(m)
	case n < 96:
		return h.restore(m)
	case n < 97:
		if h.held = !h.held; h.held {
			h.sim.Hold(h.side.ID())
		} else {
			h.sim.Resume(h.side.ID())
		}
	case n < 98:
		return h.renew(m)
	case n < 99:
		h.held = false
		h.sim.Resume(h.side.ID())
		return h.EmptyCache()
	default:
		_, err := h.ParseConfigure(fmt.Sprintf("expandable_segments:%v", []string{"True", "False"}[h.r.IntN(2)]))
		return err
	}
	return nil
}

// in serves the requests of a function from a pool, which keeps one user from the first time on.
func (h *poolHistory) in(m *poolModel, f func(mem.Allocator)) {
	switch {
	case m.user != nil:
		f(m.user)
		return
	case m.id == (mem.PoolID{}):
		f(h)
		return
	}
	h.BeginAllocateToPool(m.id, func(driver.Stream) bool { return true })
	f(h)
	h.EndAllocateToPool(m.id)
	if m.begun {
		h.ReleasePool(m.id)
	}
	m.begun = true
}

func (h *poolHistory) alloc(m *poolModel) (err error) {
	h.in(m, func(a mem.Allocator) {
		for range 1 + h.r.IntN(4) {
			size := 1 + h.r.Int64N([]int64{600, 8 * kib, mib, 8 * mib, 30 * mib}[min(h.r.IntN(6), 4)])
			var block mem.Block
			if block, err = a.Alloc(h.streams[h.r.IntN(len(h.streams))], size); err != nil {
				return
			}
			i, _ := m.find(block.Ptr)
			h.allocations++
			m.live = slices.Insert(m.live, i, liveBlock{block, size, h.allocations})
		}
	})
	return err
}

func (m *poolModel) find(ptr driver.Pointer) (int, bool) {
	return slices.BinarySearchFunc(m.live, ptr, func(l liveBlock, ptr driver.Pointer) int { return cmp.Compare(l.Ptr, ptr) })
}

func (h *poolHistory) free(m *poolModel) {
	for range 1 + h.r.IntN(4) {
		if len(m.live) == 0 {
			return
		}
		i := h.r.IntN(len(m.live))
		block := m.live[i].Block
		m.live = slices.Delete(m.live, i, i+1)
		if h.r.IntN(8) > 0 {
			h.Free(block)
			continue
		}
		if err := h.side.Fill(block.Ptr, 1, 1); err != nil {
			h.t.Fatal(err)
		}
		h.Free(block, h.side)
	}
}

func (h *poolHistory) checkpoint(m *poolModel) error {
	if !m.begun {
		return nil
	}
	s, err := h.Checkpoint(m.id)
	if h.held && errors.Is(err, driver.ErrNotReady) {
		h.notReady++
		return nil
	}
	if err != nil {
		return err
	}
	k := &keptState{s, slices.Clone(m.live), segmentsOf(h.Allocator, m.id)}
	if got := s.Segments(); len(got)+len(k.segments) > 0 && !reflect.DeepEqual(got, k.segments) {
		return fmt.Errorf("the state has %+v, the snapshot %+v", s.Segments(), k.segments)
	}
	if m.states = append(m.states, k); len(m.states) > 5 {
		m.states = slices.Delete(m.states, 0, 1)
	}
	return nil
}

// renew gives a pool's memory back to the device, except for live blocks, and keeps using the pool.
func (h *poolHistory) renew(m *poolModel) error {
	if !m.begun {
		return nil
	}
	h.held = false
	h.sim.Resume(h.side.ID())
	if m.user != nil {
		return m.user.EmptyCache()
	}
	h.ReleasePool(m.id)
	if err := h.EmptyCache(); err != nil {
		return err
	}
	h.BeginAllocateToPool(m.id, func(driver.Stream) bool { return true })
	h.EndAllocateToPool(m.id)
	return nil
}

func (h *poolHistory) restore(m *poolModel) error {
	if len(m.states) == 0 {
		return nil
	}
	k := m.states[h.r.IntN(len(m.states))]
	h.ProcessPending()
	before, calls := h.Snapshot(), h.dev.Calls()
	if h.r.IntN(2) == 0 {
		if err := h.counted(); err != nil {
			return err
		}
		h.ResetPeakStats()
		h.peaks = h.counts
	}
	waits := slices.ContainsFunc(before, func(s mem.SegmentInfo) bool { return s.ActiveSize > s.AllocatedSize })
	d, err := h.Restore(k.PoolState)
	after := h.Snapshot()
	if err != nil {
		if !reflect.DeepEqual(after, before) {
			return fmt.Errorf("the restore failed (%w) but changed something", err)
		}
		return h.refused(m, k, before, err)
	}
	if !waits && h.dev.Calls() != calls {
		return fmt.Errorf("the restore made %d calls of the device", h.dev.Calls()-calls)
	}
	h.restores++
	h.blocks += len(d.Live)
	h.freed += len(d.Freed)
	if err := h.compare(m, k, d, before, after); err != nil {
		return fmt.Errorf("%w\nbefore: %+v\nstate: %+v\nafter: %+v", err, before, k.segments, after)
	}
	for _, stale := range m.live {
		if h.r.IntN(8) == 0 {
			testkit.Contains(h.t, testkit.Panic(h.t, func() { h.Free(stale.Block) }), "not live")
		}
	}
	m.live = slices.Clone(k.live)
	for i := range m.live {
		m.live[i].Block = d.Live[i]
	}
	if h.r.IntN(2) == 0 {
		return h.Check() // asking for the statistics would bring the peaks up to date
	}
	return h.counted()
}

// refused reports whether a failed restore had to fail.
func (h *poolHistory) refused(m *poolModel, k *keptState, now []mem.SegmentInfo, err error) error {
	pending, missing := false, false
	for _, s := range now {
		pending = pending || s.Pool == m.id && s.ActiveSize > s.AllocatedSize
	}
	for _, s := range k.segments {
		missing = missing || !slices.ContainsFunc(now, func(n mem.SegmentInfo) bool { return covers(n, s) })
	}
	switch {
	case pending && errors.Is(err, driver.ErrNotReady):
		h.notReady++
	case !pending && missing && errors.Is(err, driver.ErrInvalid):
		h.gone++
		m.states = slices.DeleteFunc(slices.Clone(m.states), func(o *keptState) bool { return o == k })
	default:
		return fmt.Errorf("pending %v, missing %v: %w", pending, missing, err)
	}
	return nil
}

// covers reports whether a segment is the one it was or, if it is expandable, has all of its pages.
func covers(now, was mem.SegmentInfo) bool {
	if now.Pool != was.Pool || now.Stream != was.Stream || now.Large != was.Large || now.Expandable != was.Expandable {
		return false
	}
	if !now.Expandable {
		return now.Ptr == was.Ptr && now.TotalSize == was.TotalSize
	}
	return now.Ptr <= was.Ptr && now.Ptr+driver.Pointer(now.TotalSize) >= was.Ptr+driver.Pointer(was.TotalSize)
}

// compare compares the state after a restore with the state at the checkpoint and with the state before the restore.
func (h *poolHistory) compare(m *poolModel, k *keptState, d *caching.Delta, before, after []mem.SegmentInfo) error {
	if len(d.Live) != len(k.live) {
		return fmt.Errorf("%d blocks are live, want %d", len(d.Live), len(k.live))
	}
	again := map[int]bool{}
	for i, l := range k.live {
		if got := d.Live[i]; got.Ptr != l.Ptr || got.Size != l.Size {
			return fmt.Errorf("live block %d is %+v, want %+v", i, got, l)
		}
		again[l.n] = true
	}
	var freed []mem.Block
	for _, l := range m.live {
		if !again[l.n] {
			freed = append(freed, l.Block)
		}
	}
	if !slices.Equal(d.Freed, freed) {
		return fmt.Errorf("freed %+v, want %+v", d.Freed, freed)
	}
	if len(after) != len(before) {
		return fmt.Errorf("there were %d segments, now %d", len(before), len(after))
	}
	for i, s := range after {
		if s.Pool != m.id {
			if !reflect.DeepEqual(s, before[i]) {
				return fmt.Errorf("a segment of another pool was %+v, is %+v", before[i], s)
			}
			continue
		}
		if s.Ptr != before[i].Ptr || s.TotalSize != before[i].TotalSize {
			return fmt.Errorf("a segment was %+v, is %+v", before[i], s)
		}
		if err := h.asAtCheckpoint(s, k); err != nil {
			return err
		}
	}
	return nil
}

// asAtCheckpoint compares a segment with the segments of the state that lie in it. Memory mapped beside them since then
// is free.
func (h *poolHistory) asAtCheckpoint(now mem.SegmentInfo, k *keptState) error {
	var active int64
	for _, was := range k.segments {
		if !covers(now, was) {
			continue
		}
		active += was.ActiveSize
		if now.TotalSize == was.TotalSize {
			if !reflect.DeepEqual(now, was) {
				return fmt.Errorf("a segment was %+v, is %+v", was, now)
			}
			continue
		}
		h.grown++
		var blocks []mem.BlockInfo // of now, where was lay
		end := was.Ptr + driver.Pointer(was.TotalSize)
		for _, b := range now.Blocks {
			from, to := max(b.Ptr, was.Ptr), min(b.Ptr+driver.Pointer(b.Size), end)
			if from < to {
				b.Ptr, b.Size = from, int64(to-from)
				blocks = append(blocks, b)
			}
		}
		for i := range was.Blocks {
			if i < len(blocks) && was.Blocks[i].State == mem.Inactive {
				blocks[i].RequestedSize = was.Blocks[i].RequestedSize // it may be a part of a larger one now
			}
		}
		if !slices.Equal(blocks, was.Blocks) {
			return fmt.Errorf("a segment of %+v is %+v", was, blocks)
		}
	}
	if now.ActiveSize != active {
		return fmt.Errorf("%d bytes of %+v are active, want %d", now.ActiveSize, now, active)
	}
	return nil
}

// counted checks that the statistics, the events and the allocator itself agree with the model.
func (h *poolHistory) counted() error {
	var n, bytes, asked int64
	for _, m := range h.pools {
		n += int64(len(m.live))
		for _, l := range m.live {
			bytes += l.Size
			asked += l.asked
			if e, ok := h.seen[l.Ptr]; h.seen != nil && (!ok || e.Size != l.asked || e.Pool != m.id) {
				return fmt.Errorf("the last event of %+v is %+v, %v", l, e, ok)
			}
		}
	}
	s := h.Stats()
	if s.Allocation.All.Current != n || s.AllocatedBytes.All.Current != bytes ||
		s.Active.All.Current == n && s.RequestedBytes.All.Current != asked || h.seen != nil && int64(len(h.seen)) != n {
		return fmt.Errorf("the statistics have %d blocks of %d bytes, %d of them requested, the events %d blocks; want %d, %d, %d",
			s.Allocation.All.Current, s.AllocatedBytes.All.Current, s.RequestedBytes.All.Current, len(h.seen), n, bytes, asked)
	}
	if peaks := (eventSum{s.Allocation.All.Peak, s.RequestedBytes.All.Peak}); h.seen != nil && peaks != h.peaks {
		return fmt.Errorf("the statistics' peaks are %+v, the events' %+v", peaks, h.peaks)
	}
	return h.Check()
}

// finish gives everything back, and nothing must be left.
func (h *poolHistory) finish() error {
	for _, m := range h.pools {
		for _, l := range m.live {
			h.Free(l.Block)
		}
		if m.user != nil {
			if err := m.user.Close(); err != nil {
				return err
			}
		} else if m.begun {
			h.ReleasePool(m.id)
		}
	}
	h.sim.Resume(h.side.ID())
	if err := h.Close(); err != nil {
		return err
	}
	if l := h.sim.Leaks(); len(l.Allocations)+len(l.Reservations)+len(l.Pages) > 0 {
		return fmt.Errorf("left on the device: %v", l)
	}
	return h.dev.Close()
}
