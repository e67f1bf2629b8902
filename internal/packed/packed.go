// Package packed holds numbers in as many bits as their range needs.
package packed

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// A Column has numbers of a range: base + slope*i/2^16 + v, where v is a number of width bits in some bytes, shifted
// left by shift; or the element of a dictionary in the bytes with the number v.
type Column struct {
	base, slope  uint64
	at           uint32 // of the numbers, in the bytes
	dictionary   uint32 // its place in the bytes, plus 1; 0 for none
	width, shift uint8
}

// At returns a number of a column in the bytes of its Packer.
func (x *Column) At(b []byte, i int) uint64 {
	if x.width == 0 {
		return x.base + x.slope*uint64(i)>>16
	}
	bit := uint(i) * uint(x.width)
	v := binary.LittleEndian.Uint64(b[uint(x.at)+bit/8:]) >> (bit % 8) & (1<<x.width - 1)
	if x.dictionary > 0 {
		return binary.LittleEndian.Uint64(b[uint64(x.dictionary-1)+8*v:])
	}
	return x.base + x.slope*uint64(i)>>16 + v<<x.shift
}

// Range returns bounds of the numbers, which are signed. They may lie further apart than the numbers.
func (x *Column) Range() (least, most int64) {
	if x.dictionary > 0 || x.slope > 0 || x.width > longestNumber {
		return math.MinInt64, math.MaxInt64
	}
	least, most = int64(x.base), int64(x.base+(1<<x.width-1)<<x.shift)
	if most < least {
		most = math.MaxInt64
	}
	return least, most
}

// Read sets v to the numbers from an index on.
func (x *Column) Read(b []byte, from int, v []uint64) {
	if x.width == 0 && x.slope == 0 {
		for i := range v {
			v[i] = x.base
		}
		return
	}
	bit, width, mask := uint(from)*uint(x.width), uint(x.width), uint64(1)<<x.width-1
	numbers := b[x.at:]
	for i := range v {
		v[i] = binary.LittleEndian.Uint64(numbers[bit/8:]) >> (bit % 8) & mask
		bit += width
	}
	switch {
	case x.dictionary > 0:
		dictionary := b[x.dictionary-1:]
		for i := range v {
			v[i] = binary.LittleEndian.Uint64(dictionary[8*v[i]:])
		}
	case x.slope > 0:
		for i := range v {
			v[i] = x.base + x.slope*uint64(from+i)>>16 + v[i]<<x.shift
		}
	default:
		for i := range v {
			v[i] = x.base + v[i]<<x.shift
		}
	}
}

// A Packer packs columns. The zero value is ready.
type Packer struct {
	Bytes []byte // of the columns so far
	slots [4 * maxDictionary]dictionarySlot
	used  []uint64 // the values of the dictionary
}

type dictionarySlot struct {
	value uint64
	index uint32 // plus 1; 0 for an empty slot
}

// maxDictionary is the maximum number of values in a dictionary.
const maxDictionary = 256

// Column packs values, which it changes. Rising values may have a slope.
func (p *Packer) Column(v []uint64, rising, repeating bool) Column {
	x := Column{}
	least, most, low := spread(v)
	if repeating && bits.Len64((most-least)>>low) > 8 && p.index(v) {
		x.dictionary = uint32(len(p.Bytes)) + 1
		for _, y := range p.used {
			p.Bytes = binary.LittleEndian.AppendUint64(p.Bytes, y)
		}
		least, most, low = 0, uint64(len(p.used)-1), 0
	} else if n := len(v); rising && n > 1 && int64(v[n-1]) > int64(v[0]) && (v[n-1]-v[0])>>40 == 0 {
		slope := (v[n-1] - v[0]) << 16 / uint64(n-1)
		for i := range v {
			v[i] -= slope * uint64(i) >> 16
		}
		if l, m, s := spread(v); m-l < most-least {
			x.slope, least, most, low = slope, l, m, s
		} else {
			for i := range v {
				v[i] += slope * uint64(i) >> 16
			}
		}
	}
	if x.base = least; x.dictionary > 0 {
		x.base = 0
	}
	x.shift = uint8(low)
	x.width = uint8(bits.Len64((most - least) >> low))
	if x.width > longestNumber {
		x.width = 64
	}
	x.at = uint32(len(p.Bytes))
	if x.width > 0 || x.slope > 0 {
		p.add(v, least, x.width, x.shift)
	}
	return x
}

// longestNumber is the largest width below 64: eight bytes then have all of a number that begins in the first of them.
const longestNumber = 57

// spread returns the least and the greatest of signed values, and the number of low bits in which none differs from the
// least.
func spread(v []uint64) (least, most uint64, low int) {
	a, b := int64(math.MaxInt64), int64(math.MinInt64)
	for _, x := range v {
		a, b = min(a, int64(x)), max(b, int64(x))
	}
	differ := uint64(0)
	for _, x := range v {
		differ |= x - uint64(a)
	}
	if differ == 0 {
		return uint64(a), uint64(b), 0
	}
	return uint64(a), uint64(b), bits.TrailingZeros64(differ)
}

// add appends numbers of a width.
func (p *Packer) add(v []uint64, least uint64, width, shift uint8) {
	word, filled := uint64(0), uint(0)
	for _, x := range v {
		x = (x - least) >> shift
		word |= x << filled
		if filled += uint(width); filled >= 64 {
			p.Bytes = binary.LittleEndian.AppendUint64(p.Bytes, word)
			filled -= 64
			word = x >> (uint(width) - filled)
		}
	}
	p.Bytes = binary.LittleEndian.AppendUint64(p.Bytes, word)
	p.Bytes = binary.LittleEndian.AppendUint64(p.Bytes, 0) // At reads eight bytes from the first of a number
}

// index replaces values by their numbers in p.used. It returns false if there are too many different ones; then nothing
// is replaced.
func (p *Packer) index(v []uint64) bool {
	p.slots = [len(p.slots)]dictionarySlot{}
	p.used = p.used[:0]
	slot := func(x uint64) *dictionarySlot {
		const mask = len(p.slots) - 1
		for i := int(x * 0x9e3779b97f4a7c15 >> 54); ; i++ {
			if s := &p.slots[i&mask]; s.index == 0 || s.value == x {
				return s
			}
		}
	}
	for _, x := range v {
		s := slot(x)
		if s.index > 0 {
			continue
		}
		if len(p.used) == maxDictionary {
			return false
		}
		p.used = append(p.used, x)
		*s = dictionarySlot{x, uint32(len(p.used))}
	}
	for i, x := range v {
		v[i] = uint64(slot(x).index - 1)
	}
	return true
}
