// Package deferredfree simulates the streams on which a replayed program still uses blocks that it has freed.
package deferredfree

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/trace"
)

// firstID is the ID of stream 0: larger than the IDs that devices give to their own streams.
const firstID = 1 << 16

// A Stream represents a stream of a recording that still uses freed blocks. It accepts no work: the replay sets Queued
// and completes marks itself. Safe for concurrent use.
//
// Invariant: Done <= Queued; neither decreases.
type Stream struct {
	id     driver.StreamID
	Queued atomic.Uint64 // tick of the last mark
	Done   atomic.Uint64 // tick up to which marks are reached
	waits  *atomic.Int64 // number of Sync calls that found work pending; may be nil
}

// NewStream returns stream number i. Each Sync that finds work pending adds one to waits, which may be nil.
func NewStream(i int, waits *atomic.Int64) *Stream {
	return &Stream{id: firstID + driver.StreamID(i), waits: waits}
}

// NewStreams returns n streams; see NewStream.
func NewStreams(n int, waits *atomic.Int64) []*Stream {
	streams := make([]*Stream, n)
	for i := range streams {
		streams[i] = NewStream(i, waits)
	}
	return streams
}

// Index returns the number of the stream.
func (s *Stream) Index() uint32 { return uint32(s.id - firstID) }

// Complete marks everything up to tick as done.
func (s *Stream) Complete(tick uint64) {
	for done := s.Done.Load(); done < tick && !s.Done.CompareAndSwap(done, tick); done = s.Done.Load() {
	}
}

// ID implements driver.Stream.
func (s *Stream) ID() driver.StreamID { return s.id }

// Mark implements driver.Stream.
func (s *Stream) Mark() (driver.Mark, error) {
	return driver.Mark{Stream: s.id, Tick: s.Queued.Load()}, nil
}

// Reached implements driver.Stream.
func (s *Stream) Reached(m driver.Mark) (bool, error) { return m.Tick <= s.Done.Load(), nil }

// Sync completes everything at once. It cannot wait, because the replay continues only after the allocator returns.
func (s *Stream) Sync(context.Context) error {
	if s.waits != nil && s.Done.Load() < s.Queued.Load() {
		s.waits.Add(1)
	}
	s.Complete(s.Queued.Load())
	return nil
}

// WaitFor does nothing, since no work follows.
func (s *Stream) WaitFor(driver.Stream, driver.Mark) error { return nil }

// Close implements driver.Stream.
func (s *Stream) Close() error { return s.Sync(context.Background()) }

func unsupported(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrUnsupported, Detail: "a replay's stream for deferred frees " +
		"accepts no work"}
}

// Copy fails: the stream accepts no work.
func (s *Stream) Copy(dst, src driver.Pointer, n int64) error { return unsupported("Copy") }

// CopyIn fails: the stream accepts no work.
func (s *Stream) CopyIn(dst driver.Pointer, src []byte) error { return unsupported("CopyIn") }

// CopyOut fails: the stream accepts no work.
func (s *Stream) CopyOut(dst []byte, src driver.Pointer) error { return unsupported("CopyOut") }

// Fill fails: the stream accepts no work.
func (s *Stream) Fill(p driver.Pointer, pattern byte, n int64) error { return unsupported("Fill") }

// A Mark is the position of a deferred free on a stream.
type Mark struct {
	Tick   uint64 // from 1
	Stream uint32
}

// Plan assigns a mark to each OpFreeDeferred and OpComplete of p, in order, such that the marks of each stream complete
// in order. It returns the marks and the number of streams, which is the smallest possible. (A stream does its work in
// order, so an allocator checks marks only up to the first that is not reached.)
func Plan(p *trace.Program) (plan []Mark, streams int) {
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
	// ends is the op at which each pending block completes.
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
	// lasts holds the last free of each stream, with descending ends. Each free joins the first stream whose last free
	// completes before it, which is the closest fit, or a new stream at the end.
	var lasts []last
	marks := make(map[uint32]Mark, n/2)
	plan = make([]Mark, 0, n)
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
			marks[op.Block] = Mark{Tick: lasts[side].tick, Stream: uint32(side)}
			plan = append(plan, marks[op.Block])
		case trace.OpComplete:
			plan = append(plan, marks[op.Block])
			delete(marks, op.Block)
		}
	}
	return plan, len(lasts)
}
