package diagnose

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/internal/allocconf"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// judgeFailure finds the causes of a failed request.
func (x *explainer) judgeFailure() error {
	b := &x.r.Barrier
	if leaks, err := x.judgeLeak(); err != nil || leaks {
		return err
	}
	switch {
	case b.Required > b.likely() && b.ByLimit:
		return x.judgeLimit()
	case b.Required > b.AtLeast && !b.ByLimit:
		return x.judgeDevice()
	}
	if b.tight() {
		judge := x.judgeDevice
		if b.ByLimit {
			judge = x.judgeLimit
		}
		if err := judge(); err != nil {
			return err
		}
	}
	return x.judgeUnusable()
}

// judgeLeak names growth as the cause if the request would have succeeded without it.
func (x *explainer) judgeLeak() (bool, error) {
	g := x.r.Growth
	if g == nil {
		return false, nil
	}
	limit := x.r.Barrier.AtLeast
	fits, err := x.trials.fits(replay.AsRecorded, x.withoutGrowth(x.trials.program), limit)
	if err != nil || !fits {
		return false, err
	}
	x.say(Leak, Certain, "%s A replay that frees these blocks after the next step serves the failed request.",
		g.sentence())
	return true, nil
}

// judgeLimit names the limit of the process as the cause.
func (x *explainer) judgeLimit() error {
	b := &x.r.Barrier
	fits, err := x.trials.fits(replay.AsRecorded, x.trials.program, b.Reachable)
	if err != nil {
		return err
	}
	sure := Likely
	if fits {
		sure = Certain
	}
	text := "A replay with all of that memory serves the request."
	if !fits {
		text = "A replay with all of that memory fails, too."
	}
	x.say(Limit, sure, "The request failed while the GPU had %s free, so a limit of the process refused it. Without "+
		"one the process could have had %s. %s", FormatSize(b.Free), FormatSize(b.Reachable), text)
	return nil
}

// A candidate is a cause that keeps free memory from the failed request.
type candidate struct {
	cause   Cause
	bytes   int64
	program *trace.Program
	spec    string
	reason  string
}

// judgeUnusable finds the cause that kept the request from memory that was there.
func (x *explainer) judgeUnusable() error {
	limit, sure := x.r.Barrier.AtLeast, Certain
	if x.r.Barrier.Required > limit {
		limit, sure = x.r.Barrier.likely(), Likely // that was there only if the limit is as high
	}
	same, err := x.trials.fits(replay.AsRecorded, x.trials.program, limit)
	if err != nil {
		return err
	}
	if same {
		sure = Likely // the simulated device has other addresses, so the replay is not the recorded run
	}
	if found, err := x.judgeSetting(limit, sure); err != nil || found {
		return err
	}
	for _, c := range x.candidates() {
		if len(x.r.Verdicts) > 0 && float64(c.bytes) < notable*float64(x.r.Failure.Reserved) {
			continue
		}
		fits, err := x.trials.fits(c.spec, c.program, limit)
		if err != nil {
			return err
		}
		if fits {
			x.say(c.cause, sure, "%s", c.reason)
			return x.tryOnePool(c.cause, limit)
		}
	}
	if len(x.r.Verdicts) > 0 {
		return nil // the limit is the cause, and no replay shows another
	}
	x.say(Fragmentation, Likely, "%s was reserved and free, but no part of it fits the request. No setting that was "+
		"replayed serves it.", FormatSize(x.free()))
	return nil
}

// notable is the part of the reserved memory that must be free for a second cause to be named.
const notable = 0.05

// tryOnePool finds out whether the request succeeds if all private pools are one.
func (x *explainer) tryOnePool(c Cause, limit int64) (err error) {
	if p := x.trials.program; c == PrivatePools && privatePools(p) > 1 {
		x.onePool, err = x.trials.fits(replay.AsRecorded, onePool(p), limit)
	}
	return err
}

// free returns the free bytes of the reserved memory at the failure.
func (x *explainer) free() int64 {
	if l := x.r.Layout; l != nil {
		return l.FreeOwn + l.FreePools + l.FreeStreams
	}
	return max(0, x.r.Failure.Reserved-x.r.Failure.Requested)
}

// candidates returns the causes that keep free memory from the request, that with the most memory first.
func (x *explainer) candidates() []candidate {
	l := x.r.Layout
	if l == nil {
		l = &Layout{FreeOwn: x.free()}
	}
	p := x.trials.program
	list := []candidate{{
		cause: Fragmentation, bytes: l.FreeOwn, program: p, spec: expandable,
		reason: "Free memory of " + FormatSize(l.FreeOwn) + " is in segments with live blocks, and its largest hole has " +
			FormatSize(l.LargestHole) + ". A replay with expandable segments, which join holes, serves the request.",
	}}
	if l.FreePools > 0 {
		list = append(list, candidate{
			cause: PrivatePools, bytes: l.FreePools, program: noPools(p), spec: replay.AsRecorded,
			reason: "Private pools, as of captured graphs, hold " + FormatSize(l.FreePools) + " of free memory, which other " +
				"requests cannot use. A replay without private pools serves the request.",
		})
	}
	if l.FreeStreams > 0 {
		list = append(list, candidate{
			cause: Cached, bytes: l.FreeStreams, program: oneStream(p), spec: replay.AsRecorded,
			reason: "Segments of other streams hold " + FormatSize(l.FreeStreams) + " of free memory, which this stream " +
				"cannot use. A replay on one stream serves the request.",
		})
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(b.bytes, a.bytes) })
	return list
}

