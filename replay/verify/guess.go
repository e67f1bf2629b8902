package verify

import (
	"maps"
	"slices"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/trace"
)

// A guess is a set of assumptions about conditions that a recording does not contain.
type guess struct {
	readings  map[int]reading // interpretations of ambiguous places, by entry
	hidden    map[int]bool    // segment ranges of hidden private pools, by index
	noSplit   map[mem.PoolID]bool
	early     map[int]int   // number of completions that a request found when it began, by entry
	privately map[int]bool  // failed requests to private pools, by entry
	restored  map[int]bool  // blocks that a restored private pool placed without a request, by entry
	changes   []change      // changes of settings, by entry
	collects  map[int]int64 // bytes that garbage collection freed for a request, by entry
}

// A change holds new settings and the entry from which they apply.
type change struct {
	entry int
	cfg   caching.Config
}

func (g *guess) clone() *guess {
	return &guess{
		readings:  maps.Clone(g.readings),
		hidden:    maps.Clone(g.hidden),
		noSplit:   maps.Clone(g.noSplit),
		early:     maps.Clone(g.early),
		privately: maps.Clone(g.privately),
		restored:  maps.Clone(g.restored),
		changes:   slices.Clone(g.changes),
		collects:  maps.Clone(g.collects),
	}
}

func newGuess() *guess {
	return &guess{
		readings: map[int]reading{}, hidden: map[int]bool{}, noSplit: map[mem.PoolID]bool{}, early: map[int]int{},
		privately: map[int]bool{}, restored: map[int]bool{}, collects: map[int]int64{},
	}
}

// emptiedAt assumes that the program emptied the cache at some entries.
func (g *guess) emptiedAt(t *trace.Trace, entries []int) {
	for _, entry := range entries {
		// The verifier's entries are those at which the events of a call begin, including completions.
		for ; entry >= 0; entry-- {
			g.readings[entry] = emptiedBefore
			if entry == 0 || t.Events[entry-1].Action != mem.ActionFreeCompleted {
				break
			}
		}
	}
}

// mayBeRestored reports whether an entry may come from restoring a private pool to an earlier state: it is an alloc in
// a private pool without a driver call, and the next entry is on the same stream.
func (v *verifier) mayBeRestored(entry int) bool {
	e := &v.t.Events[entry]
	if e.Action != mem.ActionAlloc || entry != v.call || !v.privateAt(entry) || v.guess.restored[entry] {
		return false
	}
	return entry+1 < len(v.t.Events) && v.t.Events[entry+1].Stream == e.Stream
}

// position orders differences by how far the recording was followed. A nil one is the last.
func (d *Difference) position(rec *recording) int {
	switch n := len(rec.t.Events); {
	case d == nil:
		return n + 1
	case d.Entry < 0:
		return n
	default:
		return d.Entry
	}
}

// explain lists assumptions that would explain why the allocator's event differs from the recorded one.
func (v *verifier) explain(at int, got mem.Event) []func(*guess) {
	all := v.explainReading()
	if v.cfg.GarbageCollectionThreshold > 0 && v.cfg.Limit >= unknownLimit {
		all = append(all, v.explainCollection()...)
	}
	var want trace.Event
	wantSegment := -1
	if at < len(v.t.Events) {
		want, wantSegment = v.t.Events[at], int(v.rec.segmentOf[at])
	}
	gotSegment := v.rec.segmentAt(got.Ptr, at)
	end, isRequest := v.requestFrom(v.call)
	if isRequest && got.Action != mem.ActionFreeRequested && want.Action != mem.ActionFreeCompleted {
		all = append(all, v.explainCompletions(end)...)
	}
	hide := func(segments ...int) {
		for _, n := range segments {
			if v.mayHide(n) {
				all = append(all, func(g *guess) { g.hidden[n] = true })
			}
		}
	}
	wantsOther := allocates(want.Action) || want.Action == mem.ActionAlloc
	switch {
	case frees(got.Action) && frees(want.Action), got.Action == mem.ActionAlloc, allocates(got.Action) && wantsOther:
		hide(wantSegment, gotSegment)
	case frees(got.Action):
		hide(gotSegment)
	case frees(want.Action):
		hide(wantSegment)
	}
	if isRequest && at <= end && v.mayBeRestored(end) {
		all = append(all, func(g *guess) { g.restored[end] = true })
	}
	if got.Action == mem.ActionAlloc && wantsOther && v.mayNeverSplit(got.Pool) {
		all = append(all, func(g *guess) { g.noSplit[got.Pool] = true })
	}
	if v.rec.bothKinds {
		all = append(all, v.explainSettings()...)
	}
	return all
}

