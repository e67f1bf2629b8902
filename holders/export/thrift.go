package export

import "encoding/binary"

// A thrift is a value in Thrift's compact protocol, which Parquet's metadata has:
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. Fields of a struct are appended in
// the order of their numbers.
type thrift struct {
	out  []byte
	last int // number of the last field
}

const (
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

// field begins a field.
func (x *thrift) field(number, kind int) {
	x.out = append(x.out, byte((number-x.last)<<4|kind)) // numbers here are at most 15 apart
	x.last = number
}

func (x *thrift) i32(number int, v int32) {
	x.field(number, thriftI32)
	x.out = binary.AppendVarint(x.out, int64(v)) // zigzag, as in Thrift
}

func (x *thrift) i64(number int, v int64) {
	x.field(number, thriftI64)
	x.out = binary.AppendVarint(x.out, v)
}

func (x *thrift) text(number int, s string) {
	x.field(number, thriftBinary)
	x.string(s)
}

func (x *thrift) string(s string) {
	x.out = binary.AppendUvarint(x.out, uint64(len(s)))
	x.out = append(x.out, s...)
}

// embed appends a struct as a field.
func (x *thrift) embed(number int, inner *thrift) {
	x.field(number, thriftStruct)
	x.end(inner)
}

// end appends the fields of a struct and their end.
func (x *thrift) end(inner *thrift) { x.out = append(append(x.out, inner.out...), 0) }

// list begins a list of a number of elements, which are appended after it.
func (x *thrift) list(number, kind, n int) {
	x.field(number, thriftList)
	if n < 15 {
		x.out = append(x.out, byte(n<<4|kind))
		return
	}
	x.out = append(x.out, byte(15<<4|kind))
	x.out = binary.AppendUvarint(x.out, uint64(n))
}

// structs appends a list of structs as a field.
func (x *thrift) structs(number int, all []*thrift) {
	x.list(number, thriftStruct, len(all))
	for _, s := range all {
		x.end(s)
	}
}
