package pack

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Bound returns the largest sum of the sizes of buffers that are alive at one moment: no packing is lower. It is 0 for
// no buffers, and math.MaxInt64 if the sum is larger than that. Bound panics if the lifetime or the size of a buffer is
// empty or negative. It takes O(n log n).
func Bound(buffers []Buffer) int64 {
	for i, b := range buffers {
		if err := b.check(); err != nil {
			panic(fmt.Sprintf("pack: Bound of buffer %q (%d): %v", b.ID, i, err))
		}
	}
	begins := slices.Clone(buffers)
	ends := slices.Clone(buffers)
	slices.SortFunc(begins, func(x, y Buffer) int { return cmp.Compare(x.Lower, y.Lower) })
	slices.SortFunc(ends, func(x, y Buffer) int { return cmp.Compare(x.Upper, y.Upper) })
	var alive, most int64
	for _, b := range begins {
		for ends[0].Upper <= b.Lower {
			alive -= ends[0].Size
			ends = ends[1:]
		}
		if alive > math.MaxInt64-b.Size {
			return math.MaxInt64
		}
		alive += b.Size
		most = max(most, alive)
	}
	return most
}
