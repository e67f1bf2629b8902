package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/pickle"
)

// maxSkips is the maximum number of kinds of unknown parts that are listed; all others are counted as one.
const maxSkips = 1000

const otherSkips = "other keys and actions"

// skips counts unknown parts.
type skips map[Skip]int // by What and Dropped

// add counts an unknown part that is kept.
func (s skips) add(what string, n int) { s.count(Skip{What: what}, n) }

// drop counts an unknown part that is not kept.
func (s skips) drop(what string, n int) { s.count(Skip{What: what, Dropped: true}, n) }

func (s skips) count(what Skip, n int) {
	if n == 0 {
		return
	}
	if _, ok := s[what]; !ok && len(s) >= maxSkips {
		what.What = otherSkips
	}
	s[what] += n
}

// key counts an unknown key of n dicts of a kind: "", "trace entry ", "segment ".
func (s skips) key(doc *pickle.Document, of string, key pickle.Value, n int) {
	s.add(of+keyName(doc, key), n)
}

// keyName names a key of a dict.
func keyName(doc *pickle.Document, key pickle.Value) string {
	if name, ok := doc.Str(key); ok {
		return "key " + quote(name)
	}
	return "keys that are not str"
}

// list returns the counts, sorted.
func (s skips) list() []Skip {
	var all []Skip
	for what, n := range s {
		what.Count = n
		all = append(all, what)
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
