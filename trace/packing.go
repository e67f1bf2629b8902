package trace

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// pack sets the columns of a chunk. The scratch memory has room for one value of each event.
func (k *chunk) pack(events []Event, scratch *packing) {
	v := scratch.values[:len(events)]
	column := func(c int, value func(e *Event) uint64) {
		for i := range events {
			v[i] = value(&events[i])
		}
		k.columns[c] = scratch.column(v, c == columnTime, c == columnSize)
	}
	scratch.bytes = scratch.bytes[:0]
	column(columnTime, func(e *Event) uint64 { return uint64(e.TimeUS) })
	column(columnPtr, func(e *Event) uint64 { return uint64(e.Ptr) })
	column(columnSize, func(e *Event) uint64 { return uint64(e.Size) })
	column(columnStack, func(e *Event) uint64 { return uint64(e.Stack) })
	column(columnStream, func(e *Event) uint64 { return uint64(e.Stream) })
	column(columnMetadata, func(e *Event) uint64 { return uint64(e.Metadata) })
	column(columnPool, func(e *Event) uint64 { return uint64(e.Pool) })
	column(columnAction, func(e *Event) uint64 { return uint64(e.Action) })
	k.bytes = slices.Clone(scratch.bytes)
}

// A packing is the scratch memory of pack.
type packing struct {
	values [chunkEvents]uint64
	bytes  []byte
	slots  [4 * maxDictionary]dictionarySlot
	used   []uint64 // the values of the dictionary
}

type dictionarySlot struct {
	value uint64
	index uint32 // plus 1; 0 for an empty slot
}

// maxDictionary is the maximum number of values in a dictionary.
const maxDictionary = 256

// column packs values, which it changes. Rising values may have a slope.
func (p *packing) column(v []uint64, rising, repeating bool) column {
	x := column{}
	least, most, low := spread(v)
	if repeating && bits.Len64((most-least)>>low) > 8 && p.index(v) {
		x.dictionary = uint32(len(p.bytes)) + 1
		for _, y := range p.used {
			p.bytes = binary.LittleEndian.AppendUint64(p.bytes, y)
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
	x.at = uint32(len(p.bytes))
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
func (p *packing) add(v []uint64, least uint64, width, shift uint8) {
	word, filled := uint64(0), uint(0)
	for _, x := range v {
		x = (x - least) >> shift
		word |= x << filled
		if filled += uint(width); filled >= 64 {
			p.bytes = binary.LittleEndian.AppendUint64(p.bytes, word)
			filled -= 64
			word = x >> (uint(width) - filled)
		}
	}
	p.bytes = binary.LittleEndian.AppendUint64(p.bytes, word)
	p.bytes = binary.LittleEndian.AppendUint64(p.bytes, 0) // value reads eight bytes from the first of a number
}

// index replaces values by their numbers in p.used. It returns false if there are too many different ones; then nothing is
// replaced.
func (p *packing) index(v []uint64) bool {
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
