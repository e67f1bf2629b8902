package snapshot

import (
	"fmt"
	"slices"
	"strings"
)

// maxSkips is how many kinds of skipped things are named; the others are counted together.
const maxSkips = 1000

const otherSkips = "other keys and actions"

// skips counts what was skipped.
type skips map[string]int

func (s skips) add(what string, n int) {
	if _, ok := s[what]; !ok && len(s) >= maxSkips {
		what = otherSkips
	}
	s[what] += n
}

// key counts an unknown key of a kind of dict: "", "trace entry ", "segment ".
func (s skips) key(of, key string) { s.add(of+"key "+quote(key), 1) }

// list returns the counts, sorted.
func (s skips) list() []Skip {
	var all []Skip
	for what, n := range s {
		all = append(all, Skip{What: what, Count: n})
	}
	slices.SortFunc(all, func(a, b Skip) int { return strings.Compare(a.What, b.What) })
	return all
}

// quote shows a string from the file, cut if it is long.
func quote(s string) string {
	const longest = 80
	if len(s) > longest {
		return fmt.Sprintf("%q...", s[:longest])
	}
	return fmt.Sprintf("%q", s)
}
