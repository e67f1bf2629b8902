// Package tune searches the settings of PyTorch's caching allocator for one that needs less memory, by replaying
// recordings under each setting:
//
//	works, err := replay.Works(s)
//	...
//	result, err := tune.Search(works, tune.Options{})
//
// The memory that a setting needs for a recording is that of the smallest limit under which the recording completes and
// the driver takes no more time than a budget allows. Without a limit an allocator reserves more than it needs, because
// it keeps freed memory as long as the device has some left; figures of such runs are in the result, too.
//
// One setting is chosen for all recordings. It is also chosen by parts of the recordings, and tried on the others:
// these checks show what can be expected of it on work that was not recorded.
//
// All runs are simulated, with modelled times of driver calls. Results depend on the recordings and the options alone.
package tune

// The search is a hill climb. It tries some values of each key alone and the neighbors of the recorded settings, then
// the neighbors of the best setting so far: another value of one of its keys, or one key more. Settings are tried in
// batches of fixed size, so that the result does not depend on the number of cores. The settings that were tried on
// whole recordings are then tried on each half, and all checks choose among them.

import (
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/replay"
)

// Defaults of Options.
const (
	DefaultTries  = 24
	DefaultBudget = 0.01 // of the recorded time
)

// Options configure Search. The zero value is valid. Sizes are bytes.
type Options struct {
	// Tries is the number of settings to try, in addition to the recorded ones; 0 is DefaultTries.
	Tries int

	// Budget is the maximum of the time of driver calls. The zero value is a part of DefaultBudget.
	Budget Budget

	// Limit is the maximum of reserved bytes into which each recording should fit; 0 is that of LimitOf.
	Limit int64

	// Capacity is the memory of the simulated device; 0 means that of the script, or else an H200's.
	Capacity int64

	// Keep are settings that every tried setting has, in the syntax of PYTORCH_CUDA_ALLOC_CONF. Their keys are not
	// varied.
	Keep string

	// Progress is called repeatedly, by one goroutine at a time, with the completed part of the work, from 0 to 1.
	Progress func(done float64)
}

// A Budget bounds the time of driver calls after the first third of a recording, where memory that was cached at the
// beginning can be reused. One of the two fields is set. If all driver calls with the recorded settings take more, from
// the beginning on, then that is the bound.
type Budget struct {
	Part float64       // of the recorded time; it bounds nothing in a recording without times
	Time time.Duration // in each recording
}

// A Result is what a search found.
type Result struct {
	Works    []*replay.Work
	Recorded *Trial   // of the recorded settings, which may differ between recordings
	Tried    []*Trial // the others, the best first

	// Best is the recommended setting: Recorded if no other is better. A setting is better if more recordings fit
	// into their limits; or if it needs less memory: by 1 % for each of its keys, averaged over the recordings and their
	// halves; by 40 MiB, two of PyTorch's segments, for some recording; and at most 1 % more for any.
	Best *Trial

	// HeldBack are checks of the choice: without each recording, if there are several, and without each half of all,
	// unless one is too short.
	HeldBack []Check
	Untimed  []int // indices of works for which a budget of Part bounds nothing, because they have no times
}

// Helps reports whether a setting is better than the recorded ones.
func (r *Result) Helps() bool { return r.Best != r.Recorded }

// Saving returns the part of the memory that t saves compared to the recorded settings, averaged over the recordings
// that complete under both. It is negative if t needs more.
func (r *Result) Saving(t *Trial) float64 { return saving(r.Recorded, t, all(len(r.Works))) }

// A Trial is a setting, run on every recording.
type Trial struct {
	// Settings is a value for PYTORCH_CUDA_ALLOC_CONF, after those of Options.Keep (see Join); "" means PyTorch's
	// defaults. Of Result.Recorded it is "" and means nothing.
	Settings string
	Needs    []Need // by work

	keys int // number of keys in the setting without Keep; at least 1
}

