package main

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// The expected numbers of this file come from a program in Python, with integers of any length and its own math.sqrt,
// and, for the first test, from the table of splitmix64 at rosettacode.org.
func TestSequenceIsSplitmix64(t *testing.T) {
	s := sequence(1234567)
	for i, want := range []uint64{
		6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
	} {
		if got := s.next(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	s := sequence(7)
	var got []int64
	for range 8 {
		got = append(got, s.size())
	}
	if want := []int64{50608, 623, 20841149, 492517, 105839, 9676, 127064, 24445}; !slices.Equal(got, want) {
		t.Errorf("sizes %d, want %d", got, want)
	}
}

// The logarithm is uniform: each of 17 octaves gets its share, and within an octave the median is at its square root.
func TestSizesAreLogUniform(t *testing.T) {
	const n = 17 * 20_000
	s := sequence(3)
	var inOctave, lower [octaves]int
	for range n {
		size := s.size()
		if size < smallest || size >= 64<<20 {
			t.Fatalf("size %d", size)
		}
		octave := int(math.Log2(float64(size))) - 9
		inOctave[octave]++
		if float64(size) < math.Sqrt2*float64(int64(smallest)<<octave) {
			lower[octave]++
		}
	}
	for octave, count := range inOctave {
		if count < 19_000 || count > 21_000 || lower[octave] < count*48/100 || lower[octave] > count*52/100 {
			t.Errorf("octave %d: %d of %d sizes, want a 17th; %d in its lower half, want a half", octave, count, n, lower[octave])
		}
	}
}

// native/sequence.hpp gives the first of these checksums, too; every run compares such checksums of both.
func TestReplacements(t *testing.T) {
	for _, c := range []struct {
		seed     uint64
		live, n  int
		checksum string
		peak     int64 // of the bytes that are live together
	}{
		{1, 16, 64, "af558b448eaf9c40", 218341928},
		{1, 4096, 4 * 4096, "965780acb354cbc5", 24462023994},
	} {
		history, sum := replacements(c.seed, c.live, c.n)
		if got := fmt.Sprintf("%016x", sum); got != c.checksum || len(history) != c.live+c.n {
			t.Errorf("seed %d: checksum %s of %d replacements, want %s of %d", c.seed, got, len(history), c.checksum, c.live+c.n)
		}
		sizes := make([]int64, c.live)
		var now, peak int64
		for _, r := range history {
			now += r.size - sizes[r.index]
			sizes[r.index] = r.size
			peak = max(peak, now)
		}
		if peak != c.peak {
			t.Errorf("seed %d: at most %d bytes live, want %d", c.seed, peak, c.peak)
		}
	}
}
