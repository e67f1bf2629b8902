package simulate

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// MaxBound is the largest number of storages, without constants, of a program for Least.
const MaxBound = 16

// Least returns the least time in which a program can run within a budget, by exhaustive search: at any moment it may
// drop any storage and compute any operation again. No policy is faster. Views are made again in no time. It returns
// false if the program cannot run within the budget, and an error if it has more than MaxBound storages.
func (l *Log) Least(budget int64) (time.Duration, bool, error) {
	s := newExhaustive(l.program, budget)
	if len(s.sizes) > MaxBound {
		return 0, false, fmt.Errorf("remat: an exhaustive search of more than %d storages; AtLeast bounds it", MaxBound)
	}
	ns, ok := s.run()
	return time.Duration(ns), ok, nil
}

// AtLeast returns a time that a program takes at least within a budget: a lower bound of Least for programs of any
// length. It is that of a relaxation in which there is room at all moments but one. link is the speed of a link to the
// host in bytes per second, or 0: what it can carry there before that moment and back after it takes no room.
func (l *Log) AtLeast(budget int64, link float64) time.Duration {
	return l.Baseline + time.Duration(schedule.LowerBound(l.program, budget, schedule.Link{BytesPerSecond: link}))
}

// CopiesAtLeast returns a time that a program takes at least within a budget if results are copied to the host and
// back, over a link of link bytes per second, more than 0, and nothing is computed again.
func (l *Log) CopiesAtLeast(budget int64, link float64) time.Duration {
	return l.Baseline + time.Duration(schedule.CopiesLowerBound(l.program, budget, schedule.Link{BytesPerSecond: link}))
}

// Small reports whether the program has few enough storages for Least.
func (l *Log) Small() bool { return len(newExhaustive(l.program, 0).sizes) <= MaxBound }

// An exhaustive is a search for the shortest path over states. Sets of storages are bits.
type exhaustive struct {
	budget int64
	sizes  []int64 // of storages that are not constants
	fixed  int64   // bytes of all constants
	calls  []smallCall
	final  uint32 // what has references in the end
	least  map[state]int64
	queue  stateQueue
}

// A smallCall is an operation of the program, after which some storages have no references.
type smallCall struct {
	inputs, outputs uint32
	size, ns        int64 // of the outputs and the scratch
	dead            uint32
}

// A state is how many operations of the program have run, and what is resident.
type state struct {
	at       int
	resident uint32
}

// newExhaustive translates a program.
func newExhaustive(p *schedule.Program, budget int64) *exhaustive {
	s := &exhaustive{budget: budget, least: map[state]int64{}}
	bit := make([]uint32, p.Values) // of the storage of each value; 0 for constants
	refs := map[uint32]int{}
	for i := range p.Events {
		switch ev := &p.Events[i]; ev.Kind {
		case schedule.Constant:
			s.fixed += ev.Size
		case schedule.Calling:
			s.calls = append(s.calls, s.call(ev, bit, refs))
			if len(s.sizes) > MaxBound {
				return s
			}
		case schedule.Retain:
			refs[bit[ev.Value]]++
		case schedule.Release:
			b := bit[ev.Value]
			if refs[b]--; refs[b] == 0 && b != 0 && len(s.calls) > 0 {
				s.calls[len(s.calls)-1].dead |= b
			}
		}
	}
	for b, n := range refs {
		if n > 0 {
			s.final |= b
		}
	}
	return s
}

func (s *exhaustive) call(ev *schedule.Event, bit []uint32, refs map[uint32]int) smallCall {
	c := smallCall{ns: ev.Call.Cost, size: ev.Call.Scratch}
	for _, v := range ev.Call.Inputs {
		c.inputs |= bit[v]
	}
	for k, out := range ev.Call.Outputs {
		v := ev.First + schedule.Value(k)
		if out.Alias >= 0 {
			bit[v] = bit[ev.Call.Inputs[out.Alias]]
		} else {
			bit[v] = 1 << len(s.sizes)
			s.sizes = append(s.sizes, out.Size)
			c.outputs |= bit[v]
			c.size += out.Size
		}
		refs[bit[v]]++
	}
	return c
}

// run returns the least time to the end of the program.
func (s *exhaustive) run() (int64, bool) {
	s.reach(state{}, 0)
	for s.queue.Len() > 0 {
		next := heap.Pop(&s.queue).(reached)
		if next.ns > s.least[next.state] {
			continue
		}
		if next.at == len(s.calls) && next.resident&s.final == s.final {
			return next.ns, true
		}
		s.steps(next)
	}
	return 0, false
}

// steps reaches the states after one step: dropping a storage, computing again, or the next operation.
func (s *exhaustive) steps(from reached) {
	for i := range s.sizes {
		if b := uint32(1) << i; from.resident&b != 0 {
			s.reach(state{from.at, from.resident &^ b}, from.ns)
		}
	}
	used := s.fixed
	for i, size := range s.sizes {
		if from.resident&(1<<i) != 0 {
			used += size
		}
	}
	for i := 0; i < len(s.calls) && i <= from.at; i++ {
		c := &s.calls[i]
		if from.resident&c.inputs != c.inputs || used+c.size > s.budget {
			continue
		}
		to := state{from.at, from.resident | c.outputs}
		if i == from.at {
			to.at++
			to.resident &^= c.dead // it may be made again
			s.reach(state{to.at, from.resident | c.outputs}, from.ns+c.ns)
		}
		s.reach(to, from.ns+c.ns)
	}
}

// reach notes a time in which a state can be reached.
func (s *exhaustive) reach(to state, ns int64) {
	if before, ok := s.least[to]; !ok || ns < before {
		s.least[to] = ns
		heap.Push(&s.queue, reached{to, ns})
	}
}

// A reached is a state and a time in which it can be reached.
type reached struct {
	state
	ns int64
}

// A stateQueue is a heap of states, those of the least time first.
type stateQueue []reached

func (q stateQueue) Len() int           { return len(q) }
func (q stateQueue) Less(i, j int) bool { return q[i].ns < q[j].ns }
func (q stateQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *stateQueue) Push(x any)        { *q = append(*q, x.(reached)) }
func (q *stateQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
