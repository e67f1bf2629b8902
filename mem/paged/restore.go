package paged

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// Restore puts a private pool back into an earlier state, to the block: PyTorch's setCheckpointPoolState. A graph can
// then be captured again after graphs before it were launched, whose results become live without a request.
//
// It frees every live block of the pool, as Free does without other streams; the caller must order any work of other
// streams on them. Then the blocks that were live at the checkpoint are live again, with the same addresses and sizes,
// in the same pages. It does not touch memory and makes no driver call. Pages that the pool has gained since stay with
// the pool. Its cost grows with the number of the allocator's blocks.
//
// The restored blocks are new: freeing a block allocated before panics. The owner of memory whose address is live
// again takes its block from the Delta. For a tensor's storage over such an address, use tensor.FromPointer with a
// deleter that frees the block of Delta.At.
//
// The error matches driver.ErrNotReady if the default pool has borrowed a block (PoolOptions.UseOnOOM), whose owner
// does not know of the Restore. It matches driver.ErrInvalid if the pool was released, if requests are going to it, or
// if memory of a block was freed since, which cannot happen while graphs use the pool. On an error nothing has changed.
// Restore panics if another allocator made the state.
func (a *Allocator) Restore(s *PoolState) (*mem.PoolDelta, error) {
	if s.of != a {
		panic("paged: Restore of a state that another allocator took")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	pp, err := a.checkpointable("Restore", s.pool.id)
	switch {
	case err != nil:
		return nil, err
	case pp != s.pool || pp.useCount == 0:
		return nil, fmt.Errorf("paged: Restore: pool %v was released: %w", s.pool.id, driver.ErrInvalid)
	case pp.space.paused != nil:
		return nil, fmt.Errorf("paged: Restore of pool %v: %w", pp.id, ErrPaused)
	case a.scopes.SendTo(pp):
		return nil, fmt.Errorf("paged: Restore: requests are going to pool %v: %w", pp.id, driver.ErrInvalid)
	}
	if err := a.checkMapped(s); err != nil {
		return nil, fmt.Errorf("paged: Restore of pool %v: %w", pp.id, err)
	}
	d := &mem.PoolDelta{Freed: a.freeLive(pp)}
	d.Live = a.restoreSpans(s)
	firstTags := make(map[uint64]uint64, len(d.Live))
	for i, b := range d.Live {
		firstTags[b.Tag] = s.live[i].tag
	}
	again := map[driver.Pointer]uint64{}
	for i := range s.live {
		again[s.live[i].ptr] = s.live[i].tag
	}
	d.Freed = slices.DeleteFunc(d.Freed, func(b mem.Block) bool { return again[b.Ptr] == pp.firstTag(b.Tag) })
	pp.firstTags = firstTags
	slices.SortFunc(d.Live, func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) })
	slices.SortFunc(d.Freed, func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) })
	a.verify()
	return d, nil
}

// checkMapped checks that the blocks of a state have pages at their addresses, each page at one of them.
func (a *Allocator) checkMapped(s *PoolState) error {
	users := map[pref]mref{}
	for i := range s.spans {
		sp := &s.spans[i]
		if a.regions[sp.number] != sp.region {
			return fmt.Errorf("it no longer has the addresses at %#x: %w", uint64(sp.ptr), driver.ErrInvalid)
		}
		rg, from, to := a.granules(&span{ptr: sp.ptr, region: sp.number}, sp.units)
		for g := from; g < to; g++ {
			m := rg.mapping(g)
			if m == 0 {
				return fmt.Errorf("it no longer has the memory at %#x: %w", uint64(sp.ptr), driver.ErrInvalid)
			}
			page := a.mappings[m].page
			if user := users[page]; user != 0 && user != m {
				return fmt.Errorf("its memory at %#x was moved: %w", uint64(sp.ptr), driver.ErrInvalid)
			}
			users[page] = m
		}
	}
	return nil
}

