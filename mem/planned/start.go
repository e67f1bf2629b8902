package planned

import (
	"cmp"
	"fmt"
	"slices"
)

// A Start says which blocks of one size stay, such as weights, the state of an optimizer and workspaces, of the first
// ones that a program allocates.
type Start struct {
	Size int64 // bytes requested
	// Runs are the numbers of blocks in a row that stay, and that do not, alternately, in the order of the requests.
	// All but the first are positive. There are at most 255 of them.
	Runs []int
}

const (
	maxFirst = 1 << 16 // requests that are recorded for Start
	maxRuns  = 255
)

// firstBlocks records the first requests of a program. The zero value is ready.
type firstBlocks struct {
	sizes []int64
	freed []bool
	until int  // position before which blocks that stay were allocated; 0 if it is not known
	ended bool // nothing is recorded any more
}

func (f *firstBlocks) alloc(position int, size int64) {
	if !f.ended && position == len(f.sizes) && position < maxFirst {
		f.sizes, f.freed = append(f.sizes, size), append(f.freed, false)
	}
}

func (f *firstBlocks) free(position int) {
	if !f.ended && position < len(f.freed) {
		f.freed[position] = true
	}
}

// mark notes the position at which the program had allocated what stays.
func (f *firstBlocks) mark(position int) {
	if !f.ended {
		f.until = position
	}
}

// end ends the recording.
func (f *firstBlocks) end() { f.ended = true }

// lose ends the recording, and drops it unless it was complete: frees of its blocks are missed from now on.
func (f *firstBlocks) lose() {
	if !f.ended {
		*f = firstBlocks{ended: true}
	}
}

// starts returns the requests of the sizes of which some blocks stay.
func (f *firstBlocks) starts() (list []Start) {
	last := map[int64]int{} // position of the last block of a size that stays
	for i, size := range f.sizes[:min(f.until, len(f.sizes))] {
		if !f.freed[i] {
			last[size] = i
		}
	}
	runs := map[int64][]int{}
	for i, size := range f.sizes {
		if end, ok := last[size]; ok && i <= end {
			runs[size] = addRun(runs[size], !f.freed[i])
		}
	}
	for size, r := range runs {
		list = append(list, Start{size, r[:min(len(r), maxRuns)]})
	}
	slices.SortFunc(list, func(x, y Start) int { return cmp.Compare(x.Size, y.Size) })
	return list
}

// addRun adds a block to Start.Runs.
func addRun(runs []int, stays bool) []int {
	if len(runs) == 0 {
		runs = []int{0}
	}
	if stays != (len(runs)%2 == 1) {
		runs = append(runs, 0)
	}
	runs[len(runs)-1]++
	return runs
}

// starts are what is left of Start in a run, by size.
type starts map[int64]*runsLeft

type runsLeft struct {
	runs  []int
	stays bool // the first of them
}

func startsOf(list []Start) starts {
	left := starts{}
	for _, s := range list {
		left[s.Size] = &runsLeft{slices.Clone(s.Runs), true}
	}
	return left
}

// next returns whether the next block of a size stays, if that is known.
func (s starts) next(size int64) (stays, known bool) {
	r := s[size]
	if r == nil {
		return false, false
	}
	for r.runs[0] == 0 {
		r.runs, r.stays = r.runs[1:], !r.stays
	}
	stays = r.stays
	if r.runs[0]--; r.runs[0] == 0 && len(r.runs) == 1 {
		delete(s, size)
	}
	return stays, true
}

// checkStart returns an error for an invalid list.
func checkStart(list []Start) error {
	for i, s := range list {
		if s.Size < 1 || s.Size > maxRequest || i > 0 && s.Size <= list[i-1].Size {
			return fmt.Errorf("planned: start %d is of %d bytes: want 1 to %d, ascending", i, s.Size, int64(maxRequest))
		}
		if len(s.Runs) == 0 || len(s.Runs) > maxRuns {
			return fmt.Errorf("planned: the start of %d bytes has %d runs, want 1 to %d", s.Size, len(s.Runs), maxRuns)
		}
		for k, n := range s.Runs {
			if n < 0 || n > maxFirst || n == 0 && (k > 0 || len(s.Runs) == 1) {
				return fmt.Errorf("planned: run %d of the start of %d bytes has %d blocks, want 1 to %d", k, s.Size, n,
					maxFirst)
			}
		}
	}
	return nil
}
