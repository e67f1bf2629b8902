package verify

import (
	"errors"
	"fmt"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A recording is the data that all attempts to follow one device's trace share. It is read-only once it is made.
type recording struct {
	s         *snapshot.Snapshot
	device    int
	t         *trace.Trace
	total     int64       // the device's memory in bytes
	completed map[int]int // for each free_requested that waited, the entry of its free_completed
	segments  []segmentRange
	segmentOf []int32 // for each entry, the index of its range, or -1
	events    [mem.NumActions]int
	peaks     Peaks
	peak      int  // the entry of the reserved peak
	splitAt   int  // the entry of Options.SplitAt
	mayHide   bool // hidden pools may be guessed
	bothKinds bool // the trace has ordinary and expandable segments
}

func newRecording(s *snapshot.Snapshot, device int, t *trace.Trace, total int64) (*recording, error) {
	r := &recording{
		s: s, device: device, t: t, total: total,
		completed: map[int]int{}, peak: peakEntry(t),
	}
	sums := t.Totals()
	r.peaks = Peaks{Requested: sums.Requested.Peak, Reserved: sums.Reserved.Peak}
	r.segments, r.segmentOf = segmentRanges(t, total)
	for _, seg := range s.SegmentsOf(device) {
		if g := r.segmentAt(seg.Ptr, len(t.Events)); g >= 0 {
			r.segments[g].pool = seg.Pool
		}
	}
	waiting := map[driver.Pointer]int{}
	for i := range t.Events {
		e := &t.Events[i]
		r.events[e.Action]++
		switch e.Action {
		case mem.ActionFreeRequested:
			next := i + 1
			for next < len(t.Events) && t.Events[next].Action.IsAnnotation() { // of another thread
				next++
			}
			if next == len(t.Events) || t.Events[next].Action != mem.ActionFreeCompleted ||
				t.Events[next].Ptr != e.Ptr {
				waiting[e.Ptr] = i
			}
		case mem.ActionFreeCompleted:
			if at, ok := waiting[e.Ptr]; ok {
				r.completed[at] = i
				delete(waiting, e.Ptr)
			}
		}
	}
	r.bothKinds = r.events[mem.ActionSegmentAlloc] > 0 && r.events[mem.ActionSegmentMap] > 0
	return r, r.check()
}

// completion returns the entry at which a waiting free completed, or the number of entries.
func (r *recording) completion(free int) int {
	if at, ok := r.completed[free]; ok {
		return at
	}
	return len(r.t.Events) + free
}

// ErrIncomplete is matched by the error for a recording without some of its entries: made with the option skip_actions,
// or with recording turned off for a while.
var ErrIncomplete = errors.New("the recording leaves entries out")

// check returns an error if entries are missing: every block must be allocated before it is freed, in a segment that
// was allocated before it, and the final state must agree with the entries.
func (r *recording) check() error {
	t := r.t
	late := func(entry int, what string) error {
		e := &t.Events[entry]
		return fmt.Errorf("trace entry %d: %s: %w: %s. Record from before the first allocation on, with max_entries "+
			"large enough",
			entry, describe(e.Action, e.Ptr, e.Size, t.Streams[e.Stream]), ErrLateStart, what)
	}
	n := &r.events
	switch {
	case len(t.Gaps) > 0 && t.Gaps[0] < len(t.Events): // the final state shows events missed after the last entry
		return fmt.Errorf("%w: recording was off before entry %d; record without Stop", ErrIncomplete, t.Gaps[0])
	case n[mem.ActionFreeRequested] == 0 && n[mem.ActionFreeCompleted] > 1:
		return fmt.Errorf("%w: no free_requested at all; record without skip_actions", ErrIncomplete)
	case n[mem.ActionFreeCompleted] == 0 && n[mem.ActionFreeRequested] > 1 && n[mem.ActionAlloc] > 1:
		return fmt.Errorf("%w: no free_completed at all; record without skip_actions", ErrIncomplete)
	case n[mem.ActionAlloc] == 0 && n[mem.ActionFreeRequested] > 1:
		return fmt.Errorf("%w: no alloc at all; record without skip_actions", ErrIncomplete)
	}
	var ground ranges
	live := map[driver.Pointer]bool{}    // allocated blocks
	pending := map[driver.Pointer]bool{} // freed, but not completed
	for i := range t.Events {
		e := &t.Events[i]
		switch e.Action {
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			ground.add(e.Ptr, e.Size)
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			if !ground.remove(e.Ptr, e.Size) {
				return late(i, "it was made before")
			}
		case mem.ActionAlloc:
			if !ground.contains(e.Ptr) {
				return late(i, "its segment was made before")
			}
			live[e.Ptr] = true
		case mem.ActionFreeRequested:
			if !live[e.Ptr] {
				return late(i, "its block was allocated before")
			}
			delete(live, e.Ptr)
			pending[e.Ptr] = true
		case mem.ActionFreeCompleted:
			if !pending[e.Ptr] && !live[e.Ptr] {
				return late(i, "its block was freed before")
			}
			delete(pending, e.Ptr)
			delete(live, e.Ptr)
		}
	}
	for _, seg := range r.s.SegmentsOf(r.device) {
		if !ground.contains(seg.Ptr) {
			return fmt.Errorf("%w: no entry made the segment of %d bytes at %#x of the final state. "+
				"Record from before the first allocation on, with max_entries large enough", ErrLateStart,
				seg.TotalSize, seg.Ptr)
		}
	}
	return nil
}

// ranges are disjoint ranges of memory, by address.
type ranges []driver.Range

// after returns the index of the first range that ends after p.
func (x ranges) after(p driver.Pointer) int {
	return sort.Search(len(x), func(i int) bool { return x[i].Ptr+driver.Pointer(x[i].Size) > p })
}

func (x ranges) contains(p driver.Pointer) bool {
	i := x.after(p)
	return i < len(x) && x[i].Ptr <= p
}

func (x *ranges) add(p driver.Pointer, size int64) {
	s := *x
	i := s.after(p)
	joins := i > 0 && s[i-1].Ptr+driver.Pointer(s[i-1].Size) == p
	if joins {
		s[i-1].Size += size
		return
	}
	s = append(s, driver.Range{})
	copy(s[i+1:], s[i:])
	s[i] = driver.Range{Ptr: p, Size: size}
	*x = s
}

// remove removes [p, p+size), and returns false if the ranges did not contain all of it.
func (x *ranges) remove(p driver.Pointer, size int64) bool {
	end := p + driver.Pointer(size)
	for p < end {
		s := *x
		i := s.after(p)
		if i == len(s) || s[i].Ptr > p {
			return false
		}
		r := s[i]
		to := min(end, r.Ptr+driver.Pointer(r.Size))
		rest := driver.Range{Ptr: to, Size: int64(r.Ptr) + r.Size - int64(to)}
		switch before := int64(p - r.Ptr); {
		case before == 0 && rest.Size == 0:
			*x = append(s[:i], s[i+1:]...)
		case before == 0:
			s[i] = rest
		default:
			s[i].Size = before
			if rest.Size > 0 {
				s = append(s, driver.Range{})
				copy(s[i+2:], s[i+1:])
				s[i+1] = rest
				*x = s
			}
		}
		p = to
	}
	return true
}
