package host

import (
	"github.com/ashlar-go/ashlar/dtype"
)

// An entry is an element to be sorted: a number whose order is that of the elements, and where it is in its line.
type entry struct {
	key uint64
	at  int
}

// A ranking says how elements of a type make keys: of an unsigned integer's bits, of a signed one's with the sign
// turned, of a float's with all bits turned if it is negative. Zeros have one key, and NaNs the greatest.
type ranking struct {
	size     int
	sign     uint64 // the bit, of signed types
	infinity uint64 // the bits, of floats
	all      uint64 // every bit
	invert   uint64 // what keys are turned by: all bits, in descending order
}

func rankOf(d dtype.DType, descending bool) (r ranking, ok bool) {
	if d.IsComplex() {
		return r, false
	}
	r.size = d.Size()
	r.all = ^uint64(0) >> (64 - 8*r.size)
	if descending {
		r.invert = r.all
	}
	sign := r.all ^ r.all>>1
	switch {
	case d == dtype.Bool || d.Kind() == dtype.KindUnsigned:
		return r, true
	case d.Kind() == dtype.KindSigned:
		r.sign = sign
		return r, true
	}
	r.sign = sign
	switch d {
	case dtype.Float16:
		r.infinity = 0x7c00
	case dtype.BFloat16:
		r.infinity = 0x7f80
	case dtype.Float32:
		r.infinity = 0x7f800000
	case dtype.Float64:
		r.infinity = 0x7ff << 52
	default:
		return r, false
	}
	return r, true
}

// keys makes entries of elements, the first of which is at the given place.
func (r *ranking) keys(to []entry, x []byte, at int) {
	switch r.size {
	case 1:
		keysOf(r, to, viewOf[uint8](x), at)
	case 2:
		keysOf(r, to, viewOf[uint16](x), at)
	case 4:
		keysOf(r, to, viewOf[uint32](x), at)
	case 8:
		keysOf(r, to, viewOf[uint64](x), at)
	}
}

func keysOf[T uint8 | uint16 | uint32 | uint64](r *ranking, to []entry, x []T, at int) {
	to = to[:len(x)]
	for i, v := range x {
		k := uint64(v)
		if r.infinity == 0 {
			k ^= r.sign
		} else {
			k = r.float(k)
		}
		to[i] = entry{k ^ r.invert, at + i}
	}
}

func (r *ranking) float(k uint64) uint64 {
	switch magnitude := k &^ r.sign; {
	case magnitude > r.infinity:
		return r.all
	case magnitude == 0:
		return r.sign
	}
	if k&r.sign != 0 {
		return k ^ r.all
	}
	return k | r.sign
}

// radix sorts a by keys of size bytes, stably, and returns a or b, which is as long: the one that holds the result.
func radix(a, b []entry, size int) []entry {
	const few = 32
	if len(a) <= few {
		for i := 1; i < len(a); i++ {
			e, j := a[i], i
			for ; j > 0 && e.key < a[j-1].key; j-- {
				a[j] = a[j-1]
			}
			a[j] = e
		}
		return a
	}
	var counts [8][256]int
	for _, e := range a {
		for digit := range size {
			counts[digit][byte(e.key>>(8*digit))]++
		}
	}
	for digit := range size {
		next, shift := &counts[digit], 8*digit
		if next[byte(a[0].key>>shift)] == len(a) {
			continue // all have the same
		}
		at := 0
		for i, n := range next {
			next[i] = at
			at += n
		}
		for _, e := range a {
			d := byte(e.key >> shift)
			b[next[d]] = e
			next[d]++
		}
		a, b = b, a
	}
	return a
}