// explainReading assumes another reading of the current call, if it is ambiguous.
func (v *verifier) explainReading() (all []func(*guess)) {
	call := v.call
	if n := len(v.open); n == 0 || v.open[n-1] != call {
		return nil
	}
	for _, how := range [...]reading{lateCompletions, emptiedBefore, oneRequest} {
		if how != v.guess.readings[call] {
			all = append(all, func(g *guess) { g.readings[call] = how })
		}
	}
	return all
}

// explainCompletions assumes when the current request, which ends at an entry, found completions: when it began, when it
// had found no room, or at both times.
func (v *verifier) explainCompletions(end int) (all []func(*guess)) {
	call, n := v.call, 0
	for i := call; i < end && v.t.Events[i].Action == mem.ActionFreeCompleted; i++ {
		n++
	}
	if _, ok := v.guess.early[call]; !ok && n > 0 {
		for k := n - 1; k >= max(0, n-16); k-- {
			all = append(all, func(g *guess) { g.early[call] = k })
		}
	}
	if v.t.Events[end].Action == mem.ActionOOM && !v.guess.privately[end] {
		all = append(all, func(g *guess) { g.privately[end] = true })
	}
	return all
}

// explainSettings assumes that expandable_segments was switched, now or somewhat earlier: a change of settings may have
// a visible effect only later.
func (v *verifier) explainSettings() (all []func(*guess)) {
	cfg := v.cfg
	cfg.ExpandableSegments = !cfg.ExpandableSegments
	for _, back := range [...]int{0, 8, 32, 128, 512, 2048} {
		c := change{max(v.call-back, 0), cfg}
		if n := len(v.guess.changes); n == 0 || c.entry > v.guess.changes[n-1].entry {
			all = append(all, func(g *guess) { g.changes = append(g.changes, c) })
		}
	}
	return all
}

// maxAlternatives is the number of ambiguous places before a difference for which other readings are tried.
const maxAlternatives = 12

// alternatives lists other readings of the last ambiguous places.
func (v *verifier) alternatives() []func(*guess) {
	var all []func(*guess)
	for i := len(v.open) - 1; i >= max(0, len(v.open)-maxAlternatives); i-- {
		at := v.open[i]
		for r := range numReadings {
			if how := numReadings - 1 - r; how != v.guess.readings[at] {
				all = append(all, func(g *guess) { g.readings[at] = how })
			}
		}
	}
	return all
}

// unknownLimit represents an unknown limit: no request reaches it.
const unknownLimit = int64(1) << 50

// explainCollection assumes that the current request collected garbage: all memory that it freed, or a part, if it
// freed the rest because there still was no room.
func (v *verifier) explainCollection() []func(*guess) {
	var all []func(*guess)
	at := v.call
	if _, ok := v.guess.collects[at]; ok {
		return nil
	}
	var freed []int64
	var sum int64
run:
	for i := at; i < len(v.t.Events); i++ {
		switch e := &v.t.Events[i]; e.Action {
		case mem.ActionFreeCompleted, mem.ActionSnapshot, mem.ActionAnnotate, mem.ActionUserDefined:
		case mem.ActionSegmentFree:
			sum += e.Size
			freed = append(freed, sum)
		default:
			break run
		}
	}
	for i := len(freed) - 1; i >= 0 && len(all) < 8; i-- {
		all = append(all, func(g *guess) { g.collects[at] = freed[i] })
	}
	return all
}
