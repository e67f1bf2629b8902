package verify

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/mem/caching"
)

// maxAttempts and maxEvents limit the number of guesses that are tried for one recording, and the number of events that
// they follow.
const (
	maxAttempts = 2000
	maxEvents   = 20_000_000
	minAttempts = 30
)

// farBeyond is the number of entries by which an explanation must lead beyond a difference to be accepted without
// trying others.
const farBeyond = 100

// A branch is an attempt that left the recording, with possible explanations.
type branch struct {
	guess        *guess
	at           int // the position of its difference
	explanations []func(*guess)
	alternatives []func(*guess) // other readings of earlier places, tried last
	better       []*branch      // explanations that led further; the furthest is last
}

// search tries the likeliest guess first. Where the allocator leaves the recording, it tries explanations of that
// difference: a private pool that the file does not name, a garbage collection, a change of settings, or another
// reading of an ambiguous place before it. (Segments may have been freed by a request that found no room, or by an
// earlier call that emptied the cache.) It continues from the explanation that leads furthest, and returns to the
// others if that fails. It makes at least one and at most *attempts attempts, and subtracts them from *attempts.
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
		if first || verdict.further(&best, rec) {
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
			// Several hidden ranges may affect one request.
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
