package pack

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Validate says whether offsets, one for each buffer, are a packing, and returns its height: the largest offset+size, 0
// for no buffers. It is an error if a buffer's lifetime or size is empty or negative, if an offset is negative, if an end
// is beyond int64, or if two buffers share a unit at one moment; the error names both, by their IDs and indices.
//
// It shares no code with what makes packings. It goes through time and keeps the buffers alive in the order of their
// offsets: as long as none overlap, one that begins can only overlap its two neighbors there. O(n log n) comparisons for
// n buffers; it keeps nothing of its arguments.
func Validate(buffers []Buffer, offsets []int64) (height int64, err error) {
	if len(offsets) != len(buffers) {
		return 0, fmt.Errorf("pack: %d offsets for %d buffers", len(offsets), len(buffers))
	}
	begins := make([]int, len(buffers))
	for i, b := range buffers {
		if err := b.check(); err != nil {
			return 0, fmt.Errorf("pack: buffer %q (%d): %w", b.ID, i, err)
		}
		if offsets[i] < 0 || offsets[i] > math.MaxInt64-b.Size {
			return 0, fmt.Errorf("pack: buffer %q (%d): offset %d with size %d: want both ends in [0, 2^63)", b.ID, i, offsets[i], b.Size)
		}
		height = max(height, offsets[i]+b.Size)
		begins[i] = i
	}
	ends := slices.Clone(begins)
	slices.SortFunc(begins, func(x, y int) int { return cmp.Compare(buffers[x].Lower, buffers[y].Lower) })
	slices.SortFunc(ends, func(x, y int) int { return cmp.Compare(buffers[x].Upper, buffers[y].Upper) })

	var alive []int // by offset
	find := func(i int) int {
		at, _ := slices.BinarySearchFunc(alive, offsets[i], func(j int, offset int64) int { return cmp.Compare(offsets[j], offset) })
		return at
	}
	for _, i := range begins {
		for buffers[ends[0]].Upper <= buffers[i].Lower {
			at := find(ends[0])
			alive = slices.Delete(alive, at, at+1)
			ends = ends[1:]
		}
		at := find(i)
		if at > 0 && offsets[alive[at-1]]+buffers[alive[at-1]].Size > offsets[i] {
			return 0, overlap(buffers, offsets, alive[at-1], i)
		}
		if at < len(alive) && offsets[i]+buffers[i].Size > offsets[alive[at]] {
			return 0, overlap(buffers, offsets, i, alive[at])
		}
		alive = slices.Insert(alive, at, i)
	}
	return height, nil
}

func overlap(buffers []Buffer, offsets []int64, low, high int) error {
	a, b := buffers[low], buffers[high]
	return fmt.Errorf("pack: buffers %q (%d) and %q (%d) overlap: [%d,%d) and [%d,%d), both alive during [%d,%d)",
		a.ID, low, b.ID, high, offsets[low], offsets[low]+a.Size, offsets[high], offsets[high]+b.Size,
		max(a.Lower, b.Lower), min(a.Upper, b.Upper))
}

// check says what is wrong with a buffer in itself.
func (b Buffer) check() error {
	if b.Lower >= b.Upper {
		return fmt.Errorf("lifetime [%d,%d) is empty", b.Lower, b.Upper)
	}
	if b.Size <= 0 {
		return fmt.Errorf("size %d: want a positive one", b.Size)
	}
	return nil
}
