package stats

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/mem"
)

const maxPinning = 5

// MostStranded sorts blocks that pin free memory by the memory that they strand, the most first, and then by address.
// It returns the first five, as many as an error names.
func MostStranded(all []mem.PinningBlock) []mem.PinningBlock {
	slices.SortFunc(all, func(x, y mem.PinningBlock) int {
		return cmp.Or(cmp.Compare(y.Stranded, x.Stranded), cmp.Compare(x.Ptr, y.Ptr))
	})
	return all[:min(len(all), maxPinning)]
}