// judgeSetting names a recorded setting as the cause if the request is served without it.
func (x *explainer) judgeSetting(limit int64, sure Confidence) (found bool, err error) {
	for _, without := range x.withoutSettings() {
		fits, err := x.trials.fits(without.spec, x.trials.program, limit)
		if err != nil {
			return false, err
		}
		if fits {
			x.harmful = without
			x.say(Setting, sure, "A replay without %s serves the request.", without.dropped)
			return true, nil
		}
	}
	return false, nil
}

// dropping is a spec with the recorded settings except those that are dropped.
type dropping struct {
	dropped, spec string
	reserved      int64 // bytes that a replay of a run without failures reserves
}

// withoutSettings returns specs that each lack one of the recorded settings, and last one that lacks them all. It is
// empty if the recorded settings are PyTorch's defaults.
func (x *explainer) withoutSettings() (list []dropping) {
	recorded := x.w.Recorded
	recorded.Limit, recorded.MemoryFraction = 0, 1
	conf := snapshot.SettingsOf(recorded).Conf
	if conf == "" {
		return nil
	}
	settings := allocconf.Split(conf)
	for i := range settings {
		if len(settings) == 1 {
			break
		}
		rest := slices.Concat(settings[:i], settings[i+1:])
		list = append(list, dropping{dropped: settings[i], spec: "caching:" + strings.Join(rest, ",")})
	}
	return append(list, dropping{dropped: conf, spec: defaults})
}

// wasteful is the part of the reserved memory that a setting must cost to count as a cause by itself.
const wasteful = 0.1

// judgeRun finds the causes of trouble in a run without failures.
func (x *explainer) judgeRun() error {
	if g := x.r.Growth; g != nil {
		sure := Likely
		if g.Steps >= 2*leastSteps {
			sure = Certain
		}
		x.say(Leak, sure, "%s", g.sentence())
	}
	if err := x.judgeCost(); err != nil {
		return err
	}
	if err := x.judgePools(); err != nil {
		return err
	}
	if len(x.r.Verdicts) == 0 {
		x.say(None, Certain, "No request failed, live memory does not grow from step to step, and no setting costs "+
			"much memory.")
	}
	return nil
}

// judgeCost names the recorded setting without which a replay reserves least, if that is much less than a replay with
// it reserves. It trusts replays only if that with the recorded settings reserves about as much as was recorded.
func (x *explainer) judgeCost() error {
	without := x.withoutSettings()
	if len(without) == 0 {
		return nil
	}
	recorded, err := x.trials.run(replay.AsRecorded, x.trials.program, x.limit())
	if err != nil || !recorded.Completed() || !near(recorded.ReservedPeak, x.r.ReservedPeak) {
		return err
	}
	var best dropping
	least := recorded.ReservedPeak
	for _, w := range without {
		row, err := x.trials.run(w.spec, x.trials.program, x.limit())
		if err != nil {
			return err
		}
		if row.Completed() && row.ReservedPeak < least {
			best, least = w, row.ReservedPeak
		}
	}
	if float64(recorded.ReservedPeak-least) > wasteful*float64(recorded.ReservedPeak) {
		x.harmful, x.harmful.reserved = best, least
		sure := Certain
		if x.w.Program.Prelude.Blocks > 0 {
			sure = Likely // how the older blocks were placed is unknown
		}
		x.say(Setting, sure, "The run reserved %s. A replay without %s reserves %s.", FormatSize(x.r.ReservedPeak),
			best.dropped, FormatSize(least))
	}
	return nil
}

// judgePools names private pools if most of the memory that is reserved at the end is free in them, and a replay
// without them reserves much less.
func (x *explainer) judgePools() error {
	l := x.layoutAt(x.h.Trace.Len()-1, 0, 0)
	if l == nil || l.FreePools < l.Reserved/2 {
		return nil
	}
	recorded, err := x.trials.run(replay.AsRecorded, x.trials.program, x.limit())
	if err != nil || !near(recorded.ReservedPeak, x.r.ReservedPeak) {
		return err
	}
	row, err := x.trials.run(replay.AsRecorded, noPools(x.trials.program), x.limit())
	if err != nil {
		return err
	}
	if row.Completed() && float64(recorded.ReservedPeak-row.ReservedPeak) > stranded*float64(recorded.ReservedPeak) {
		x.r.Layout = l
		x.say(PrivatePools, Likely, "Of %s that is reserved at the end, %s is free in %d private pools, which other "+
			"requests cannot use. A replay without private pools reserves %s at most.", FormatSize(l.Reserved),
			FormatSize(l.FreePools), l.PrivatePools, FormatSize(row.ReservedPeak))
	}
	return nil
}

// stranded is the part of the reserved memory that a replay without private pools must save for them to be a cause.
const stranded = 0.25

// near reports whether a and b differ by a twentieth at most.
func near(a, b int64) bool { return 20*max(a-b, b-a) <= max(a, b) }

// limit returns the limit of the process in bytes, or 0 if none is known.
func (x *explainer) limit() int64 {
	switch {
	case x.opts.Limit > 0:
		return x.opts.Limit
	case x.w.LimitKnown:
		return x.w.RecordedLimit
	}
	return 0
}
