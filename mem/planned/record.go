package planned

import (
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A recorder divides the requests of a running program into steps.
//
// A low is a minimum of the live bytes between two rises. A step is the requests from a low to the next one of the same
// level, with nothing lower between them: all memory that it needed in between is free again. Only deep lows count: the
// live bytes fall, and rise again, by at least 1/depth of the most that they rose. A low is recognized when the live
// bytes have risen, which is some requests after it.
type recorder struct {
	slots    []Slot                 // requests since cut; End is a position, or open
	cut      int                    // position of slots[0]; positions count all requests since the beginning
	blocks   map[driver.Pointer]int // positions of the requests of live blocks
	level    int64                  // live bytes, as far as they are known
	bottom   int64                  // lowest level since restart
	rise     int64                  // most that the level rose above bottom
	high     int64                  // highest level since the last low
	low      low                    // last of the lowest points since high
	lows     []low                  // by level, ascending, and in order of time
	deepLows int                    // lows after a quarter of the memory was freed
	first    firstBlocks
	steps    []*step
	number   int // of the last step
}

const (
	depth          = 32
	maxRecorded    = 1 << 18 // requests of a step
	maxSteps       = 256     // steps that are remembered, or in a plan: a request may search all
	mostRemembered = 1 << 21 // requests of all steps
	minStep        = 8       // requests
)

const open = math.MaxInt // as Slot.End while the block is live

// A low is a point between two requests.
type low struct {
	level int64
	at    int // position
}

// A step is a stretch of requests. Slot.End is relative to its beginning, and Forever for blocks that outlive it.
type step struct {
	number  int
	slots   []Slot
	size    int64 // bytes of its packing
	seen    int   // how often
	packed  bool
	version int   // grows when the end of a slot changes
	most    int64 // bytes that are live at most, of the blocks to plan
	fullest int   // the slot with which they are
}

// isPlanned reports whether the block of a slot is to have a planned address.
func (s *Slot) isPlanned() bool { return s.End != Forever && s.Size > smallest }

// measure sets most and fullest.
func (s *step) measure() {
	ending := make([]int64, len(s.slots)+1) // bytes freed before a position
	var load int64
	s.most = 0
	for k := range s.slots {
		slot := &s.slots[k]
		if load -= ending[k]; !slot.isPlanned() {
			continue
		}
		load += slot.Size
		ending[slot.End] += slot.Size
		if load > s.most {
			s.most, s.fullest = load, k
		}
	}
}

// end returns the position of the next request.
func (r *recorder) end() int { return r.cut + len(r.slots) }

// restart forgets the requests so far.
func (r *recorder) restart() {
	r.cut, r.slots = r.end(), r.slots[:0]
	r.blocks = map[driver.Pointer]int{}
	if r.end() > 0 {
		r.first.lose()
	}
	r.level, r.bottom, r.rise, r.high = 0, 0, 0, 0
	r.low = low{0, r.end()}
	r.lows = append(r.lows[:0], r.low)
}

// alloc records a request that got a block. It reports whether a step ended.
func (r *recorder) alloc(stream int, p driver.Pointer, requested, size int64) (ended bool) {
	r.blocks[p] = r.end()
	r.first.alloc(r.end(), requested)
	r.slots = append(r.slots, Slot{Size: requested, End: open, Stream: stream, Offset: -1})
	return r.grow(size)
}

// grow adds the memory of a request to the level, also that of one that is not recorded: free cannot tell their
// blocks from others. It reports whether a step ended.
func (r *recorder) grow(size int64) (ended bool) {
	r.level += size
	r.rise = max(r.rise, r.level-r.bottom)
	if r.level > r.high {
		r.high, r.low.level = r.level, r.level // a free sets low.at
	}
	if deep := r.rise / depth; r.level-r.low.level >= deep && r.high-r.low.level >= deep {
		ended = r.addLow(r.low)
		r.high, r.low.level = r.level, r.level
	}
	if len(r.slots) > maxRecorded {
		r.restart()
	}
	return ended
}

// free records a free.
func (r *recorder) free(p driver.Pointer, size int64) {
	r.level -= size
	r.bottom = min(r.bottom, r.level)
	if r.level <= r.low.level {
		r.low = low{r.level, r.end()}
	}
	if position, ok := r.blocks[p]; ok {
		delete(r.blocks, p)
		r.first.free(position)
		if position >= r.cut {
			r.slots[position-r.cut].End = r.end()
		}
	}
}

// addLow handles a low. It reports whether a step ends there.
func (r *recorder) addLow(l low) (ended bool) {
	if r.high-l.level >= r.rise/4 {
		r.deepLows++
	}
	for n := len(r.lows); n > 0 && r.lows[n-1].level > l.level && !r.same(r.lows[n-1].level, l.level); n-- {
		r.lows = r.lows[:n-1]
	}
	if n := len(r.lows); n > 0 && r.same(r.lows[n-1].level, l.level) {
		s := r.enterStep(r.lows[n-1].at, l.at)
		if ended = s != nil; ended && s.seen > 1 { // what was before the step, such as weights, stays
			n, r.bottom, r.rise = 1, l.level, r.high-l.level
		}
		r.lows = r.lows[:n-1]
	}
	r.lows = append(r.lows, l)
	first := r.lows[0].at
	r.slots = slices.Delete(r.slots, 0, first-r.cut)
	r.cut = first
	return ended
}

// same reports whether two levels are equal, but for small blocks that live across steps, such as a loss.
func (r *recorder) same(x, y int64) bool { return max(x-y, y-x) <= max(r.rise>>12, 1<<12) }

// enterStep enters the requests between two lows among the steps, and returns the step. It returns nil if they are few,
// or there are too many steps.
func (r *recorder) enterStep(from, to int) *step {
	if to-from < minStep {
		return nil
	}
	s := &step{slots: slices.Clone(r.slots[from-r.cut : to-r.cut]), seen: 1}
	for k := range s.slots {
		if s.slots[k].End -= from; s.slots[k].End > len(s.slots) {
			s.slots[k].End = Forever
		}
	}
	for _, known := range r.steps {
		if known.merge(s) {
			return known
		}
	}
	like := r.promote(s)
	if r.full(s) {
		r.steps = slices.DeleteFunc(r.steps, func(s *step) bool { return s.seen == 1 })
	}
	if r.full(s) {
		return nil
	}
	s.measure()
	r.number++
	s.number = r.number
	r.steps = append(r.steps, s)
	if like != nil {
		return like
	}
	return s
}

// full reports whether there is no room for another step.
func (r *recorder) full(s *step) bool {
	requests := len(s.slots)
	for _, known := range r.steps {
		requests += len(known.slots)
	}
	return len(r.steps) == maxSteps || requests > mostRemembered
}

// repeated returns copies of the steps that occurred at least twice.
func (r *recorder) repeated() (steps []*step) {
	for _, s := range r.steps {
		if s.seen > 1 {
			c := *s
			c.slots = slices.Clone(s.slots)
			steps = append(steps, &c)
		}
	}
	return steps
}

// merge adds another occurrence of a step. It reports false if that is another step.
func (s *step) merge(t *step) bool {
	equal := func(x, y Slot) bool { return x.key() == y.key() }
	if !slices.EqualFunc(s.slots, t.slots, equal) {
		return false
	}
	s.seen++
	for k, later := range t.slots {
		if mine := &s.slots[k]; later.End > mine.End {
			mine.End = later.End
			s.version++
			s.packed = false
		}
	}
	return true
}
