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
	Steps  int    // pack.Options.Steps; 0: greedy orders only; negative: no limit except ctx
}

// Make plans a program that Check accepts. A stream's requests are planned once, in order. But if at least half of
// them are two or more equal rounds, and few requests follow, the plan has the requests before the rounds, and then
// one round that repeats.
//
// The fallback serves requests from private pools, requests for 0 bytes, and requests in a round whose blocks outlive
// four rounds. A block is planned until its free is complete (trace.OpComplete), so that streams need not wait. A
// request that failed when it was recorded (trace.OpTry) has a slot until the next request of its stream, and the
// region has room for it; use trace.Program.Within to leave out requests that no device can serve. The error is a
// *trace.ProgramError, or names a number that is too large.
//
// The packing is the best one found after o.Steps or when ctx ends, which is not an error.
func Make(ctx context.Context, p *trace.Program, o Options) (*Plan, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	plan := &Plan{Trace: o.Trace, Device: o.Device, Room: o.Room}
	for stream, slots := range requests(p.Within(maxRequest)) {
		if len(slots) == 0 {
			continue
		}
		for i := range slots {
			if size := slots[i].Size; size > maxRequest {
				return nil, fmt.Errorf("planned: request %d of stream %d is for %d bytes, want at most %d", i, stream,
					size, int64(maxRequest))
			}
		}
		l := StreamPlan{Stream: stream, Loop: -1, Slots: slots}
		if r, ok := repeating(slots); ok {
			l.makeLoop(r)
		}
		if len(l.Slots) > maxSlots {
			return nil, fmt.Errorf("planned: stream %d makes %d requests, want at most %d", stream, len(l.Slots),
				maxSlots)
		}
		if err := plan.place(ctx, &l, o.Steps); err != nil {
			return nil, fmt.Errorf("planned: pack the blocks of stream %d: %w", stream, err)
		}
		plan.Streams = append(plan.Streams, l)
	}
	return plan, plan.Check()
}

// requests returns the slots of each stream, not placed yet: Offset is 0, or -1 for those that the fallback serves.
func requests(p *trace.Program) [][]Slot {
	slots := make([][]Slot, p.Streams)
	at := make([]struct {
		stream   uint32
		position int
	}, p.Blocks)
	add := func(op *trace.Op, end int) (position int) {
		if op.Size == 0 {
			return -1
		}
		s := Slot{Size: op.Size, End: end}
		if op.Pool != 0 {
			s.Offset = -1
		}
		slots[op.Stream] = append(slots[op.Stream], s)
		return len(slots[op.Stream]) - 1
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		switch op.Kind {
		case trace.OpAlloc:
			at[op.Block].stream, at[op.Block].position = op.Stream, add(op, Forever)
		case trace.OpTry:
			add(op, len(slots[op.Stream])+1)
		case trace.OpFree, trace.OpComplete:
			if b := at[op.Block]; b.position >= 0 {
				slots[b.stream][b.position].End = len(slots[b.stream])
			}
		}
	}
	return slots
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
