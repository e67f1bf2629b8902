package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// resolveReleases is called at an entry that begins a request or shows a served one. It decides what caused the freed
// segments since the last request, and emits the held completions. Completions that belong after an alloc stay in held.
func (c *converter) resolveReleases(alloc bool) {
	if c.run.count == 0 {
		c.flush(len(c.held))
		c.run = releaseRun{}
		return
	}
	idle := c.opts.NoGarbageCollection && c.run.before+c.run.taken <= c.peak
	if !alloc || c.run.taken == 0 || idle {
		c.flush(c.run.held)
		c.emit(c.run.entry, Op{Kind: OpEmptyCache})
		c.flush(len(c.held))
	}
	c.run = releaseRun{}
}

// flush emits the first n held completions.
func (c *converter) flush(n int) {
	for _, h := range c.held[:n] {
		c.end(h.entry, Op{Kind: OpComplete, Block: h.block}, h.size)
	}
	c.held = append(c.held[:0], c.held[n:]...)
}

func (c *converter) alloc(i int, e *Event) {
	if e.Size < 0 {
		c.p.Anomalies.add(i, "alloc of %d bytes at %#x", e.Size, e.Ptr)
		return
	}
	s := c.seen.at(e.Ptr)
	switch s.state {
	case addressLive:
		c.p.Anomalies.add(i, "alloc at %#x, where a block is live: its free is missing", e.Ptr)
		c.end(i, Op{Kind: OpFree, Block: s.block}, s.size)
	case addressPending:
		c.p.Anomalies.add(i, "alloc at %#x, where a block is still waiting for other streams", e.Ptr)
		c.end(i, Op{Kind: OpComplete, Block: s.block}, s.size)
	}
	*s = address{ptr: e.Ptr, size: e.Size, block: c.newBlock(), state: addressLive}
	c.emit(i, Op{Kind: OpAlloc, Block: s.block, Size: e.Size, Stream: c.stream(e), Pool: c.pool(i, e)})
}

// freeRequested reads a free_requested entry. If the next entry is its free_completed, freeRequested reads both and
// returns true.
func (c *converter) freeRequested(i int, e, next *Event) (both bool) {
	both = next != nil && next.Action == mem.ActionFreeCompleted && next.Ptr == e.Ptr
	s := c.seen.at(e.Ptr)
	switch s.state {
	case addressUnseen:
		c.before(i, e, s)
	case addressPending:
		c.p.Anomalies.add(i, "free of %#x, whose last free has not completed", e.Ptr)
		if both {
			c.end(i, Op{Kind: OpComplete, Block: s.block}, s.size)
			s.state = addressFree
		}
		return both
	case addressFree:
		c.p.Anomalies.add(i, "free of %#x, where no block is live: its alloc is missing", e.Ptr)
		return both
	}
	if both || c.completions == 0 {
		if both && c.lives != nil {
			c.lives.free(s.block, s.size, int32(i))
		} else {
			c.end(i, Op{Kind: OpFree, Block: s.block}, s.size)
		}
		s.state = addressFree
		return both
	}
	c.emit(i, Op{Kind: OpFreeDeferred, Block: s.block})
	s.state = addressPending
	return false
}

// freeCompleted reads a free_completed entry that does not directly follow its request.
func (c *converter) freeCompleted(i int, e *Event) {
	s := c.seen.at(e.Ptr)
	switch s.state {
	case addressPending:
		c.held = append(c.held, heldCompletion{block: s.block, size: s.size, entry: i})
	case addressUnseen:
		c.before(i, e, s)
		if c.requests == 0 {
			c.resolveReleases(false)
			c.end(i, Op{Kind: OpFree, Block: s.block}, s.size)
			break
		}
		// The free was requested before the recording too.
		c.prelude = append(c.prelude, unseenOp{Op{Kind: OpFreeDeferred, Block: s.block}, e.Ptr, s.size, i})
		c.held = append(c.held, heldCompletion{block: s.block, size: s.size, entry: i})
	case addressLive:
		if c.requests > 0 {
			c.p.Anomalies.add(i, "free of %#x completed, but was not requested", e.Ptr)
		}
		c.resolveReleases(false)
		c.end(i, Op{Kind: OpFree, Block: s.block}, s.size)
	case addressFree:
		c.p.Anomalies.add(i, "free of %#x completed, where no block is live", e.Ptr)
	}
	s.state = addressFree
}

