package verify

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/internal/deferredfree"
	"github.com/ashlar-go/ashlar/trace"
)

// A verifier makes the requests of a recording to an allocator of a recordedDevice, and checks that the allocator's
// events are the recorded ones.
//
// It reads the recording at next. An event that begins a call (a free, or the first event of a request up to its alloc
// or oom) makes the verifier do the call. Each event that the allocator then reports must equal the event at next, and
// advances next. So when the allocator requests a segment from the device, next shows the answer of PyTorch's driver.
type verifier struct {
	rec     *recording
	t       *trace.Trace // of rec
	guess   *guess
	next    int          // the first event that is not yet matched
	early   map[int]bool // entries from next on to skip: annotations, and completions that were matched out of order
	alloc   *caching.Allocator
	cfg     caching.Config // current settings
	changed int            // number of guess.changes that were applied
	dev     *recordedDevice
	live    map[driver.Pointer]mem.Block
	waiting map[driver.Pointer]deferredfree.Mark // frees that wait for other streams
	sides   []*deferredfree.Stream
	verdict Verdict
	users   map[mem.PoolID]bool // the private pools in use
	totals  trace.Totals        // of the matched events
	waits   atomic.Int64        // counter for the deferred-free streams
	call    int                 // the entry at which the current call began

	explanations []func(*guess) // of the difference
	open         []int          // ambiguous entries passed so far
}

// A reading is an interpretation of a run of events as calls.
type reading int

const (
	// oneRequest: the request found the completions when it began, and freed the segments.
	oneRequest reading = iota
	// lateCompletions: the request found no room, and only then waited for the completions.
	lateCompletions
	// emptiedBefore: the cache was emptied just before the request.
	emptiedBefore
	numReadings
)

func newVerifier(rec *recording, cfg caching.Config, g *guess) (*verifier, error) {
	v := &verifier{
		rec: rec, t: rec.t, guess: g, cfg: cfg,
		early:   map[int]bool{},
		live:    map[driver.Pointer]mem.Block{},
		waiting: map[driver.Pointer]deferredfree.Mark{},
		users:   map[mem.PoolID]bool{},
	}
	if rec.events[mem.ActionAnnotate]+rec.events[mem.ActionUserDefined] > 0 {
		for i := range v.t.Events {
			if v.t.Events[i].Action.IsAnnotation() {
				v.early[i] = true
			}
		}
	}
	v.dev = newRecordedDevice(v, rec.total)
	var err error
	if v.alloc, err = caching.New(v.dev, cfg); err != nil {
		return nil, err
	}
	v.alloc.Observe(v.observe)
	return v, nil
}

// run follows the recording to its end or to the first difference.
func (v *verifier) run() (Verdict, error) {
	n := &v.rec.events
	v.verdict.RecordedPeaks = v.rec.peaks
	v.verdict.Allocs, v.verdict.OOMs = n[mem.ActionAlloc], n[mem.ActionOOM]
	v.verdict.SegmentEvents = n[mem.ActionSegmentAlloc] + n[mem.ActionSegmentFree] +
		n[mem.ActionSegmentMap] + n[mem.ActionSegmentUnmap]
	peak := v.rec.peak
	for v.skipFollowed(); v.next < len(v.t.Events) && v.verdict.Difference == nil; v.skipFollowed() {
		before, use := v.next, v.used()
		if err := v.step(); err != nil {
			return v.verdict, err
		}
		if v.verdict.Before == nil && v.next > v.rec.splitAt {
			early := use // a copy, so that use stays on the stack
			v.verdict.Before = &early
		}
		if v.next == before && v.verdict.Difference == nil {
			e := &v.t.Events[v.next]
			v.explanations = v.explain(v.next, mem.Event{Action: mem.ActionSnapshot})
			v.differ(v.next, "recorded: "+v.describe(e)+"; the allocator did nothing")
		}
		if before <= peak && peak < v.next {
			v.alloc.Observe(nil) // a snapshot is an event too
			v.verdict.AtPeak = UsageOf(v.alloc.Snapshot())
			v.alloc.Observe(v.observe)
		}
	}
	stats := v.alloc.Stats()
	v.verdict.Retries = stats.NumAllocRetries
	v.verdict.DriverUse, v.verdict.Refusals = v.used(), v.dev.refusals
	v.verdict.Peaks = Peaks{Requested: stats.RequestedBytes.All.Peak, Reserved: stats.ReservedBytes.All.Peak}
	v.verdict.AllocatedPeak = stats.AllocatedBytes.All.Peak
	v.compareFinal()
	if v.verdict.Difference == nil && !v.verdict.PeaksEqual() {
		v.differ(-1, fmt.Sprintf("recorded peaks %+v; the allocator's are %+v", v.verdict.RecordedPeaks,
			v.verdict.Peaks))
	}
	return v.verdict, nil
}

