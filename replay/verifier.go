package replay

import (
	"errors"
	"fmt"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A verifier makes the requests of a recording to an allocator of a recordedDevice, and watches that the allocator's
// events are the recorded ones.
//
// The recording is read at next. What starts a call (a free, or the events of a request up to its alloc or oom) makes
// the verifier do the call; each event that the allocator then reports must be the one at next, and moves next on. So
// the device, when it is asked for a segment in the middle of a request, sees at next what PyTorch's driver did.
type verifier struct {
	s        *snapshot.Snapshot
	device   int
	t        *trace.Trace
	next     int          // the first event that has not been followed yet
	early    map[int]bool // completions beyond next that have been followed: several at once have no order
	alloc    *caching.Allocator
	dev      *recordedDevice
	live     map[driver.Pointer]mem.Block
	waiting  map[driver.Pointer]sideMark // frees that wait for other streams
	sides    []*sideStream
	pools    func(entry int, ptr driver.Pointer) mem.PoolID
	verdict  Verdict
	users    map[mem.PoolID]int // of private pools: how often they were begun
	readings map[int]reading    // of ambiguous places, by entry
	hidden   []*hiddenPool
	found    *hiddenPool // that would explain the difference
	open     []int       // ambiguous places passed so far
}

// A reading says which calls a run of events came from.
type reading int

const (
	// oneRequest: completions were noticed when the request began; it gave back what was given back.
	oneRequest reading = iota
	// lateCompletions: the request found no room, and only then waited for the frees that completed.
	lateCompletions
	// emptiedBefore: the cache was emptied just before the request.
	emptiedBefore
	numReadings
)

func newVerifier(s *snapshot.Snapshot, device int, t *trace.Trace, cfg caching.Config, total int64, readings map[int]reading, hidden []*hiddenPool) (*verifier, error) {
	v := &verifier{
		s: s, device: device, t: t,
		early:    map[int]bool{},
		live:     map[driver.Pointer]mem.Block{},
		waiting:  map[driver.Pointer]sideMark{},
		pools:    poolTable(s, device, t),
		users:    map[mem.PoolID]int{},
		readings: readings,
		hidden:   hidden,
	}
	v.dev = newRecordedDevice(v, total)
	var err error
	if v.alloc, err = caching.New(v.dev, cfg); err != nil {
		return nil, err
	}
	v.alloc.Observe(v.observe)
	return v, nil
}

// run follows the recording to its end or to the first difference.
func (v *verifier) run() (Verdict, error) {
	v.verdict.RecordedPeaks = recordedPeaks(v.t)
	for i := range v.t.Events {
		switch v.t.Events[i].Action {
		case mem.ActionAlloc:
			v.verdict.Allocs++
		case mem.ActionSegmentAlloc, mem.ActionSegmentFree, mem.ActionSegmentMap, mem.ActionSegmentUnmap:
			v.verdict.SegmentEvents++
		case mem.ActionOOM:
			v.verdict.OOMs++
		}
	}
	peak := peakEntry(v.t)
	for v.skipFollowed(); v.next < len(v.t.Events) && v.verdict.Difference == nil; v.skipFollowed() {
		before := v.next
		if err := v.step(); err != nil {
			return v.verdict, err
		}
		if v.next == before && v.verdict.Difference == nil {
			e := &v.t.Events[v.next]
			v.differ(v.next, "recorded: "+v.describe(e)+"; the allocator did nothing")
		}
		if before <= peak && peak < v.next {
			v.alloc.Observe(nil) // a snapshot is an event too
			v.verdict.AtPeak = usageOf(v.alloc.Snapshot())
			v.alloc.Observe(v.observe)
		}
	}
	stats := v.alloc.Stats()
	v.verdict.Retries = stats.NumAllocRetries
	v.verdict.DriverCalls, v.verdict.DriverTime, v.verdict.refusals = v.dev.calls, v.dev.time, v.dev.refusals
	v.verdict.Peaks = Peaks{Requested: stats.RequestedBytes.All.Peak, Reserved: stats.ReservedBytes.All.Peak}
	v.verdict.AllocatedPeak = stats.AllocatedBytes.All.Peak
	v.compareFinal()
	if v.verdict.Difference == nil && !v.verdict.PeaksEqual() {
		v.differ(-1, fmt.Sprintf("recorded peaks %+v; the allocator's are %+v", v.verdict.RecordedPeaks, v.verdict.Peaks))
	}
	return v.verdict, nil
}

// skipFollowed moves next over events that need nothing done.
func (v *verifier) skipFollowed() {
	for v.next < len(v.t.Events) && (v.early[v.next] || v.t.Events[v.next].Action == mem.ActionSnapshot) {
		v.next++
	}
}

// step does the call that the event at next came from.
func (v *verifier) step() error {
	e := &v.t.Events[v.next]
	if e.Action == mem.ActionFreeRequested {
		return v.free(e)
	}
	end, isRequest, ambiguous := v.request()
	v.releaseHidden(end)
	if !isRequest {
		return v.alloc.EmptyCache()
	}
	how := oneRequest
	if ambiguous {
		how = v.readings[v.next]
		v.open = append(v.open, v.next)
	}
	switch how {
	case emptiedBefore:
		return v.alloc.EmptyCache()
	case oneRequest:
		if v.completeRun(); v.verdict.Difference != nil {
			return nil
		}
	case lateCompletions: // the wait inside the request completes them
	}
	return v.allocate(end)
}

// request finds the end of the events that come from one call, starting at next: the alloc or oom of a request, or
// where something else begins. Its events are ambiguous if memory was given back.
func (v *verifier) request() (end int, isRequest, ambiguous bool) {
	for end = v.next; end < len(v.t.Events); end++ {
		if v.early[end] {
			continue
		}
		switch v.t.Events[end].Action {
		case mem.ActionAlloc, mem.ActionOOM:
			return end, true, ambiguous
		case mem.ActionFreeRequested, mem.ActionSnapshot:
			return end, false, false
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			ambiguous = true
		}
	}
	return end, false, false
}

// completeRun completes the frees that were recorded as completed from next on, as a request does when it begins.
func (v *verifier) completeRun() {
	for v.verdict.Difference == nil {
		v.skipFollowed()
		if v.next == len(v.t.Events) || v.t.Events[v.next].Action != mem.ActionFreeCompleted {
			return
		}
		e := &v.t.Events[v.next]
		m, ok := v.waiting[e.Ptr]
		if !ok {
			v.differ(v.next, "recorded: "+v.describe(e)+"; no free of it is pending")
			return
		}
		before := v.next
		v.sides[m.side].complete(m.tick)
		v.alloc.ProcessPending()
		if v.next == before && v.verdict.Difference == nil {
			v.differ(v.next, "recorded: "+v.describe(e)+"; the allocator did not notice that it was done")
		}
	}
}

func (v *verifier) allocate(end int) error {
	e := &v.t.Events[end]
	stream := v.dev.streams[e.Stream]
	pool := v.poolOf(end)
	if pool != (mem.PoolID{}) {
		v.users[pool]++
		v.alloc.BeginAllocateToPool(pool, func(s driver.Stream) bool { return s == stream })
		defer v.alloc.EndAllocateToPool(pool)
	}
	v.dev.requester = e.Stream
	b, err := v.alloc.Alloc(stream, e.Size)
	if err != nil && !errors.Is(err, mem.ErrNoMemory) {
		return err
	}
	if err == nil {
		v.live[b.Ptr] = b
	}
	return nil
}

// free frees a block. If its completion does not come at once, it waits on a side stream: one for each, since nothing
// is known of the order in which they complete.
func (v *verifier) free(e *trace.Event) error {
	b, ok := v.live[e.Ptr]
	if !ok {
		return fmt.Errorf("trace entry %d: %s: %w: its block was allocated before", v.next, v.describe(e), ErrLateStart)
	}
	delete(v.live, e.Ptr)
	if i := v.next + 1; i < len(v.t.Events) && v.t.Events[i].Action == mem.ActionFreeCompleted && v.t.Events[i].Ptr == e.Ptr {
		v.alloc.Free(b)
		return nil
	}
	side := len(v.sides)
	v.sides = append(v.sides, &sideStream{id: firstSideID + driver.StreamID(side)})
	v.sides[side].queued.Store(1)
	v.waiting[e.Ptr] = sideMark{tick: 1, side: uint32(side)}
	v.alloc.Free(b, v.sides[side])
	return nil
}

// observe compares an event of the allocator with the recorded one. It runs under the allocator's locks.
func (v *verifier) observe(got mem.Event) {
	if v.verdict.Difference != nil {
		return
	}
	v.skipFollowed()
	if v.next == len(v.t.Events) {
		v.differ(v.next, "the recording ends; the allocator did: "+v.describeOwn(got))
		return
	}
	at := v.next
	if got.Action == mem.ActionFreeCompleted {
		// A wait for all streams completes frees in an order of its own.
		for at < len(v.t.Events) && v.t.Events[at].Action == mem.ActionFreeCompleted &&
			(v.early[at] || v.t.Events[at].Ptr != got.Ptr) {
			at++
		}
		if at == len(v.t.Events) || v.t.Events[at].Action != mem.ActionFreeCompleted {
			at = v.next
		}
		delete(v.waiting, got.Ptr)
	}
	want := &v.t.Events[at]
	same := want.Action == got.Action && want.Size == got.Size && want.Stream == uint32(got.Stream) &&
		(want.Ptr == got.Ptr || got.Action == mem.ActionOOM) &&
		(!v.t.PoolsKnown || v.t.Pools[want.Pool] == got.Pool)
	if !same {
		v.found = v.explain(at, got)
		v.differ(at, "recorded: "+v.describe(want)+"; the allocator did: "+v.describeOwn(got))
		return
	}
	switch got.Action {
	case mem.ActionAlloc:
		v.verdict.AddressesMatched++
	case mem.ActionSegmentAlloc, mem.ActionSegmentFree, mem.ActionSegmentMap, mem.ActionSegmentUnmap:
		v.verdict.SegmentEventsMatched++
	case mem.ActionOOM:
		v.verdict.OOMsMatched++
	}
	if at == v.next {
		v.next++
	} else {
		v.early[at] = true
	}
}

func (v *verifier) differ(entry int, what string) {
	if v.verdict.Difference == nil {
		v.verdict.Difference = &Difference{Device: v.device, Entry: entry, What: what}
	}
}

func (v *verifier) describe(e *trace.Event) string {
	return describe(e.Action, e.Ptr, e.Size, v.t.Streams[e.Stream])
}

func (v *verifier) describeOwn(e mem.Event) string {
	stream := uint64(e.Stream)
	if int(e.Stream) < len(v.t.Streams) {
		stream = v.t.Streams[e.Stream]
	}
	return describe(e.Action, e.Ptr, e.Size, stream)
}

// turn changes the reading of the last ambiguous place that has another one left, and forgets the readings of those
// after it. It returns false if there is none.
func (v *verifier) turn() bool {
	for i := len(v.open) - 1; i >= 0; i-- {
		at := v.open[i]
		if v.readings[at]+1 < numReadings {
			v.readings[at]++
			return true
		}
		delete(v.readings, at)
	}
	return false
}

// poolTable returns a function that tells the pool of an alloc, from the events if they name pools and otherwise from
// the final state: a segment that is still there served one pool since it was allocated.
func poolTable(s *snapshot.Snapshot, device int, t *trace.Trace) func(int, driver.Pointer) mem.PoolID {
	if t.PoolsKnown {
		return func(entry int, _ driver.Pointer) mem.PoolID { return t.Pools[t.Events[entry].Pool] }
	}
	type span struct {
		from, to driver.Pointer
		since    int // the entry that allocated it
		pool     mem.PoolID
	}
	var spans []span
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device == device && seg.Pool != (mem.PoolID{}) {
			spans = append(spans, span{from: seg.Ptr, to: seg.Ptr + driver.Pointer(seg.TotalSize), pool: seg.Pool})
		}
	}
	sort.Slice(spans, func(i, j int) bool { return spans[i].from < spans[j].from })
	find := func(ptr driver.Pointer) *span {
		i := sort.Search(len(spans), func(i int) bool { return spans[i].to > ptr })
		if i < len(spans) && spans[i].from <= ptr {
			return &spans[i]
		}
		return nil
	}
	for i := range t.Events {
		if e := &t.Events[i]; e.Action == mem.ActionSegmentAlloc {
			if sp := find(e.Ptr); sp != nil {
				sp.since = i
			}
		}
	}
	return func(entry int, ptr driver.Pointer) mem.PoolID {
		if sp := find(ptr); sp != nil && entry >= sp.since {
			return sp.pool
		}
		return mem.PoolID{}
	}
}
