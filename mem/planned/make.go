package planned

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/trace"
)

// Options are the options of Make.
type Options struct {
	Trace  string // the plan's
	Device Device // the plan's
	Room   int    // the plan's
	Apart  bool   // each stream has a part of the region for itself
	Steps  int    // pack.Options.Steps; 0: greedy orders only; negative: no limit except ctx
}

// Make plans a program that Check accepts. Its requests are planned once, in order. But if at least half of them are
// two or more equal rounds, and few requests follow, the plan has the requests before the rounds, and then one round
// that repeats.
//
// The streams of a program share the region. Their requests must come in the recorded order, as they do when one
// goroutine makes them, and a stream that gets another one's memory waits for it. With o.Apart, each stream has a part
// of the region for itself, in which its requests come in the recorded order. Then streams wait for each other only if
// a Free names them, and the region is larger.
//
// The fallback serves requests from private pools, requests for 0 bytes, and requests in a round whose blocks outlive
// four rounds. A block is planned until its free is complete (trace.OpComplete), so that no stream waits for those that
// a Free names. A request that failed when it was recorded (trace.OpTry) has a slot until the next request, and the
// region has room for it; use trace.Program.Within to leave out requests that no device can serve. The error is a
// *trace.ProgramError, or names a number that is too large.
//
// The packing is the best one found after o.Steps or when ctx ends, which is not an error.
func Make(ctx context.Context, p *trace.Program, o Options) (*Plan, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	plan := &Plan{Trace: o.Trace, Device: o.Device, Room: o.Room}
	for _, l := range requests(p.Within(maxRequest), o.Apart) {
		for i := range l.Slots {
			if size := l.Slots[i].Size; size > maxRequest {
				return nil, fmt.Errorf("planned: request %d of stream %d is for %d bytes, want at most %d", i, l.Stream,
					size, int64(maxRequest))
			}
		}
		if r, ok := repeating(l.Slots); ok {
			l.makeLoop(r)
		}
		if len(l.Slots) > maxSlots {
			return nil, fmt.Errorf("planned: stream %d makes %d requests, want at most %d", l.Stream, len(l.Slots),
				maxSlots)
		}
		if err := plan.place(ctx, l, o.Steps); err != nil {
			return nil, fmt.Errorf("planned: pack the blocks of stream %d: %w", l.Stream, err)
		}
		plan.Streams = append(plan.Streams, *l)
	}
	return plan, plan.Check()
}

// requests returns the requests of each stream, or of all together, not placed yet: Offset is 0, or -1 for those that
// the fallback serves.
func requests(p *trace.Program, apart bool) (plans []*StreamPlan) {
	type owner struct {
		*StreamPlan
		index int // Slot.Stream
	}
	streams := make([]owner, p.Streams)
	of := func(stream uint32) owner {
		s := &streams[stream]
		switch {
		case s.StreamPlan != nil:
		case apart || len(plans) == 0:
			s.StreamPlan = &StreamPlan{Stream: int(stream), Loop: -1}
			plans = append(plans, s.StreamPlan)
		default:
			s.StreamPlan = plans[0]
			s.Shared = append(s.Shared, int(stream))
			s.index = len(s.Shared)
		}
		return *s
	}
	at := make([]struct {
		in       *StreamPlan
		position int
	}, p.Blocks)
	add := func(op *trace.Op) (in *StreamPlan, position int) {
		if op.Size == 0 {
			return nil, 0
		}
		l := of(op.Stream)
		s := Slot{Size: op.Size, End: Forever, Stream: l.index}
		if op.Pool != 0 {
			s.Offset = -1
		}
		l.Slots = append(l.Slots, s)
		return l.StreamPlan, len(l.Slots) - 1
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		switch op.Kind {
		case trace.OpAlloc:
			at[op.Block].in, at[op.Block].position = add(op)
		case trace.OpTry:
			if in, position := add(op); in != nil {
				in.Slots[position].End = position + 1
			}
		case trace.OpFree, trace.OpComplete:
			if b := at[op.Block]; b.in != nil {
				b.in.Slots[b.position].End = len(b.in.Slots)
			}
		}
	}
	return plans
}

// maxRounds is the largest number of rounds in a body, so that no block outlives the body.
const maxRounds = 4

// makeLoop makes a loop of the rounds. A block of the loop lives as long as the longest-lived of its blocks in all
// rounds, or forever, if one was still live at the end after a longer time.
func (l *StreamPlan) makeLoop(r repeat) {
	slots, end := l.Slots, r.from+r.period+r.run
	lives := make([]int, r.period)
	longest := 1
	for i := range lives {
		oldest := 0
		for at := r.from + i; at < end; at += r.period {
			if slots[at].End <= end {
				lives[i] = max(lives[i], slots[at].End-at)
			} else {
				oldest = max(oldest, end-at)
			}
		}
		if oldest > lives[i] {
			lives[i] = Forever
		}
		if lives[i] <= maxRounds*r.period {
			longest = max(longest, lives[i])
		}
	}
	rounds := (longest + r.period - 1) / r.period
	l.Loop, l.Slots = r.from, slots[:r.from:r.from]
	for at := range rounds * r.period {
		s := slots[r.from+at%r.period]
		if life := lives[at%r.period]; life <= rounds*r.period {
			s.End = r.from + at + life
		} else {
			s.End, s.Offset = Forever, -1
		}
		l.Slots = append(l.Slots, s)
	}
	for i := range r.from {
		if l.Slots[i].End > len(l.Slots) {
			l.Slots[i].End = Forever
		}
	}
}
