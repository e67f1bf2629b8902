// Package diagnose finds out why a recorded program ran out of memory, or what its memory was used for if it did not.
//
//	works, err := replay.Works(s)
//	...
//	h, err := holders.New(s, works[0].Device)
//	...
//	r, err := diagnose.Explain(s, works[0], h, diagnose.Options{})
//	for _, line := range r.Answer {
//		fmt.Println(line)
//	}
//
// A Report names causes, the likeliest first. Each cause is confirmed by a replay of the recorded requests in which
// that cause alone is removed: with a higher limit, with other settings, on one stream, without private pools, or
// without the blocks that leak. A Verdict says how sure it is.
//
// Functions may be called from several goroutines at once. Sizes are bytes.
package diagnose

// The request that failed is compared with the memory that the process could have: its limit, or the free memory of the
// GPU (barrier.go). If the live memory and the request exceed that, no allocator helps: the limit, other processes, or
// the program itself is the cause. Otherwise the memory was there, but not for this request: layout.go reconstructs the
// segments at that moment and divides the free memory by the reasons why the request could not use it, which trials.go
// confirms by replays. Growth from step to step (growth.go) comes before all of these, because a program that leaks
// reaches every limit. A program that did not fail is examined for growth and for settings that cost memory.

import (
	"fmt"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A Cause is why a program ran out of memory.
type Cause string

// The causes.
const (
	Limit          Cause = "limit"           // a limit of the process, while the GPU had room
	TooMuch        Cause = "too_much"        // more live memory than the GPU has
	Fragmentation  Cause = "fragmentation"   // enough free memory, but in holes that are too small
	Leak           Cause = "leak"            // live memory that grows from step to step
	Cached         Cause = "cached"          // free memory that is cached for other streams
	PrivatePools   Cause = "private_pools"   // free memory in private pools
	OtherProcesses Cause = "other_processes" // memory of other processes, or of other libraries in the process
	Setting        Cause = "setting"         // a setting of the allocator that costs memory
	None           Cause = "none"            // nothing failed, and no cause was found
)

// A Confidence says how sure a Verdict is.
type Confidence string

// The degrees of confidence.
const (
	Certain  Confidence = "certain"  // the recording, and a replay without the cause, show it
	Likely   Confidence = "likely"   // all facts agree, but one that decides is missing in the recording
	Possible Confidence = "possible" // some facts agree
)

// A Verdict is one cause.
type Verdict struct {
	Cause      Cause
	Confidence Confidence
	Reason     string // what shows it, in one sentence or more
}

// Options configure Explain. The zero value is valid.
type Options struct {
	// Limit is the maximum of reserved bytes that the process had; 0 means that of the file or, if the file has none,
	// the bounds that follow from the failures.
	Limit int64

	// Memory is the memory of the GPU in bytes; 0 means unknown.
	Memory int64

	// At is the moment of Report.Holders, as in holders.History.Moment; "" means the peak.
	At string

	// Progress is called repeatedly with the completed part of the work, from 0 to 1, by one goroutine at a time. It
	// may be nil.
	Progress func(done float64)
}

// A Report explains the memory of one device.
type Report struct {
	Device   int
	Verdicts []Verdict // the likeliest first; at least one
	Answer   []string  // the answer in up to three lines of at most 80 columns

	Failure   *replay.Failure // the first request that failed; nil if none did
	Failures  int             // requests that failed
	Requester string          // the line that made the failed request; "" if unknown
	Barrier   Barrier         // the memory that the process could have when the request failed; zero without a failure

	RequestedPeak int64 // requested bytes of active blocks
	ReservedPeak  int64
	Needed        []Need // the recorded settings first

	View    *holders.View    // the memory at Options.At
	Holders []holders.Holder // of View by line and category, the largest first; their bytes add up to View.Bytes

	Layout *Layout // of the reserved memory when the request failed, or at the peak
	Growth *Growth // nil if no growth was found
	Notes  []string

	knownLimit int64 // bytes; 0 if none is known
}

// A Need is the memory that the recorded requests need with some settings, including those that failed.
type Need struct {
	Setting string // a spec of package replay
	Bytes   int64  // the smallest limit with which a replay completes, as near as was searched; -1 if there is none
}

// Has reports whether a verdict has the cause.
func (r *Report) Has(c Cause) bool {
	for _, v := range r.Verdicts {
		if v.Cause == c {
			return true
		}
	}
	return false
}

// An explainer is the state of Explain.
type explainer struct {
	s        *snapshot.Snapshot
	w        *replay.Work
	h        *holders.History
	opts     Options
	r        *Report
	peak     holders.Moment
	op       int // of the failed request, in w.Program; -1 without a failure
	trials   trials
	progress func(done float64)

	harmful dropping // the setting of the verdict Setting
	onePool bool     // the verdict is PrivatePools, and the request succeeds if all private pools are one
}

// Explain explains the memory of the device of w, which is work of s, and whose history is h. The error is that of a
// replay, that of holders.History.Moment for Options.At, or one for a limit that the recorded run exceeded.
func Explain(s *snapshot.Snapshot, w *replay.Work, h *holders.History, opts Options) (*Report, error) {
	if opts.Progress == nil {
		opts.Progress = func(float64) {}
	}
	x := &explainer{s: s, w: w, h: h, opts: opts, op: -1, progress: opts.Progress}
	x.r = &Report{
		Device: w.Device, Failures: w.NumFailures, ReservedPeak: w.RecordedReserved, Notes: w.Notes,
	}
	x.r.knownLimit = x.limit()
	if err := x.hold(); err != nil {
		return nil, err
	}
	if err := x.findFailure(); err != nil {
		return nil, err
	}
	x.trials = newTrials(w, x.op)
	x.findGrowth()
	x.findLayout()
	x.progress(0.2)
	judge := x.judgeRun
	if x.r.Failure != nil {
		judge = x.judgeFailure
	}
	if err := judge(); err != nil {
		return nil, err
	}
	x.progress(0.5)
	if err := x.findNeeds(); err != nil {
		return nil, err
	}
	x.progress(1)
	x.answer()
	return x.r, nil
}

// hold finds the holders at the moment that was asked for.
func (x *explainer) hold() error {
	peak, err := x.h.Moment("peak")
	if err != nil {
		return err
	}
	x.peak, x.r.RequestedPeak = peak, peak.Bytes
	m := peak
	if at := x.opts.At; at != "" {
		if m, err = x.h.Moment(at); err != nil {
			return err
		}
	}
	x.r.View = x.h.At(m)
	x.r.Holders = x.r.View.By(holders.ByLine, holders.ByCategory)
	return nil
}

// findFailure finds the op of the first failed request, which is the one to explain: later failures often follow from
// it.
func (x *explainer) findFailure() error {
	if len(x.w.Failures) == 0 {
		if x.opts.Limit > 0 && x.opts.Limit < x.w.RecordedReserved {
			return fmt.Errorf("diagnose: a limit of %d bytes: the recorded run reserved %d; want more, or 0 for none",
				x.opts.Limit, x.w.RecordedReserved)
		}
		return nil
	}
	x.r.Failure = &x.w.Failures[0]
	x.r.Requester = x.h.Frames.Line(x.r.Failure.Stack)
	for i := range x.w.Program.Ops {
		if x.w.Program.Ops[i].Kind == trace.OpTry && int(x.w.Program.Entries[i]) == x.r.Failure.Entry {
			x.op = i
		}
	}
	if x.op < 0 {
		return fmt.Errorf("diagnose: the failed request at entry %d is not in the program", x.r.Failure.Entry)
	}
	return x.findBarrier()
}

// say adds a verdict.
func (x *explainer) say(c Cause, sure Confidence, format string, args ...any) {
	x.r.Verdicts = append(x.r.Verdicts, Verdict{c, sure, fmt.Sprintf(format, args...)})
}
