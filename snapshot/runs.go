package snapshot

import (
	"cmp"
	"slices"
)

// runs holds a number for each of the folded entries, where nearly always it is that of the entry before: only
// the changes are kept. The numbers are those of compile contexts, or of sets of unknown keys; 0 is none.
type runs []run

// A run says which number the entries from an index in importer.events on have.
type run struct {
	first  int
	number uint32
}

// costRun is what a run costs until it is in a Snapshot, in bytes, for Limits.
const costRun = 16 + 48

// add notes the number of the entry that comes next, and returns what that costs.
func (t *runs) add(index int, number uint32) (cost int64) {
	if n := len(*t); n == 0 && number == 0 || n > 0 && (*t)[n-1].number == number {
		return 0
	}
	*t = append(*t, run{index, number})
	return costRun
}

// each calls f with the numbers of n folded entries from an index on: for the first, and where they change, with how
// many entries are before.
func (t runs) each(index, n int, f func(offset int, number uint32)) {
	i, exact := slices.BinarySearchFunc(t, index, func(x run, index int) int { return cmp.Compare(x.first, index) })
	if !exact {
		i-- // the one before it holds on
	}
	if i < 0 {
		f(0, 0)
		i = 0
	}
	for ; i < len(t) && t[i].first < index+n; i++ {
		f(max(t[i].first-index, 0), t[i].number)
	}
}

// at returns the number of a folded entry.
func (t runs) at(index int) (number uint32) {
	t.each(index, 1, func(_ int, n uint32) { number = n })
	return number
}