// A Need is the memory that a setting needs for a recording.
type Need struct {
	// Bytes is the memory that is reserved under the smallest limit with which the recording completes within the
	// budget: that limit (FoundLimit.Limit), or more if the allocator exceeds it, since expandable segments map whole
	// pages. It is -1 if no limit is enough, because of the device or the budget.
	Bytes int64

	// Fits reports whether the recording completes within the budget and within its limit, if it has one. A run may
	// exceed a recorded limit by a part of a page, as PyTorch does with expandable segments, but not Options.Limit.
	Fits bool

	replay.FoundLimit
}

// OverBudget reports whether the recording completes, but not within the budget under any limit.
func (n *Need) OverBudget() bool { return n.Bytes < 0 && n.Free.Completed() }

// LimitOf returns the limit into which a work should fit, in bytes; 0 is none. The limit of a recording counts only if
// the recording has it (replay.Work.LimitKnown).
func (o *Options) LimitOf(w *replay.Work) int64 {
	switch {
	case o.Limit > 0:
		return o.Limit
	case w.LimitKnown:
		return w.RecordedLimit
	}
	return 0
}

// A Check is a choice among the tried settings without a part of the recordings, and its effect on that part.
type Check struct {
	Part Part
	Work int // index of the work that was held back; -1 if it is a half of each

	Chosen   *Trial  // by the rest, among Result.Tried; Result.Recorded if no other was better
	Saving   float64 // of Chosen in the part that was held back, as Result.Saving
	Complete bool    // every recording in that part completes within the budget, as with the recorded settings
}

// A Part is a part of recordings.
type Part int

// The parts of recordings that are held back. Halves have equal numbers of ops.
const (
	Whole Part = iota
	FirstHalf
	SecondHalf
)

// Search tries settings on all works, chooses the best, and checks the choice on parts that were held back. Works must
// not be empty. The error is a *replay.SpecError, which names wrong settings in Options.Keep, or that of replay.Run.
//
// Search runs on all cores. On one core a setting takes about half a second for 100,000 entries of a recording.
func Search(works []*replay.Work, opts Options) (*Result, error) {
	if len(works) == 0 {
		panic("tune: Search without works")
	}
	if opts.Tries < 0 || opts.Budget.Part < 0 || opts.Budget.Time < 0 || opts.Limit < 0 {
		panic(fmt.Sprintf("tune: negative options %+v", opts))
	}
	if opts.Tries == 0 {
		opts.Tries = DefaultTries
	}
	if opts.Budget == (Budget{}) {
		opts.Budget.Part = DefaultBudget
	}
	space, err := newSpace(opts.Keep)
	if err != nil {
		return nil, err
	}
	s := &searcher{opts: opts, space: space, groups: 1}
	if divisible(works) {
		s.groups = 3
	}
	r := &Result{Works: works}
	whole := &group{}
	for i, w := range works {
		plain := *w
		plain.Recorded.Limit, plain.Recorded.MemoryFraction = 0, 1 // limits are given to each run
		budget, err := s.budget(&plain)
		if err != nil {
			return nil, err
		}
		if budget == unlimited {
			r.Untimed = append(r.Untimed, i)
		}
		whole.works, whole.budgets = append(whole.works, &plain), append(whole.budgets, budget)
	}
	if err := s.open(whole); err != nil {
		return nil, err
	}
	if err := s.climb(whole); err != nil {
		return nil, err
	}
	judge := judge{whole}
	if s.groups > 1 {
		halves, err := s.halve(whole)
		if err != nil {
			return nil, err
		}
		judge = append(judge, halves...)
	}
	r.finish(judge)
	s.report(1)
	return r, nil
}

// finish chooses among the trials.
func (r *Result) finish(j judge) {
	on := all(len(r.Works))
	r.Recorded, r.Best = j[0].recorded, j[0].trial(j.choose(on))
	for _, i := range j.order(on) {
		r.Tried = append(r.Tried, j[0].trials[i])
	}
	r.HeldBack = j.checks()
}