// before adds the block that entry i frees to the prelude.
func (c *converter) before(i int, e *Event, s *address) {
	size := e.Size
	if size < 0 {
		c.p.Anomalies.add(i, "free of %d bytes at %#x", e.Size, e.Ptr)
		size = 0
	}
	s.block, s.size, s.state = c.newBlock(), size, addressLive
	c.older(unseenOp{
		Op{Kind: OpAlloc, Block: s.block, Size: size, Stream: c.stream(e), Pool: c.pool(i, e)}, e.Ptr, size, i,
	})
}

// An unseenOp is an op that no entry shows, with the address and the requested bytes of its block.
type unseenOp struct {
	Op
	ptr   driver.Pointer
	bytes int64
	entry int // that frees the block, or -1
}

func (c *converter) older(op unseenOp) {
	c.prelude = append(c.prelude, op)
	if c.origin == 0 && (c.lives == nil || c.missed < 0) {
		c.p.Prelude.Blocks++
		c.p.Prelude.Bytes += op.Size
	}
}

// survivors adds to the prelude the blocks of the final snapshot that no entry allocated.
func (c *converter) survivors() error {
	for n, b := range c.opts.Live {
		if b.Size < 0 {
			return fmt.Errorf("trace: live block %d at %#x: size %d", n, b.Ptr, b.Size)
		}
		s := c.seen.at(b.Ptr)
		switch s.state {
		case addressUnseen:
			s.block, s.size, s.state = c.newBlock(), b.Size, addressLive
			stream, _ := slices.BinarySearch(c.handles, b.Stream)
			pool := c.poolIndex(b.Pool)
			c.older(unseenOp{
				Op{Kind: OpAlloc, Block: s.block, Size: b.Size, Stream: uint32(stream), Pool: pool}, b.Ptr, b.Size, -1,
			})
		case addressFree:
			if c.completions > 0 { // otherwise it may be pending
				c.p.Anomalies.add(c.t.Len(), "block at %#x is active in the snapshot, but its last free completed",
					b.Ptr)
			}
		}
		c.p.Survivors = append(c.p.Survivors, s.block)
	}
	return nil
}

// gap handles a gap before an entry: it frees all live blocks.
func (c *converter) gap(before int) {
	c.resolveReleases(false)
	var lost []unseenOp
	for _, s := range c.seen.slots {
		switch s.state {
		case addressLive:
			lost = append(lost, unseenOp{Op{Kind: OpFree, Block: s.block}, s.ptr, s.size, -1})
		case addressPending:
			lost = append(lost, unseenOp{Op{Kind: OpComplete, Block: s.block}, s.ptr, s.size, -1})
		}
	}
	slices.SortFunc(lost, func(a, b unseenOp) int { return cmp.Compare(a.Block, b.Block) })
	c.seen = addresses{}
	c.insert()
	c.missed = before - 1
	c.unseen(len(c.p.Ops), lost)
	c.origin = len(c.p.Ops)
}

// insert inserts the prelude before op number origin, allocations first.
func (c *converter) insert() {
	var allocs, others []unseenOp
	for _, op := range c.prelude {
		if op.Kind == OpAlloc {
			allocs = append(allocs, op)
		} else {
			others = append(others, op)
		}
	}
	c.unseen(c.origin, append(allocs, others...))
	c.prelude = nil
}

// unseen inserts ops that have no entry.
func (c *converter) unseen(at int, unseen []unseenOp) {
	if len(unseen) == 0 {
		return
	}
	ops, entries := make([]Op, len(unseen)), make([]uint32, len(unseen))
	for i, op := range unseen {
		if c.lives != nil {
			c.lives.unseen(int32(c.missed), op)
		}
		ops[i], entries[i] = op.Op, NoEntry
	}
	if c.lives != nil {
		return
	}
	c.p.Ops, c.p.Entries = slices.Insert(c.p.Ops, at, ops...), slices.Insert(c.p.Entries, at, entries...)
}

func (c *converter) newBlock() uint32 {
	c.p.Blocks++
	return uint32(c.p.Blocks - 1)
}