// used returns the driver use of the allocator so far.
func (v *verifier) used() DriverUse {
	u := v.dev.use
	u.Stalls += v.waits.Load()
	return u
}

// skipFollowed advances next over events that need no call.
func (v *verifier) skipFollowed() {
	for v.next < len(v.t.Events) && (v.early[v.next] || v.t.Events[v.next].Action == mem.ActionSnapshot) {
		v.next++
	}
}

// step makes the call that caused the event at next.
func (v *verifier) step() error {
	v.call = v.next
	for v.changed < len(v.guess.changes) && v.guess.changes[v.changed].entry <= v.next {
		v.cfg = v.guess.changes[v.changed].cfg
		v.changed++
		if err := v.alloc.Configure(v.cfg); err != nil {
			return err
		}
	}
	e := &v.t.Events[v.next]
	if e.Action == mem.ActionFreeRequested {
		return v.free(e)
	}
	end, isRequest := v.requestFrom(v.next)
	given, private := v.freedBefore(end)
	switch {
	case given >= 0 && v.privateAt(given):
		// A call that frees memory of the default pool begins with that, so this call freed only memory of other pools.
		return v.releasePrivate(given)
	case given < 0 && !isRequest:
		v.completeRun(maxInt)
		return nil
	case !isRequest:
		return v.alloc.EmptyCache()
	}
	how := oneRequest
	if given >= 0 {
		if how = v.guess.readings[v.next]; private {
			how = emptiedBefore // either would do: private pools are released one by one
		}
		v.open = append(v.open, v.next)
	}
	switch how {
	case emptiedBefore:
		return v.alloc.EmptyCache()
	case oneRequest:
		n, ok := v.guess.early[v.next]
		if !ok {
			n = maxInt
		}
		if v.completeRun(n); v.verdict.Difference != nil {
			return nil
		}
	case lateCompletions: // the wait inside the request completes them
	}
	return v.allocate(end)
}

const maxInt = math.MaxInt

// requestFrom finds the end of the events of one call, starting at an entry: the alloc or oom of a request, or the
// event before which another call begins.
func (v *verifier) requestFrom(start int) (end int, isRequest bool) {
	for end = start; end < len(v.t.Events); end++ {
		if v.early[end] {
			continue
		}
		switch v.t.Events[end].Action {
		case mem.ActionAlloc, mem.ActionOOM:
			return end, true
		case mem.ActionFreeRequested, mem.ActionSnapshot:
			return end, false
		}
	}
	return end, false
}

// freedBefore returns the first entry in [next, end) that frees memory, or -1, and whether one frees memory of a
// private pool.
func (v *verifier) freedBefore(end int) (first int, private bool) {
	first = -1
	for i := v.next; i < end; i++ {
		if frees(v.t.Events[i].Action) {
			if first < 0 {
				first = i
			}
			private = private || v.privateAt(i)
		}
	}
	return first, private
}

// completeRun completes the frees whose completions were recorded from next on, at most n, as a request does when it
// begins.
func (v *verifier) completeRun(n int) {
	for ; n > 0 && v.verdict.Difference == nil; n-- {
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
		v.sides[m.Stream].Complete(m.Tick)
		v.alloc.ProcessPending()
		if v.next == before && v.verdict.Difference == nil {
			v.differ(v.next, "recorded: "+v.describe(e)+"; the allocator did not complete it")
		}
	}
}

