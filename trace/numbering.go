package trace

import "github.com/ashlar-go/ashlar/driver"

// A numbering gives values numbers in the order in which they first appear.
type numbering[T comparable] struct {
	values  []T
	numbers map[T]uint32
	last    uint32 // the last result: values usually come in runs
}

func (n *numbering[T]) of(v T) uint32 {
	if int(n.last) < len(n.values) && n.values[n.last] == v {
		return n.last
	}
	number, ok := n.numbers[v]
	if !ok {
		if n.numbers == nil {
			n.numbers = map[T]uint32{}
		}
		number = uint32(len(n.values))
		n.values = append(n.values, v)
		n.numbers[v] = number
	}
	n.last = number
	return number
}

// streamNumbers numbers streams. Drivers use small consecutive handles, so most are found without a search, even if
// streams alternate.
type streamNumbers struct {
	numbering[uint64]
	first [64]uint32 // numbers of the first streams, plus 1
}

func (n *streamNumbers) of(s driver.StreamID) uint32 {
	if int(s) >= len(n.first) {
		return n.numbering.of(uint64(s))
	}
	if n.first[s] == 0 {
		n.first[s] = n.numbering.of(uint64(s)) + 1
	}
	return n.first[s] - 1
}
