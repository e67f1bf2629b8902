package packed

import "slices"

// A Sequence is a list of signed numbers. It does not change after the first read, and may then be used by several
// goroutines. The zero value is empty.
type Sequence struct {
	parts []part // all but the last have partLength numbers
	n     int
}

const partLength = 4096

type part struct {
	Column
	bytes []byte
}

// Append adds numbers. The length so far must be a multiple of 4096.
func (s *Sequence) Append(numbers []int64) {
	var p Packer
	v := make([]uint64, min(len(numbers), partLength))
	s.n += len(numbers)
	for len(numbers) > 0 {
		n := min(len(numbers), partLength)
		for i, x := range numbers[:n] {
			v[i] = uint64(x)
		}
		p.Bytes = p.Bytes[:0]
		s.parts = append(s.parts, part{p.Column(v[:n], false, true), nil})
		s.parts[len(s.parts)-1].bytes = slices.Clone(p.Bytes)
		numbers = numbers[n:]
	}
}

// Join appends the numbers of another sequence. The length so far must be a multiple of 4096.
func (s *Sequence) Join(t *Sequence) {
	s.parts = append(s.parts, t.parts...)
	s.n += t.n
}

// Len returns how many numbers there are.
func (s *Sequence) Len() int { return s.n }

// Read sets v to the numbers from an index on, which must be in the sequence.
func (s *Sequence) Read(from int, v []uint64) {
	for len(v) > 0 {
		p, at := &s.parts[from/partLength], from%partLength
		n := min(len(v), partLength-at)
		p.Column.Read(p.bytes, at, v[:n])
		v = v[n:]
		from += n
	}
}
