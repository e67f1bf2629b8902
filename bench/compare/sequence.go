package main

import (
	"math"
	"math/bits"
)

// A sequence is splitmix64: the state grows by a constant, and each number is the state, mixed. (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", 2014.) native/sequence.hpp is the same in C++, number for number.
type sequence uint64

func (s *sequence) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below gives a number in [0, n): the upper half of the product with n.
func (s *sequence) below(n int) int {
	hi, _ := bits.Mul64(s.next(), uint64(n))
	return int(hi)
}

const (
	smallest = 512    // bytes
	octaves  = 26 - 9 // from 512 B to 64 MiB
	steps    = 24     // bits of an octave's logarithm that count
)

// roots are 2^(1/2), 2^(1/4), ...: square roots are rounded correctly everywhere, so these are the same in C++.
var roots = func() (r [steps]float64) {
	x := 2.0
	for i := range r {
		x = math.Sqrt(x)
		r[i] = x
	}
	return r
}()

// size gives a number of bytes in [512 B, 64 MiB) whose logarithm is uniform. Only multiplications and square roots are
// used, which IEEE 754 defines to the last bit; pow and exp2 differ from one library to the next.
func (s *sequence) size() int64 {
	octave, fraction := bits.Mul64(s.next(), octaves)
	x := float64(uint64(smallest) << octave)
	for i, root := range roots {
		if fraction>>(63-i)&1 == 1 {
			x *= root
		}
	}
	return int64(x)
}

// A replacement frees block Index and allocates one of Size bytes in its place.
type replacement struct {
	index int
	size  int64
}

// replacements gives the history of a measurement: first every block once, in order, then n replacements at random. The
// checksum is FNV-1a over all numbers, each as 64 bits.
func replacements(seed uint64, live, n int) (history []replacement, checksum uint64) {
	s := sequence(seed)
	history = make([]replacement, 0, live+n)
	checksum = 0xcbf29ce484222325
	add := func(x uint64) { checksum = (checksum ^ x) * 0x100000001b3 }
	for i := range live + n {
		index := i
		if i >= live {
			index = s.below(live)
		}
		r := replacement{index, s.size()}
		history = append(history, r)
		add(uint64(r.index))
		add(uint64(r.size))
	}
	return history, checksum
}
