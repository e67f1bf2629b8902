package replay

import (
	"fmt"
)

const limitStep = 1 << 20 // bytes: the resolution of the search

// smallestRuns is the approximate number of runs of a search, for progress.
const smallestRuns = 14

// SmallestLimit returns the smallest limit, a multiple of 1 MiB, under which the allocator of spec (see ParseSpec)
// serves every request of w on a simulated device of capacity bytes (0 means that of the script, or else an H200's); or
// -1 if the device is too small even without a limit.
//
// It bisects the range between the allocated peak, below which no run can complete, and the reserved peak without a
// limit. Completion is not strictly monotonic: under pressure an allocator frees memory and then places blocks
// elsewhere, so a run may fail under a limit slightly above one under which it completes. The returned limit completes
// and a limit 1 MiB lower does not; a limit further below might.
func SmallestLimit(w *Work, spec string, capacity int64) (int64, error) {
	found, err := SearchLimits([]LimitSearch{{Work: w, Spec: spec}}, LimitOptions{Capacity: capacity})
	if err != nil {
		return 0, err
	}
	return found[0].Limit, nil
}

// A LimitSearch asks for the smallest limit under which an allocator completes some work.
type LimitSearch struct {
	Work *Work
	Spec string // see ParseSpec

	// Limit, if not 0, is a limit in bytes under which the work is run, too.
	Limit int64

	// Accept, if not nil, is a further condition on a run that completed, such as a bound of the driver's time. Under a
	// limit that is too low for it, Row.Completed is true and Accept returns false. For each search it is called by one
	// goroutine at a time, first for the run without a limit.
	Accept func(*Row) bool
}

// LimitOptions configure SearchLimits.
type LimitOptions struct {
	Capacity int64              // of the device, in bytes; 0 means that of the script, or else an H200's
	Progress func(done float64) // called by one goroutine at a time with the completed part, from 0 to 1; may be nil

	// Resolution is the largest distance, in bytes, between a limit that is found and a smaller one under which the work
	// does not complete. 1 MiB or less means 1 MiB. A search with a larger one needs fewer runs.
	Resolution int64
}

// A FoundLimit is the result of a LimitSearch.
type FoundLimit struct {
	Limit    int64 // bytes, a multiple of 1 MiB; -1 if no run completed and was accepted: see SmallestLimit
	Smallest Row   // the run under Limit; zero if there is none
	Free     Row   // the run without a limit
	Limited  Row   // the run under LimitSearch.Limit; equal to Free if that is 0
}

// SearchLimits does several searches in parallel, each as SmallestLimit does, on simulated devices. It returns their
// results in order. The error is a *SpecError, or that of Run.
func SearchLimits(searches []LimitSearch, opts LimitOptions) ([]FoundLimit, error) {
	found := make([]FoundLimit, len(searches))
	m := newMeter(opts.Progress, len(searches)*smallestRuns)
	err := parallel(len(searches), 0, func(i int) error {
		w := searches[i].Work
		s, err := ParseSpec(searches[i].Spec, w.Recorded)
		if err != nil {
			return err
		}
		capacity, err := w.capacity(opts.Capacity)
		if err != nil {
			return err
		}
		search := limitSearch{
			work: w, spec: &s, capacity: capacity, accept: searches[i].Accept, meter: m, resolution: opts.Resolution,
		}
		if found[i], err = search.do(); err != nil {
			return err
		}
		found[i].Limited = found[i].Free
		if limit := searches[i].Limit; limit > 0 {
			found[i].Limited, err = search.run(limit)
		}
		return err
	})
	return found, err
}

// Simulate runs w on the allocator of spec (see ParseSpec) on a simulated device of capacity bytes (0 means that of the
// script, or else an H200's), with a limit of its reserved bytes; 0 is none. Unlike Compare, it does not follow the
// recording for the row AsRecorded: segments have addresses of the simulated device. The error is a *SpecError, or that
// of Run.
func Simulate(w *Work, spec string, limit, capacity int64) (Row, error) {
	s, err := ParseSpec(spec, w.Recorded)
	if err != nil {
		return Row{}, err
	}
	if capacity, err = w.capacity(capacity); err != nil {
		return Row{}, err
	}
	return (&limitSearch{work: w, spec: &s, capacity: capacity}).run(limit)
}

// A limitSearch is the state of a search.
type limitSearch struct {
	work     *Work
	spec     *Spec
	capacity int64
	accept   func(*Row) bool // may be nil
	meter    *meter
	runs     int

	resolution int64 // bytes
}

func (l *limitSearch) run(limit int64) (Row, error) {
	row := Row{Allocator: l.spec.Text, Notes: l.spec.Notes}
	r := simulation{work: l.work, spec: l.spec, limit: limit, capacity: l.capacity}
	res, err := r.do()
	if err != nil {
		return row, fmt.Errorf("%s with a limit of %d bytes: %w", l.spec.Text, limit, err)
	}
	row.fill(&res)
	return row, nil
}

// try runs the work under a limit, and keeps the row if it is acceptable.
func (l *limitSearch) try(limit int64, found *FoundLimit) (ok bool, err error) {
	row, err := l.run(limit)
	if err != nil {
		return false, err
	}
	if l.runs++; l.runs <= smallestRuns {
		l.meter.step()
	}
	if limit == 0 {
		found.Free = row
	}
	ok = row.Completed() && (l.accept == nil || l.accept(&row))
	if ok && limit > 0 {
		found.Smallest = row // the last one has the smallest limit
	}
	return ok, nil
}

func (l *limitSearch) do() (found FoundLimit, err error) {
	defer func() {
		for ; l.runs < smallestRuns; l.runs++ {
			l.meter.step()
		}
	}()
	found.Limit = -1
	if ok, err := l.try(0, &found); err != nil || !ok {
		return found, err
	}
	free := &found.Free
	steps := func(bytes int64) int64 { return (bytes + limitStep - 1) / limitStep }
	low := steps(min(free.RequestedPeak, free.AllocatedPeak)) - 1 // cannot complete
	high := steps(max(free.ReservedPeak, free.RequestedPeak, 1))
	for {
		// The reserved peak without a limit is enough, unless the allocator behaves differently with a limit.
		ok, err := l.try(high*limitStep, &found)
		if err != nil {
			return found, err
		}
		if ok {
			break
		}
		if high*limitStep >= l.capacity {
			return found, nil
		}
		low, high = high, high+max(high/8, 1)
	}
	for low+max(1, l.resolution/limitStep) < high {
		mid := low + (high-low)/2
		ok, err := l.try(mid*limitStep, &found)
		if err != nil {
			return found, err
		}
		if ok {
			high = mid
		} else {
			low = mid
		}
	}
	found.Limit = max(high, 1) * limitStep
	return found, nil
}
