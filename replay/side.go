package replay

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// firstSideID is the ID of the first side stream: beyond what a device gives to streams of its own.
const firstSideID = 1 << 16

// A sideStream stands for a stream of the recording that still uses freed blocks. It takes no work: queued and done are
// what the replay says they are.
//
// Invariant: done <= queued; neither decreases.
type sideStream struct {
	id     driver.StreamID
	queued atomic.Uint64
	done   atomic.Uint64
	waits  *atomic.Int64 // counts calls of Sync that had something to wait for, if not nil
}

func newSideStreams(n int, waits *atomic.Int64) []*sideStream {
	sides := make([]*sideStream, n)
	for i := range sides {
		sides[i] = &sideStream{id: firstSideID + driver.StreamID(i), waits: waits}
	}
	return sides
}

// complete says that all up to tick is done.
func (s *sideStream) complete(tick uint64) {
	for done := s.done.Load(); done < tick && !s.done.CompareAndSwap(done, tick); done = s.done.Load() {
	}
}

// ID implements driver.Stream.
func (s *sideStream) ID() driver.StreamID { return s.id }

// Mark implements driver.Stream.
func (s *sideStream) Mark() (driver.Mark, error) {
	return driver.Mark{Stream: s.id, Tick: s.queued.Load()}, nil
}

// Reached implements driver.Stream.
func (s *sideStream) Reached(m driver.Mark) (bool, error) { return m.Tick <= s.done.Load(), nil }

// Sync completes everything: whoever waits for a side stream would wait for ever, since the replay goes on only when the
// allocator returns.
func (s *sideStream) Sync(context.Context) error {
	if s.waits != nil && s.done.Load() < s.queued.Load() {
		s.waits.Add(1)
	}
	s.complete(s.queued.Load())
	return nil
}

// WaitFor does nothing, since no work follows.
func (s *sideStream) WaitFor(driver.Stream, driver.Mark) error { return nil }

// Close implements driver.Stream.
func (s *sideStream) Close() error { return s.Sync(context.Background()) }

func sideError(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrUnsupported, Detail: "a replay's side stream takes no work"}
}

// Copy fails: side streams take no work.
func (s *sideStream) Copy(dst, src driver.Pointer, n int64) error { return sideError("Copy") }

// CopyIn fails: side streams take no work.
func (s *sideStream) CopyIn(dst driver.Pointer, src []byte) error { return sideError("CopyIn") }

// CopyOut fails: side streams take no work.
func (s *sideStream) CopyOut(dst []byte, src driver.Pointer) error { return sideError("CopyOut") }

// Fill fails: side streams take no work.
func (s *sideStream) Fill(p driver.Pointer, pattern byte, n int64) error { return sideError("Fill") }

// AtOnce returns a layer over a in which a deferred free is complete when it is requested: Free waits for the streams that
// it is told of, which side streams make no wait, and tells a of none. See the package's words on streams for the allocators
// that need it.
func AtOnce(a mem.Allocator) mem.Allocator { return atOnce{a} }

// atOnce is the layer of AtOnce.
type atOnce struct{ below mem.Allocator }

// Unwrap implements mem.Wrapper.
func (l atOnce) Unwrap() mem.Allocator { return l.below }

// Alloc implements mem.Allocator.
func (l atOnce) Alloc(s driver.Stream, size int64) (mem.Block, error) { return l.below.Alloc(s, size) }

// Free implements mem.Allocator.
func (l atOnce) Free(b mem.Block, used ...driver.Stream) {
	for _, s := range used {
		if side, ok := s.(*sideStream); ok {
			side.complete(side.queued.Load()) // the allocator below would not have waited
			continue
		}
		if s.Sync(context.Background()) != nil {
			l.below.Free(b, used...) // which may know how to go on
			return
		}
	}
	l.below.Free(b)
}

// Movable implements mem.Mover.
func (l atOnce) Movable(b mem.Block, h mem.Holder) bool { return mem.Movable(l.below, b, h) }

// A sideMark is where a deferred free stands on a side stream.
type sideMark struct {
	tick uint64 // from 1
	side uint32
}

// sidePlan gives each OpFreeDeferred and each OpComplete of p, in their order, a mark on a side stream, such that on
// each stream the marks are completed in their order, and returns how many streams that takes: the fewest possible.
// (A stream's work is done in order, so an allocator looks no further than the first mark that is not reached.)
func sidePlan(p *trace.Program) (plan []sideMark, sides int) {
	const never = 1<<32 - 1
	n := 0
	for i := range p.Ops {
		if k := p.Ops[i].Kind; k == trace.OpFreeDeferred || k == trace.OpComplete {
			n++
		}
	}
	if n == 0 {
		return nil, 0
	}
	// ends is when each pending block completes, and then its mark.
	ends := make(map[uint32]uint32, n/2)
	for i := range p.Ops {
		if op := &p.Ops[i]; op.Kind == trace.OpComplete {
			ends[op.Block] = uint32(i)
		}
	}
	type last struct {
		end  uint32
		tick uint64
	}
	// lasts is the last free of each stream. Their ends descend: each free joins the first stream on which it completes
	// after the last, which is the one it keeps waiting least, or a new stream at the end.
	var lasts []last
	marks := make(map[uint32]sideMark, n/2)
	plan = make([]sideMark, 0, n)
	for i := range p.Ops {
		op := &p.Ops[i]
		switch op.Kind {
		case trace.OpFreeDeferred:
			end, ok := ends[op.Block]
			if !ok {
				end = never
			}
			side, _ := slices.BinarySearchFunc(lasts, end, func(l last, end uint32) int {
				if l.end < end || end == never {
					return 1
				}
				return -1
			})
			if side == len(lasts) {
				lasts = append(lasts, last{})
			}
			lasts[side] = last{end, lasts[side].tick + 1}
			marks[op.Block] = sideMark{tick: lasts[side].tick, side: uint32(side)}
			plan = append(plan, marks[op.Block])
		case trace.OpComplete:
			plan = append(plan, marks[op.Block])
			delete(marks, op.Block)
		}
	}
	return plan, len(lasts)
}
