package replay

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem/arena"
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
	s, err := ParseSpec(spec, w.Recorded)
	if err != nil {
		return 0, err
	}
	if capacity, err = w.capacity(capacity); err != nil {
		return 0, err
	}
	limit, _, err := smallestLimit(w, &s, capacity, newMeter(nil, 1))
	return limit, err
}

// smallestLimit is SmallestLimit, and also returns the moves under that limit.
func smallestLimit(w *Work, s *Spec, capacity int64, m *meter) (limit int64, moves *arena.MoveStats, err error) {
	runs := 0
	run := func(limit int64) (simulationResult, error) {
		r := simulation{work: w, spec: s, limit: limit, capacity: capacity}
		res, err := r.do()
		if err != nil {
			err = fmt.Errorf("%s with a limit of %d bytes: %w", s.Text, limit, err)
		}
		if err == nil && res.NumOOMs == 0 {
			moves = res.moves // the last run that completes has the smallest limit
		}
		if runs++; runs <= smallestRuns {
			m.step()
		}
		return res, err
	}
	defer func() {
		for ; runs < smallestRuns; runs++ {
			m.step()
		}
	}()
	free, err := run(0)
	if err != nil {
		return 0, nil, err
	}
	if free.NumOOMs > 0 {
		return -1, nil, nil
	}
	steps := func(bytes int64) int64 { return (bytes + limitStep - 1) / limitStep }
	low := steps(min(free.RequestedPeak, free.AllocatedPeak)) - 1 // cannot complete
	high := steps(max(free.ReservedPeak, free.RequestedPeak, 1))
	for {
		// The reserved peak without a limit is enough, unless the allocator behaves differently with a limit.
		res, err := run(high * limitStep)
		if err != nil {
			return 0, nil, err
		}
		if res.NumOOMs == 0 {
			break
		}
		if high*limitStep >= capacity {
			return -1, nil, nil
		}
		low, high = high, high+max(high/8, 1)
	}
	for low+1 < high {
		mid := low + (high-low)/2
		res, err := run(mid * limitStep)
		if err != nil {
			return 0, nil, err
		}
		if res.NumOOMs == 0 {
			high = mid
		} else {
			low = mid
		}
	}
	return max(high, 1) * limitStep, moves, nil
}
