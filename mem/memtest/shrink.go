package memtest

import (
	"fmt"
	"slices"
)

// maxRuns bounds the work of shrink.
const maxRuns = 3000

// shrink leaves out operations as long as the history still fails, in any way, then simplifies sizes and streams. It
// returns a report of the shortest history found.
func shrink(h history, run func(history) *failure, f *failure) string {
	from := len(h)
	s := shrinker{best: h, failure: f, try: run}
	s.accept(h, f)
	// Halves first, then quarters, down to single operations; repeated while anything can be left out.
	for part := max(1, len(s.best)/2); ; {
		before := len(s.best)
		for at := 0; at < len(s.best) && s.runs < maxRuns; {
			end := min(len(s.best), at+part)
			if !s.attempt(slices.Delete(slices.Clone(s.best), at, end)) {
				at = end
			}
		}
		if part == 1 && len(s.best) == before || s.runs >= maxRuns {
			break
		}
		part = max(1, min(part/2, len(s.best)/2))
	}
	s.simplify()
	return fmt.Sprintf("%d of %d operations are left after %d runs:\n\n%s\n%s", len(s.best), from, s.runs,
		s.failure.script, s.failure.reason)
}

type shrinker struct {
	best    history
	failure *failure
	try     func(history) *failure
	runs    int
}

// accept makes a failing history the best so far, up to the failure.
func (s *shrinker) accept(h history, f *failure) {
	s.best, s.failure = h[:min(len(h), f.at+1)], f
}

// attempt accepts h if it fails, too.
func (s *shrinker) attempt(h history) bool {
	s.runs++
	f := s.try(h)
	if f != nil {
		s.accept(h, f)
	}
	return f != nil
}

// simplify tries rounder sizes and lower streams, one operation at a time.
func (s *shrinker) simplify() {
	for i := 0; i < len(s.best); i++ {
		for _, size := range []int64{512, 1 << 20, 2 << 20, 10 << 20} {
			smaller := i < len(s.best) && s.best[i].kind == opAlloc && size < s.best[i].size
			if smaller && s.replace(i, func(o *op) { o.size = size }) {
				break
			}
		}
		for stream := 0; i < len(s.best) && stream < s.best[i].stream; stream++ {
			if s.replace(i, func(o *op) { o.stream = stream }) {
				break
			}
		}
	}
}

// replace attempts the history with one operation changed.
func (s *shrinker) replace(i int, change func(*op)) bool {
	if i >= len(s.best) || s.runs >= maxRuns {
		return false
	}
	h := slices.Clone(s.best)
	change(&h[i])
	return s.attempt(h)
}
