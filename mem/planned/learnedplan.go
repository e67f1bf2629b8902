package planned

import (
	"context"
	"errors"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// pack begins to pack the steps that occurred twice, if there are any that are not packed. The caller holds mu.
func (l *Learner) pack() {
	if !slices.ContainsFunc(l.rec.steps, func(s *step) bool { return s.seen > 1 && !s.packed }) {
		return
	}
	work := l.rec.repeated()
	l.busy = true
	do := func() {
		for _, s := range work {
			if !s.packed {
				s.packed = s.pack(l.opts.Effort) == nil
			}
		}
		l.packing <- work
	}
	if l.opts.Background {
		go do()
	} else {
		do()
	}
}

// pack packs the blocks of a step that end in it.
func (s *step) pack(effort int) error {
	p := StreamPlan{Loop: -1, Slots: slices.Clone(s.slots)}
	for k := range p.Slots {
		slot := &p.Slots[k]
		if slot.Offset = 0; !slot.isPlanned() {
			slot.Offset = -1
		}
	}
	err := new(Plan).place(context.Background(), &p, effort)
	if err == nil {
		s.slots, s.size = p.Slots, p.Size
	}
	return err
}

// use makes packed steps the plan, except those for which there are too few addresses. The plan owns them from then on.
// The caller holds mu.
func (l *Learner) use(steps []*step) {
	l.busy = false
	steps = slices.DeleteFunc(steps, func(s *step) bool { return !s.packed })
	for _, s := range steps {
		i := slices.IndexFunc(l.rec.steps, func(r *step) bool { return r.number == s.number })
		if i < 0 || l.rec.steps[i].version != s.version {
			continue // it changed; the next time it ends it is packed again
		}
		r := l.rec.steps[i]
		r.slots, r.size, r.packed = slices.Clone(s.slots), s.size, true
	}
	steps = slices.DeleteFunc(steps, func(s *step) bool { return s.size > l.size })
	if len(steps) == 0 {
		return
	}
	l.plan, l.follow = steps, newFollower(steps)
	l.counts.Plans++
	l.counts.Steps = len(steps)
	l.clean, l.trimmed, l.begun, l.trimFrom, l.tallest = false, false, 0, 0, nil
}

// obstacles counts what blocks that stay at planned addresses prevent: weights, for example, that were mistaken for
// blocks of a step.
type obstacles struct {
	placed, missed int64 // bytes of the present step at their planned addresses, and elsewhere
	other          bool  // the present step has unexpected requests
	steps          int   // number of steps in a row, as expected, of which much was missed
	moves          int   // of the plan to other addresses
}

const (
	muchMissed = 16 // much is missed if it is more than 1/muchMissed of the bytes placed
	mostMoves  = 4  // of a run: when they do not help, memory is missing, not addresses
)

// step ends a step. It reports whether the plan is to move.
func (o *obstacles) step() bool {
	if o.steps++; o.other || o.missed <= o.placed/muchMissed {
		o.steps = 0
	}
	o.placed, o.missed, o.other = 0, 0, false
	return o.steps > 1 && o.moves < mostMoves
}

// move moves the plan to addresses beyond those of obstacles, if there are enough. The caller holds mu.
func (l *Learner) move() {
	var size int64
	for _, s := range l.plan {
		size = max(size, s.size)
	}
	if granule := l.dev.Info().Granularity; granule > 0 {
		size = (size + granule - 1) / granule * granule
	}
	if 2*size <= l.size {
		l.base, l.size = l.base+driver.Pointer(size), l.size-size
		l.found.moves++
		l.found.steps, l.trimmed = 0, false
		l.counts.Plans++
	}
}

// Plan returns the present plan, for LearnOptions.Plan of the next run, or nil if there is none.
func (l *Learner) Plan() *Plan {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planOf()
}

// planOf is Plan. The caller holds mu.
func (l *Learner) planOf() *Plan {
	if len(l.plan) == 0 {
		return nil
	}
	info := l.dev.Info()
	plan := StreamPlan{Loop: -1}
	streams := 0
	for _, s := range l.plan {
		before := len(plan.Slots)
		if before+len(s.slots) > maxSlots {
			break
		}
		plan.Steps = append(plan.Steps, before)
		plan.Size = max(plan.Size, s.size)
		for _, slot := range s.slots {
			if slot.End == Forever {
				slot.Offset = -1 // other steps may have the addresses
			} else {
				slot.End += before
			}
			streams = max(streams, slot.Stream)
			plan.Slots = append(plan.Slots, slot)
		}
	}
	for i := range streams {
		plan.Shared = append(plan.Shared, i+1)
	}
	return &Plan{
		Trace: "learned", Device: Device{info.Name, info.TotalMemory, info.Alignment}, Streams: []StreamPlan{plan},
		Start: l.firstThatStay(),
	}
}

// firstThatStay returns Plan.Start: of this run, or of the plan to begin with while this run does not know. The caller
// holds mu.
func (l *Learner) firstThatStay() []Start {
	if l.rec.first.until == 0 && l.opts.Plan != nil {
		return l.opts.Plan.Start
	}
	return l.rec.first.starts()
}

// stepsOf returns the steps of a plan. One without steps consists of the requests before the loop, and the loop.
func stepsOf(p *Plan) (steps []*step, err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if len(p.Streams) != 1 || p.Room != 0 {
		return nil, errors.New("planned: a plan for a Learner has one part for all streams, and no room in its sizes")
	}
	l := &p.Streams[0]
	begins := l.Steps
	if len(begins) == 0 {
		if begins = []int{0}; l.Loop > 0 {
			begins = append(begins, l.Loop)
		}
	}
	numbers := l.Numbers()
	around := false // some steps are packed around blocks that outlive them
	for i, from := range begins {
		to := len(l.Slots)
		if i+1 < len(begins) {
			to = begins[i+1]
		}
		s := &step{number: i + 1, slots: slices.Clone(l.Slots[from:to]), size: l.Size, seen: 2, packed: true}
		for k := range s.slots {
			slot := &s.slots[k]
			slot.Stream = numbers[slot.Stream]
			if slot.End -= from; slot.End > len(s.slots) {
				slot.End = Forever
				around = around || slot.Offset >= 0
			}
		}
		steps = append(steps, s)
	}
	for _, s := range steps {
		s.packed = !around
	}
	return steps, nil
}
