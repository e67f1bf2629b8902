package planned

import (
	"math/bits"
	"slices"
)

// A follower finds the place of each request in the steps of a plan. A wrong guess is harmless, since the caller checks
// that the planned address is free.
//
// A request is, in this order,
//
//	the first of a step, if the present one is at its end
//	the next of the present step, one that was left out before, or one at most window positions on
//	the next of another step that began with the same requests
//	after some unexpected requests: the end of a row of followRow requests that some step has
type follower struct {
	steps  []followed
	rows   map[uint64][]spot
	now    *followed // the present step; of no requests if none has begun
	uses   int       // of steps
	next   int       // position after the last request
	left   []int     // earlier positions that were left out, at most window of them
	row    [followRow]int64
	misses int    // unexpected requests in a row
	missed uint64 // a bit for each of the last requests of the step: 1 if it was unexpected; the last one is bit 0
}

const (
	followRow  = 6
	mostMisses = 2 // before rows are searched
	mostMissed = 8 // of the last 64 requests
)

// A followed is a step and its requests.
type followed struct {
	*step
	keys []int64
	used int // follower.uses at the last use
}

// A spot is a position of a step.
type spot struct{ step, position int }

func newFollower(steps []*step) *follower {
	f := &follower{rows: map[uint64][]spot{}, now: &followed{}}
	for i, s := range steps {
		keys := make([]int64, len(s.slots))
		for k := range s.slots {
			if keys[k] = s.slots[k].key(); k >= followRow-1 {
				sum := rowSum(keys[k-followRow+1 : k+1])
				f.rows[sum] = append(f.rows[sum], spot{i, k})
			}
		}
		s.measure()
		f.steps = append(f.steps, followed{step: s, keys: keys})
	}
	return f
}

func rowSum(keys []int64) (sum uint64) {
	for _, key := range keys {
		sum = mix(sum, key)
	}
	return sum
}

// request returns the slot of a request, or nil if it is unexpected. begins reports that it begins a step. Rows are
// searched if mayRow is set: when the weights are complete, which may equal a row of temporary blocks.
func (f *follower) request(key int64, mayRow bool) (s *Slot, begins bool) {
	copy(f.row[:], f.row[1:])
	f.row[followRow-1] = key
	position, begins := f.find(key, mayRow)
	if begins {
		f.missed = 0
	}
	f.missed <<= 1
	if position < 0 {
		f.misses++
		f.missed |= 1
		if f.next == 1 && f.misses == window {
			f.now, f.next = &followed{}, 0 // another block was as large as the first one of a step
		}
		return nil, false
	}
	if f.misses = 0; bits.OnesCount64(f.missed) > mostMissed {
		return nil, false // the step is an unknown one, and parts of it resemble a known one
	}
	return &f.now.slots[position], begins
}

// find finds the position of a request, or returns -1.
func (f *follower) find(key int64, mayRow bool) (position int, begins bool) {
	if f.between() && f.begun(0, key) {
		return 0, true
	}
	if position = f.nearby(key); position >= 0 {
		return position, false
	}
	if !f.between() && len(f.left) == 0 && f.begun(f.next, key) {
		return f.next - 1, false
	}
	if mayRow && f.misses >= mostMisses {
		return f.findRow(), false
	}
	return -1, false
}

// nearby finds a request in the present step, close to the position.
func (f *follower) nearby(key int64) int {
	if f.next < len(f.now.keys) && f.now.keys[f.next] == key {
		f.next++
		return f.next - 1
	}
	for i, position := range f.left {
		if f.now.keys[position] == key {
			f.left = slices.Delete(f.left, i, i+1)
			return position
		}
	}
	for position := f.next + 1; position < min(f.next+window, len(f.now.keys)); position++ {
		if f.now.keys[position] == key {
			for ; f.next < position; f.next++ {
				f.left = append(f.left, f.next)
			}
			f.next++
			f.left = f.left[max(0, len(f.left)-window):]
			return position
		}
	}
	return -1
}

// begun finds the last used step that begins with the same n requests as the present one, and continues with the key.
func (f *follower) begun(n int, key int64) bool {
	var best *followed
	for i := range f.steps {
		s := &f.steps[i]
		if n < len(s.keys) && s.keys[n] == key && slices.Equal(s.keys[:n], f.now.keys[:n]) &&
			(best == nil || s.used > best.used) {
			best = s
		}
	}
	if best != nil {
		f.enter(best, n)
	}
	return best != nil
}

// findRow finds the last requests anywhere: the nearest position of the present step, or else of another.
func (f *follower) findRow() int {
	best, least := spot{}, -1
	for _, at := range f.rows[rowSum(f.row[:])] {
		distance := max(at.position-f.next, f.next-at.position)
		if &f.steps[at.step] != f.now {
			distance = len(f.now.keys) + at.position
		}
		if least < 0 || distance < least {
			best, least = at, distance
		}
	}
	if least < 0 {
		return -1
	}
	f.enter(&f.steps[best.step], best.position)
	return best.position
}

// enter makes a position of a step the last one.
func (f *follower) enter(s *followed, position int) {
	f.uses++
	s.used = f.uses
	f.now, f.next, f.left = s, position+1, f.left[:0]
}

// between reports whether no step has begun that is not at its end.
func (f *follower) between() bool { return f.next == len(f.now.keys) }
