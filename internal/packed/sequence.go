package packed

import "slices"

// A Sequence is a list of signed numbers. It does not change after the first read, and may then be used by several
// goroutines. The zero value is empty.
type Sequence struct {
	parts []part // all but the last have PartLength numbers
	n     int
}

// PartLength is the number of numbers that are packed together.
const PartLength = 4096

type part struct {
	Column
	bytes []byte
}

// Append adds numbers. The length so far must be a multiple of PartLength.
func (s *Sequence) Append(numbers []int64) {
	var p Packer
	v := make([]uint64, min(len(numbers), PartLength))
	s.n += len(numbers)
	for len(numbers) > 0 {
		n := min(len(numbers), PartLength)
		s.parts = append(s.parts, p.part(numbers[:n], v))
		numbers = numbers[n:]
	}
}

// part packs the numbers of a part. The scratch memory has room for them.
func (p *Packer) part(numbers []int64, scratch []uint64) part {
	v := scratch[:len(numbers)]
	for i, x := range numbers {
		v[i] = uint64(x)
	}
	p.Bytes = p.Bytes[:0]
	c := p.Column(v, false, true)
	return part{c, slices.Clone(p.Bytes)}
}

// Change lets a function change the numbers of the part with an index.
func (s *Sequence) Change(number int, change func(numbers []int64)) {
	first := number * PartLength
	v := make([]uint64, min(s.n-first, PartLength))
	s.Read(first, v)
	numbers := make([]int64, len(v))
	for i, x := range v {
		numbers[i] = int64(x)
	}
	change(numbers)
	var p Packer
	s.parts[number] = p.part(numbers, v)
}

// Len returns how many numbers there are.
func (s *Sequence) Len() int { return s.n }

// Read sets v to the numbers from an index on, which must be in the sequence.
func (s *Sequence) Read(from int, v []uint64) {
	for len(v) > 0 {
		p, at := &s.parts[from/PartLength], from%PartLength
		n := min(len(v), PartLength-at)
		p.Column.Read(p.bytes, at, v[:n])
		v = v[n:]
		from += n
	}
}
