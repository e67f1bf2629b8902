package verify

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/mem/caching"
)

// maxAttempts and maxEvents bound how many guesses about one recording are tried, and how many events they follow.
const (
	maxAttempts = 2000
	maxEvents   = 20_000_000
	minAttempts = 30
)

// farBeyond is how many entries an explanation has to lead beyond a difference to be taken without looking at others.
const farBeyond = 100

// A branch is an attempt that left the recording, with what would explain that.
type branch struct {
	guess        *guess
	at           int // how far it came
	explanations []func(*guess)
	alternatives []func(*guess) // other readings of earlier places, tried last
	better       []*branch      // explanations that led further, the furthest last
}

// search tries the likeliest guess first. Where the allocator does not follow the recording, it tries what would
// explain that very difference: a private pool that the file does not name, a collection of garbage, a change of
// settings; or another reading of an ambiguous place before it: segments may have been given back by a request that
// found no room, or by a call that emptied the cache before it. It goes on from what leads furthest, and comes back to
// the others if that leads nowhere. It makes at most *attempts, at least one, and counts them off.
func search(rec *recording, cfg caching.Config, attempts *int) (best Verdict, g *guess, err error) {
	left := max(1, min(*attempts, max(minAttempts, maxEvents/len(rec.t.Events))))
	defer func(before int) { *attempts -= before - left }(left)
	first := true
	attempt := func(g *guess) (*branch, error) {
		left--
		v, err := newVerifier(rec, cfg, g)
		if err != nil {
			return nil, err
		}
		verdict, err := v.run()
		if err != nil {
			return nil, err
		}
		verdict.Limit = cfg.Limit
		b := &branch{guess: g}
		if verdict.Difference != nil {
			b.at = verdict.Difference.position(rec)
			b.explanations, b.alternatives = v.explanations, v.alternatives()
		}
		if first || verdict.Difference == nil || verdict.progress() > best.progress() {
			best, first = verdict, false
		}
		return b, nil
	}
	root, err := attempt(newGuess())
	if err != nil {
		return best, nil, err
	}
	stack := []*branch{root}
	for left > 0 && len(stack) > 0 && best.Difference != nil {
		b := stack[len(stack)-1]
		for far := false; !far && len(b.explanations) > 0 && left > 0; {
			g := b.guess.clone()
			b.explanations[0](g)
			b.explanations = b.explanations[1:]
			next, err := attempt(g)
			if err != nil {
				return best, nil, err
			}
			if best.Difference == nil {
				return best, g, nil
			}
			// Several hidden grounds may have stood in the way of one request.
			if next.at > b.at || next.at == b.at && len(next.guess.hidden) > len(b.guess.hidden) {
				b.better = append(b.better, next)
			}
			far = next.at > b.at+farBeyond
		}
		if len(b.better) == 0 && len(b.alternatives) > 0 {
			b.explanations, b.alternatives = b.alternatives, nil
			continue
		}
		if len(b.better) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		slices.SortStableFunc(b.better, func(x, y *branch) int { return cmp.Compare(x.at, y.at) })
		n := len(b.better) - 1
		stack = append(stack, b.better[n])
		b.better = b.better[:n]
	}
	return best, root.guess, nil
}
