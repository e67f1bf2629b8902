package planned

import (
	"cmp"
	"maps"
	"slices"
)

// A repeat says that the slots in [from+period, from+period+run) equal those one period before.
type repeat struct {
	from, period, run int
}

const (
	gram       = 8  // number of consecutive slots that must repeat for their distance to be a candidate
	candidates = 64 // number of examined distances, the most frequent ones
)

// repeating finds the repeat that covers the most slots, and the shortest period among equals. It covers at least two
// whole periods and half of the slots, and the slots after it are at most a period or an eighth of the slots.
func repeating(slots []Slot) (best repeat, ok bool) {
	n := len(slots)
	if n < 2 {
		return repeat{}, false
	}
	distances := map[int]int{}
	last := make(map[uint64]int, n)
	width := min(gram, max(1, n/4))
	for i := 0; i+width <= n; i++ {
		h := uint64(0)
		for _, s := range slots[i : i+width] {
			h = mix(mix(h, s.key()), s.Offset)
		}
		if before, seen := last[h]; seen {
			distances[i-before]++
		}
		last[h] = i
	}
	periods := slices.SortedFunc(maps.Keys(distances), func(x, y int) int {
		return cmp.Or(distances[y]-distances[x], x-y)
	})
	for _, period := range periods[:min(candidates, len(periods))] {
		for i := 0; i+period < n; i++ {
			run := 0
			for i+period+run < n && same(slots[i+run], slots[i+period+run]) {
				run++
			}
			r := repeat{i, period, run}
			covered, most := period+run, best.period+best.run
			if run >= period && 2*covered >= n && n-i-covered <= max(period, n/8) &&
				(covered > most || covered == most && period < best.period) {
				best, ok = r, true
			}
			i += run
		}
	}
	return best, ok
}

func same(x, y Slot) bool { return x.key() == y.key() && x.Offset == y.Offset }
