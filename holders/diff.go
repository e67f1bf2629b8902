package holders

import (
	"cmp"
	"slices"
	"strings"
)

// A Change is a group of blocks that two views have, or one of them.
type Change struct {
	Label  string   // as in Holder.Label, with the lines of the second view
	Values []string // one for each key

	Before, After             int64 // requested bytes in the first and in the second view
	BlocksBefore, BlocksAfter int
}

// Bytes is by how much the second view has more.
func (c *Change) Bytes() int64 { return c.After - c.Before }

// Diff compares the holders of two views, usually of two recordings of one program. The largest changes are first, and
// their bytes add up to the difference between the views. A line that moved within its file, because lines were
// inserted above it, is still the same line; so is one of a file in another directory.
func Diff(before, after *View, keys ...Key) []Change {
	if len(keys) == 0 {
		keys = []Key{ByLine}
	}
	moves := movesOf(before.history.Frames, after.history.Frames)
	var changes []Change
	index := map[string]int{}
	at := func(values []string) *Change {
		key := strings.Join(values, "\x00")
		n, ok := index[key]
		if !ok {
			n = len(changes)
			index[key] = n
			changes = append(changes, Change{Label: strings.Join(values, ", "), Values: values})
		}
		return &changes[n]
	}
	for _, x := range before.By(keys...) {
		for i, k := range keys {
			x.Values[i] = moves.value(k, x.Values[i])
		}
		c := at(x.Values)
		c.Before += x.Bytes
		c.BlocksBefore += x.Blocks
	}
	for _, x := range after.By(keys...) {
		c := at(x.Values)
		c.After += x.Bytes
		c.BlocksAfter += x.Blocks
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(max(b.Bytes(), -b.Bytes()), max(a.Bytes(), -a.Bytes())),
			cmp.Compare(b.After, a.After), strings.Compare(a.Label, b.Label))
	})
	return changes
}

// A StepChange is a step that two recordings have.
type StepChange struct {
	Number                  int
	PeakBefore, PeakAfter   int64 // requested bytes at the peak of the step
	FinalBefore, FinalAfter int64 // and at its end
}

// DiffSteps compares the steps of two recordings that have the same number. Partial steps are left out.
func DiffSteps(before, after *History) []StepChange {
	first := map[int]Step{}
	for _, s := range before.Steps().List {
		if !s.Partial {
			first[s.Number] = s
		}
	}
	var changes []StepChange
	for _, s := range after.Steps().List {
		if old, ok := first[s.Number]; ok && !s.Partial {
			changes = append(changes, StepChange{
				Number:      s.Number,
				PeakBefore:  before.ActiveBytes(before.peak(old.First, old.Last)),
				PeakAfter:   after.ActiveBytes(after.peak(s.First, s.Last)),
				FinalBefore: before.ActiveBytes(old.Last), FinalAfter: after.ActiveBytes(s.Last),
			})
		}
	}
	return changes
}