// freeLive frees the live blocks of a pool and returns them.
func (a *Allocator) freeLive(pp *privatePool) (freed []mem.Block) {
	var refs []ref
	for at := range a.liveIn(pp) {
		refs = append(refs, at)
	}
	for _, at := range refs {
		sp := a.spans.at(at)
		b := mem.Block{Ptr: sp.ptr, Size: sp.size(), Tag: sp.tag(at) | privateTag}
		freed = append(freed, b)
		if !sp.markFree(b.Tag) {
			panic(fmt.Sprintf("paged: Restore of pool %v at the same time as Free of its block at %#x", pp.id, b.Ptr))
		}
		stream, asked := sp.stream, sp.requested()
		a.freed.Add(sp.sums())
		a.release(at, sp, nil)
		a.notify(mem.ActionFreeRequested, &pp.space, stream, b.Ptr, asked)
		a.notify(mem.ActionFreeCompleted, &pp.space, stream, b.Ptr, asked)
	}
	return freed
}

// restoreSpans makes the blocks of a state live in a pool without live blocks, and returns them in the state's order.
func (a *Allocator) restoreSpans(s *PoolState) (live []mem.Block) {
	rest := s.live
	for i := range s.spans {
		saved := &s.spans[i]
		at, deps := a.carve(saved)
		blocks := rest[:saved.blocks]
		rest = rest[saved.blocks:]
		if saved.parts == 0 {
			live = append(live, a.revive(s.pool, at, a.spans.at(at), blocks[0], deps))
			continue
		}
		a.cut(at, saved.parts)
		lists := s.pool.space.slabsOf(saved.stream)
		for i := a.spans.at(at).next2; i != 0; i = a.spans.at(i).next {
			part := a.spans.at(i)
			if part.deps = deps; len(blocks) > 0 && part.ptr == blocks[0].ptr {
				a.takeSlot(lists, part, 0)
				live = append(live, a.revive(s.pool, i, part, blocks[0], deps))
				blocks = blocks[1:]
			}
		}
	}
	return live
}

// carve makes a block of a saved span's addresses, which are free, with the pages that are mapped there. It returns the
// dependencies of the memory.
func (a *Allocator) carve(saved *savedSpan) (ref, reuse.Dependencies) {
	at := saved.region.first
	for a.spans.at(at).end() <= saved.ptr {
		at = a.spans.at(at).next
	}
	sp := a.spans.at(at)
	if before := uint32((saved.ptr - sp.ptr) / unit); before > 0 {
		a.splitHole(saved.region, at, sp, before)
		a.addHole(saved.region, at, sp)
		at = sp.next
		sp = a.spans.at(at)
	}
	a.splitHole(saved.region, at, sp, saved.units)
	rg, from, to := a.granules(sp, sp.units)
	deps := sp.deps
	for g := from; g < to; {
		m := rg.at[g]
		mp := &a.mappings[m]
		if mp.blocks == 0 {
			deps = a.streams.Merge(a.streams.Merge(deps, a.depsAt(m)), mp.deps)
			a.fromIdle(mp.page, m)
			a.setCounted(m)
		} else {
			deps = a.streams.Merge(deps, mp.pageDeps)
		}
		mp.blocks++
		g = mp.at + mp.n
	}
	sp.mapping, sp.stream, sp.state, sp.deps = rg.at[from], saved.stream, block, deps
	return at, deps
}

// revive makes a span live again as a saved block. Its free is ordered after the work of its users at the checkpoint,
// and after all that has used the memory since.
func (a *Allocator) revive(pp *privatePool, at ref, sp *span, b savedBlock, deps reuse.Dependencies) mem.Block {
	users := deps.Users
	for _, s := range b.users {
		users = a.streams.Union(users, a.streams.Register(s))
	}
	sp.deps = reuse.Dependencies{Users: users}
	now := sp.markAllocated(at, b.requested)
	now.Tag |= privateTag
	a.countAlloc(sp)
	a.notify(mem.ActionAlloc, &pp.space, sp.stream, now.Ptr, b.requested)
	return now
}
