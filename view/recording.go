package view

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A Recording is one device of a snapshot, prepared for pictures. Only settle changes it, for all readers at once.
type Recording struct {
	snapshot *snapshot.Snapshot
	h        *holders.History
	lives    *trace.Lifetimes // of the blocks of h
	segments []segment        // by address, then by time
	levels   []level          // of the reserved memory
	ends     endTree
	clock    []int64  // the latest time up to each event that begins a group
	lines    []string // labels of lines; 0 is that of a block without a stack
	lineOf   []uint32 // line of each stack

	spansOnce sync.Once
	spans     []span // see addressAxis
	stepsOnce sync.Once
	steps     holders.Steps
	settled   atomic.Bool // steps and the categories of blocks are known
	plan      planning
}

// newRecordings returns the recordings of all devices of a snapshot.
func newRecordings(s *snapshot.Snapshot) (all []*Recording, err error) {
	histories, err := holders.AllUncategorized(s)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	for _, h := range histories {
		r := &Recording{snapshot: s, h: h, lives: h.Lifetimes}
		var rest sync.WaitGroup
		rest.Go(func() {
			r.ends = endTreeOf(r.lives)
			r.setClock()
			r.setLines()
		})
		r.segments = segmentsOf(h)
		r.levels = levelsOf(r.segments)
		rest.Wait()
		r.addressAxis()
		all = append(all, r)
	}
	return all, nil
}

// events returns the number of events.
func (r *Recording) events() int { return r.h.Trace.Len() }

// setClock computes the times at which groups of events begin. Times may run back between threads; the clock does not.
func (r *Recording) setClock() {
	latest := int64(0)
	start := int64(0)
	r.h.Trace.EachTime(func(first int, us []uint64) {
		if first == 0 {
			start = int64(us[0])
		}
		for i, x := range us {
			latest = max(latest, int64(x)-start)
			if (first+i)%group == 0 {
				r.clock = append(r.clock, latest)
			}
		}
	})
}

// timeOf returns the time of an event.
func (r *Recording) timeOf(event int) int64 {
	if event < 0 || r.events() == 0 {
		return 0
	}
	return r.h.Trace.TimeUS(min(event, r.events()-1)) - r.h.Trace.TimeUS(0)
}

// duration returns the time of the last event.
func (r *Recording) duration() int64 {
	latest := int64(0)
	if n := len(r.clock); n > 0 {
		latest = r.clock[n-1]
		for i := (n - 1) * group; i < r.events(); i++ {
			latest = max(latest, r.timeOf(i))
		}
	}
	return latest
}

// eventAt returns the last event up to which no time is later than t, or -1.
func (r *Recording) eventAt(t float64) int {
	n, found := slices.BinarySearchFunc(r.clock, t, func(c int64, t float64) int { return cmp.Compare(float64(c), t) })
	for found && n+1 < len(r.clock) && float64(r.clock[n+1]) <= t {
		n++
	}
	if !found {
		n--
	}
	if n < 0 {
		return -1
	}
	event := n * group
	for event+1 < r.events() && float64(r.timeOf(event+1)) <= t {
		event++
	}
	return event
}

// setLines numbers the lines that stand for stacks, in the order of the stacks.
func (r *Recording) setLines() {
	r.lines = []string{holders.NoStack(true)}
	n := 0
	if r.snapshot.Stacks != nil {
		n = r.snapshot.Stacks.Len()
	}
	r.lineOf = make([]uint32, n+1)
	known := map[string]uint32{}
	for id := 1; id <= n; id++ {
		label := r.h.Frames.Line(trace.StackID(id))
		if label == "" {
			continue
		}
		number, ok := known[label]
		if !ok {
			number = uint32(len(r.lines))
			known[label] = number
			r.lines = append(r.lines, label)
		}
		r.lineOf[id] = number
	}
}

// line returns the line of a block.
func (r *Recording) line(b *holders.Block) uint32 {
	if int(b.Stack) < len(r.lineOf) {
		return r.lineOf[b.Stack]
	}
	return 0
}

// addressAxis returns the ranges of the axis of addresses, and its length.
func (r *Recording) addressAxis() (spans []span, length int64) {
	r.spansOnce.Do(func() { r.spans = spansOf(r) })
	if n := len(r.spans); n > 0 {
		length = r.spans[n-1].y + r.spans[n-1].size
	}
	return r.spans, length
}

// settle finds the steps and the categories of the recording, which takes longer than the first picture of it may.
func (r *Recording) settle() {
	var steps sync.WaitGroup
	steps.Go(func() { r.foundSteps() })
	r.h.Categorize()
	steps.Wait()
	r.settled.Store(true)
}

// foundSteps returns the steps of the recording.
func (r *Recording) foundSteps() *holders.Steps {
	r.stepsOnce.Do(func() { r.steps = r.h.Steps() })
	return &r.steps
}

// peak returns the first event with the most requested memory, and that memory.
func (r *Recording) peak() (event int, bytes int64) {
	event, bytes = -1, r.h.ActiveBytes(-1)
	if n := r.events(); n > 0 {
		if x := r.h.Extremes(0, n); x.High > bytes {
			event, bytes = int(x.At), x.High
		}
	}
	return event, bytes
}

// A failure is a failed request.
type failure struct {
	Event int     `json:"event"`
	Size  int64   `json:"size"`
	Free  int64   `json:"free"` // of the device
	Line  string  `json:"line"`
	Time  float64 `json:"time"`
}

// failures returns the failed requests, at most limit of them.
func (r *Recording) failures(limit int) []failure {
	list := []failure{}
	failed := r.h.Trace.Find(mem.ActionOOM)
	for _, i := range failed[:min(len(failed), limit)] {
		e := r.h.Trace.At(int(i))
		list = append(list, failure{
			Event: int(i), Size: e.Size, Free: int64(e.Ptr), Line: r.h.Frames.Line(e.Stack),
			Time: float64(r.timeOf(int(i))),
		})
	}
	return list
}
