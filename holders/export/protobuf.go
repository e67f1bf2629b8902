package export

import "encoding/binary"

// A message is a protobuf message in its wire format: https://protobuf.dev/programming-guides/encoding/. It supports
// what a profile needs: numbers, strings, messages, and packed lists of numbers.
type message []byte

const (
	wireVarint = 0
	wireBytes  = 2
)

func (m *message) tag(field, wire int) { *m = binary.AppendUvarint(*m, uint64(field<<3|wire)) }

// number appends an int64, uint64 or bool field. Zero is the default and is omitted.
func (m *message) number(field int, x int64) {
	if x != 0 {
		m.tag(field, wireVarint)
		*m = binary.AppendUvarint(*m, uint64(x))
	}
}

// numbers appends a repeated field, packed.
func (m *message) numbers(field int, xs ...int64) {
	var packed message
	for _, x := range xs {
		packed = binary.AppendUvarint(packed, uint64(x))
	}
	m.embed(field, packed)
}

// embed appends a message field.
func (m *message) embed(field int, inner message) { m.text(field, string(inner)) }

// text appends a string field, even if the string is empty.
func (m *message) text(field int, s string) {
	m.tag(field, wireBytes)
	*m = binary.AppendUvarint(*m, uint64(len(s)))
	*m = append(*m, s...)
}
