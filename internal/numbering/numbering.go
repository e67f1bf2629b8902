// Package numbering gives values small numbers, in the order in which they first appear.
package numbering

// A Numbering numbers values from 0. The zero Numbering is empty. It is not safe for concurrent use.
type Numbering[T comparable] struct {
	Values  []T // by number
	numbers map[T]uint32
	last    uint32 // the last result: values usually come in runs
}

// Of returns the number of v, which is the next one if v is new.
func (n *Numbering[T]) Of(v T) uint32 {
	if int(n.last) < len(n.Values) && n.Values[n.last] == v {
		return n.last
	}
	number, ok := n.numbers[v]
	if !ok {
		if n.numbers == nil {
			n.numbers = map[T]uint32{}
		}
		number = uint32(len(n.Values))
		n.Values = append(n.Values, v)
		n.numbers[v] = number
	}
	n.last = number
	return number
}
