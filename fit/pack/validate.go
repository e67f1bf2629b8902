package pack

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Validate checks that offsets, one for each buffer, are a packing, and returns its height: the largest offset+size, 0
// for no buffers. It is an error if a buffer's lifetime or size is empty or negative, if an offset is negative, if an
// end is beyond int64, or if two buffers share a unit at one moment; the error names both, by their IDs and indices.
//
// It shares no code with the functions that make packings. It goes through time and keeps the live buffers in the order
// of their offsets. While none overlap, a buffer that begins can only overlap its two neighbors in that order. Validate
// takes O(n log n) for n buffers and keeps no reference to its arguments.
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
			return 0, fmt.Errorf("pack: buffer %q (%d): offset %d with size %d: want both ends in [0, 2^63)", b.ID, i,
				offsets[i], b.Size)
		}
		height = max(height, offsets[i]+b.Size)
		begins[i] = i
	}
	ends, byOffset := slices.Clone(begins), slices.Clone(begins)
	slices.SortFunc(begins, func(x, y int) int { return cmp.Compare(buffers[x].Lower, buffers[y].Lower) })
	slices.SortFunc(ends, func(x, y int) int { return cmp.Compare(buffers[x].Upper, buffers[y].Upper) })
	slices.SortFunc(byOffset, func(x, y int) int {
		return cmp.Or(cmp.Compare(offsets[x], offsets[y]), cmp.Compare(x, y))
	})
	place := make([]int, len(buffers)) // in byOffset
	for at, i := range byOffset {
		place[i] = at
	}

	alive := newPlaces(len(buffers))
	for _, i := range begins {
		for buffers[ends[0]].Upper <= buffers[i].Lower {
			alive.flip(place[ends[0]])
			ends = ends[1:]
		}
		if at := alive.before(place[i]); at >= 0 && offsets[byOffset[at]]+buffers[byOffset[at]].Size > offsets[i] {
			return 0, overlap(buffers, offsets, byOffset[at], i)
		}
		if at := alive.after(place[i]); at >= 0 && offsets[i]+buffers[i].Size > offsets[byOffset[at]] {
			return 0, overlap(buffers, offsets, i, byOffset[at])
		}
		alive.flip(place[i])
	}
	return height, nil
}

// places is a set of numbers below a bound. The lowest level has one bit for each number, and each further level one
// bit for each nonzero word of the level below.
type places [][]uint64

func newPlaces(n int) (p places) {
	for n > 1 || p == nil {
		n = n/64 + 1
		p = append(p, make([]uint64, n))
	}
	return p
}

// flip adds a number that is not in the set, or removes one that is.
func (p places) flip(i int) {
	for _, level := range p {
		was := level[i/64]
		level[i/64] ^= 1 << (i % 64)
		if was != 0 && level[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// before returns the greatest number below i, or -1.
func (p places) before(i int) int {
	for up, level := range p {
		if word := level[i/64] & (1<<(i%64) - 1); word != 0 {
			i = i&^63 + bits.Len64(word) - 1
			for up--; up >= 0; up-- {
				i = i*64 + bits.Len64(p[up][i]) - 1
			}
			return i
		}
		i /= 64
	}
	return -1
}

// after returns the least number above i, or -1.
func (p places) after(i int) int {
	for up, level := range p {
		if word := level[i/64] &^ (2<<(i%64) - 1); word != 0 {
			i = i&^63 + bits.TrailingZeros64(word)
			for up--; up >= 0; up-- {
				i = i*64 + bits.TrailingZeros64(p[up][i])
			}
			return i
		}
		i /= 64
	}
	return -1
}

func overlap(buffers []Buffer, offsets []int64, low, high int) error {
	a, b := buffers[low], buffers[high]
	return fmt.Errorf("pack: buffers %q (%d) and %q (%d) overlap: [%d,%d) and [%d,%d), both alive during [%d,%d)",
		a.ID, low, b.ID, high, offsets[low], offsets[low]+a.Size, offsets[high], offsets[high]+b.Size,
		max(a.Lower, b.Lower), min(a.Upper, b.Upper))
}

// check returns an error for an invalid buffer.
func (b Buffer) check() error {
	if b.Lower >= b.Upper {
		return fmt.Errorf("lifetime [%d,%d) is empty", b.Lower, b.Upper)
	}
	if b.Size <= 0 {
		return fmt.Errorf("size %d: want a positive one", b.Size)
	}
	return nil
}
