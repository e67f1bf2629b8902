package replay

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem/arena"
)

const limitStep = 1 << 20 // bytes: limits are searched to this

// smallestRuns is about how many runs a search takes, for progress.
const smallestRuns = 14

// SmallestLimit returns the smallest limit, a multiple of 1 MiB, under which the allocator that spec names (see
// ParseSpec) has room for every request of w, on a simulated device of capacity bytes (0 means a script's, or else an H200's); or -1 if the
// device is too small without any limit.
//
// It is found by halving the range between what is requested and allocated at the peak, below which nothing can complete, and
// what is reserved without a limit. Completion is not quite monotonic: under pressure an allocator gives memory back and then
// puts blocks elsewhere, so that now and then a run fails under a limit slightly above one under which it completes.
// What is returned completes, and a limit 1 MiB below it does not; somewhere further below another might.
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

// smallestLimit is SmallestLimit, and tells what was moved under that.
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
		// What is reserved without a limit is enough, unless having a limit changes what the allocator does.
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
