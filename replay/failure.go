package replay

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A Failure is a request that failed in the recording. Sizes are in bytes.
type Failure struct {
	Entry     int    // index into Trace.Events
	Size      int64  // requested size, as in the entry
	Stream    uint64 // recorded handle
	Requested int64  // requested bytes of active blocks at that moment
	Reserved  int64  // reserved bytes at that moment
	Free      int64  // free bytes of the device, as it reported them
	Limit     int64  // the recorded limit, if it refused the request; otherwise 0
	Below     int64  // upper bound of an unrecorded limit that refused the request; otherwise 0
	Stack     trace.StackID
}

// refusedByLimit returns an upper bound of a limit of the process that refused a request, or 0 if the device, or the
// addresses of an expandable segment, had no room.
func (w *Work) refusedByLimit(size, reserved, free int64) int64 {
	if size > free {
		return 0
	}
	c := &w.Recorded
	segment := max(size+segmentStep, c.LargeSegmentSize) // at most
	if free < segment || c.ExpandableSegments &&
		(c.ExpandableReserve != (caching.Reserve{}) || len(c.ExpandableReserveByClass) > 0) {
		return 0
	}
	return reserved + segment
}

// segmentStep is the granularity of segment sizes, in bytes.
const segmentStep = 2 << 20

// knownLimit returns the limit in the file or its settings, with a note if the settings give it as a fraction of a
// device that the file does not name; or 0. A limit that contradicts the history was not in force.
func (w *Work) knownLimit(s *snapshot.Snapshot) (limit int64, note string) {
	c := &w.Recorded
	switch {
	case w.Device < len(s.Limits) && s.Limits[w.Device] > 0:
		limit = s.Limits[w.Device]
	case c.Limit > 0:
		limit = c.Limit
	case c.MemoryFraction < 1:
		limit = int64(c.MemoryFraction * float64(H200Memory))
		note = fmt.Sprintf("The recorded settings limit the process to %g of its device, which is taken to be an "+
			"H200; --limit says otherwise.", c.MemoryFraction)
	}
	if limit < w.RecordedReserved {
		return 0, ""
	}
	for i := range w.Failures {
		if below := w.Failures[i].Below; below > 0 && limit >= below {
			return 0, ""
		}
	}
	return limit, note
}

// findLimit sets the known limit, if there is one.
func (w *Work) findLimit(s *snapshot.Snapshot) {
	limit, note := w.knownLimit(s)
	if limit == 0 {
		return
	}
	w.RecordedLimit, w.LimitKnown = limit, true
	if note != "" {
		w.Notes = append(w.Notes, note)
	}
	for i := range w.Failures {
		if f := &w.Failures[i]; f.Size > limit-f.Reserved {
			f.Limit, f.Below = limit, 0
		}
	}
}

// A history has the sums of a recording, from its start with nothing allocated.
type history struct {
	events   int
	sums     trace.Totals
	failures []failedRequest // the first MaxOOMs
	last     failedRequest
	failed   int
}

// A failedRequest is a request without room, with the sums of the history up to it.
type failedRequest struct {
	entry int
	event trace.Event
	sums  trace.Totals
}

// add adds the next event.
func (h *history) add(e *trace.Event) {
	h.sums.Add(e.Action, e.Size)
	if e.Action == mem.ActionOOM {
		h.last = failedRequest{h.events, *e, h.sums}
		if h.failed++; h.failed <= MaxOOMs {
			h.failures = append(h.failures, h.last)
		}
	}
	h.events++
}

// historyOf returns the sums of a recording.
func historyOf(t *trace.Trace) *history {
	h := &history{}
	if len(t.Find(mem.ActionOOM)) == 0 { // the requested bytes do not matter
		for _, i := range t.Find(mem.ActionSegmentAlloc, mem.ActionSegmentMap, mem.ActionSegmentFree, mem.ActionSegmentUnmap) {
			e := t.At(int(i))
			h.add(&e)
		}
		return h
	}
	r := t.Reader()
	for i := range t.Len() {
		h.add(r.At(i))
	}
	return h
}

// history computes the reserved peak and the failures of a recording. The memory that was reserved before the first
// entry is the part of the final state that the entries do not explain.
func (w *Work) history(s *snapshot.Snapshot, h *history) {
	before := -h.sums.Reserved.Current
	for _, seg := range s.SegmentsOf(w.Device) {
		before += seg.TotalSize
	}
	before = max(before, 0)
	w.RecordedReserved, w.NumFailures = before+h.sums.Reserved.Peak, h.failed
	for i := range h.failures {
		f := &h.failures[i]
		e, free, reserved := &f.event, int64(f.event.Ptr), before+f.sums.Reserved.Current
		w.Failures = append(w.Failures, Failure{
			Entry: f.entry, Size: e.Size, Stream: s.Traces[w.Device].Streams[e.Stream],
			Requested: max(w.Program.Prelude.Bytes+f.sums.Requested.Current, 0), Reserved: max(reserved, 0), Free: free,
			Stack: e.Stack,
			Below: w.refusedByLimit(e.Size, reserved, free),
		})
	}
	if h.failed == 0 {
		return
	}
	// Memory that was reserved once can be reserved again. If the device had less free memory than requested, that was
	// all of its memory.
	w.RecordedLimit = before + h.last.sums.Reserved.Peak
	if e, free := &h.last.event, int64(h.last.event.Ptr); free > 0 && free < e.Size {
		w.RecordedLimit = max(w.RecordedLimit, before+h.last.sums.Reserved.Current+free)
	}
}