func (v *verifier) allocate(end int) error {
	e := &v.t.Events[end]
	stream := v.dev.streams[e.Stream]
	if bytes, ok := v.guess.collects[v.call]; ok {
		cfg := v.cfg
		cfg.GarbageCollectionThreshold = float64(v.totals.Reserved.Current-bytes+1) / float64(cfg.Limit)
		if err := v.alloc.Configure(cfg); err != nil {
			return err
		}
		defer v.alloc.Configure(v.cfg)
	}
	pool := v.poolAt(end)
	if v.guess.privately[end] {
		pool = onlyPrivate // the pool does not matter: its memory was not enough
	}
	if pool != (mem.PoolID{}) {
		v.use(pool, func(s driver.Stream) bool { return s == stream })
		defer v.alloc.EndAllocateToPool(pool)
		if v.guess.noSplit[pool] {
			v.alloc.NeverSplit(pool)
		}
	}
	v.dev.requester = e.Stream
	if v.guess.restored[end] {
		if b, ok := v.alloc.AllocAt(stream, pool, e.Ptr, e.Size); ok {
			v.live[b.Ptr] = b
			v.dev.streams[e.Stream].busy = true
			v.verdict.Restored++
		}
		return nil
	}
	b, err := v.alloc.Alloc(stream, e.Size)
	if err != nil && !errors.Is(err, mem.ErrNoMemory) {
		return err
	}
	if err == nil {
		v.live[b.Ptr] = b
		v.dev.streams[e.Stream].busy = true
	}
	return nil
}

// free frees a block. If the free does not complete at once, it waits on a stream of its own, because the order of
// completions is unknown.
func (v *verifier) free(e *trace.Event) error {
	b, ok := v.live[e.Ptr]
	if !ok {
		return fmt.Errorf("trace entry %d: %s: the block is not allocated", v.next, v.describe(e))
	}
	delete(v.live, e.Ptr)
	v.dev.streams[e.Stream].busy = true
	if i := v.next + 1; i < len(v.t.Events) && v.t.Events[i].Action == mem.ActionFreeCompleted &&
		v.t.Events[i].Ptr == e.Ptr {
		v.alloc.Free(b)
		return nil
	}
	side := len(v.sides)
	v.sides = append(v.sides, deferredfree.NewStream(v.rec.completion(v.next), &v.waits))
	v.sides[side].Queued.Store(1)
	v.waiting[e.Ptr] = deferredfree.Mark{Tick: 1, Stream: uint32(side)}
	v.alloc.Free(b, v.sides[side])
	return nil
}

// observe compares an event of the allocator with the recorded one. It runs under the allocator's locks.
func (v *verifier) observe(got mem.Event) {
	if v.dev.backing != nil {
		v.dev.backing.observe(got)
	}
	if v.verdict.Difference != nil {
		return
	}
	v.skipFollowed()
	if v.next == len(v.t.Events) {
		v.explanations = v.explain(v.next, got)
		v.differ(v.next, "the recording ends; the allocator did: "+v.describeOwn(got))
		return
	}
	at := v.next
	if got.Action == mem.ActionFreeCompleted {
		// A wait for all streams may complete frees in another order.
		for at < len(v.t.Events) &&
			(v.early[at] || v.t.Events[at].Action == mem.ActionFreeCompleted && v.t.Events[at].Ptr != got.Ptr) {
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
		v.explanations = v.explain(at, got)
		v.differ(at, "recorded: "+v.describe(want)+"; the allocator did: "+v.describeOwn(got))
		return
	}
	v.totals.Add(got.Action, got.Size)
	switch got.Action {
	case mem.ActionAlloc:
		v.verdict.AddressesMatched++
	case mem.ActionSegmentAlloc, mem.ActionSegmentMap, mem.ActionSegmentFree, mem.ActionSegmentUnmap:
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
		v.verdict.Difference = &Difference{Device: v.rec.device, Entry: entry, What: what}
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
