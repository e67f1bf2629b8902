package snapshot

import (
	"cmp"
	"slices"
)

// runs holds a number for each folded entry. Most entries have the number of the entry before, so only changes are
// stored. The number identifies a compile context or a set of unknown keys; 0 means none.
type runs []run

// A run is the number of the entries from an index in importer.events up to the next run.
type run struct {
	first  int
	number uint32
}

// costRun is the cost of a run in bytes, for Limits, until it is in a Snapshot.
const costRun = 16 + 48

// add records the number of the next entry and returns the cost in bytes.
func (t *runs) add(index int, number uint32) (cost int64) {
	if n := len(*t); n == 0 && number == 0 || n > 0 && (*t)[n-1].number == number {
		return 0
	}
	*t = append(*t, run{index, number})
	return costRun
}

// each calls f for the first of n folded entries from an index on, and at each change of the number. The offset is the
// number of entries before.
func (t runs) each(index, n int, f func(offset int, number uint32)) {
	i, exact := slices.BinarySearchFunc(t, index, func(x run, index int) int { return cmp.Compare(x.first, index) })
	if !exact {
		i-- // the run before it continues
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
