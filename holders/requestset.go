package holders

import (
	"math/bits"
	"sort"
)

// A requestSet is a set of blocks, in a bit for each block of the recording.
type requestSet struct {
	words []uint64
	ranks []int32 // elements before each rankWords words
	n     int     // elements
}

const rankWords = 8

// newRequestSet returns an empty set for a number of blocks.
func newRequestSet(blocks int) *requestSet { return &requestSet{words: make([]uint64, (blocks+63)/64)} }

// add adds a block, which must be larger than those in the set.
func (s *requestSet) add(block int) {
	for len(s.ranks)*rankWords <= block/64 {
		s.ranks = append(s.ranks, int32(s.n))
	}
	s.words[block/64] |= 1 << (block % 64)
	s.n++
}

func (s *requestSet) has(block int) bool { return s.words[block/64]>>(block%64)&1 != 0 }

// at returns the element with an index, in ascending order.
func (s *requestSet) at(i int) (block int) {
	group := sort.Search(len(s.ranks), func(k int) bool { return int(s.ranks[k]) > i }) - 1
	i -= int(s.ranks[group])
	word := group * rankWords
	for i >= bits.OnesCount64(s.words[word]) {
		i -= bits.OnesCount64(s.words[word])
		word++
	}
	w := s.words[word]
	for range i {
		w &= w - 1
	}
	return word*64 + bits.TrailingZeros64(w)
}
