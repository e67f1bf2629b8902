// Package sizebins maps sizes to bins, as TLSF does (Masmano and others, 2004), and finds the next bin that is not
// empty in constant time. A size is a number of units: each size below 64 has a bin of its own, and each power of two
// from there on has 32 bins.
package sizebins

import "math/bits"

// NumBins is the number of bins in a Set.
const NumBins = 64 * numWords

const numWords = 20

// Of returns the bin of a size. It never decreases as the size grows. The last bin takes all larger sizes.
func Of(units uint64) int {
	e := bits.Len64(units|32) - 6 // 0 for sizes below 64; without a branch, which would be predicted badly
	return min(e<<5+int(units>>(e&63)), NumBins-1)
}

// A Set holds the numbers of the bins that are not empty. The zero Set is empty.
type Set struct {
	words   [numWords]uint64 // bit b%64 of word b/64: bin b
	summary uint64           // bit w: words[w] is not zero
}

// Add adds bin b.
func (s *Set) Add(b int) {
	s.words[b>>6] |= 1 << (b & 63)
	s.summary |= 1 << (b >> 6)
}

// Remove removes bin b.
func (s *Set) Remove(b int) {
	if s.words[b>>6] &^= 1 << (b & 63); s.words[b>>6] == 0 {
		s.summary &^= 1 << (b >> 6)
	}
}

// Has reports whether the set holds bin b.
func (s *Set) Has(b int) bool { return s.words[b>>6]>>(b&63)&1 != 0 }

// Empty reports whether the set is empty.
func (s *Set) Empty() bool { return s.summary == 0 }

// Next returns the first bin in the set from b on, or NumBins.
func (s *Set) Next(b int) int {
	if b >= NumBins {
		return NumBins
	}
	w := b >> 6
	if word := s.words[w] >> (b & 63); word != 0 {
		return b + bits.TrailingZeros64(word)
	}
	rest := s.summary >> (w + 1)
	if rest == 0 {
		return NumBins
	}
	w += 1 + bits.TrailingZeros64(rest)
	return w<<6 + bits.TrailingZeros64(s.words[w])
}

// Prev returns the last bin in the set up to b, or -1.
func (s *Set) Prev(b int) int {
	for ; b >= 0; b = b&^63 - 1 {
		if word := s.words[b>>6] << (63 - b&63); word != 0 {
			return b - bits.LeadingZeros64(word)
		}
	}
	return -1
}
