package trace

import (
	"encoding/binary"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Columns are the events of a recording in about a fifth of the memory of a []Event: 8 to 10 bytes each for recordings of
// PyTorch. They do not change, and may be used by several goroutines. A ColumnsWriter makes them; Trace.Reader reads
// them. The zero value has no events.
type Columns struct {
	chunks  []*chunk // each but the last has chunkEvents events
	first   int      // the index of the first event in chunks
	n       int
	numbers Numbers
}

// Numbers replace the numbers of events by others, which they have as indices. A table that is nil replaces none. The
// others must have an element for each number that occurs.
type Numbers struct {
	Stacks   []StackID
	Streams  []uint32
	Metadata []uint32
	Pools    []uint32
}

// chunkEvents is the number of events of a chunk. Values of one column lie together, in as many bits as their range in
// the chunk needs.
const chunkEvents = 4096

// A chunk has the columns of some events.
type chunk struct {
	columns [numColumns]column
	bytes   []byte
}

// The columns of a chunk.
const (
	columnTime = iota
	columnPtr
	columnSize
	columnStack
	columnStream
	columnMetadata
	columnPool
	columnAction
	numColumns
)

// Len returns the number of events.
func (c *Columns) Len() int {
	if c == nil {
		return 0
	}
	return c.n
}

// Slice returns the events from one index up to another. They share memory with c.
func (c *Columns) Slice(from, to int) *Columns {
	s := *c
	s.first, s.n = c.first+from, to-from
	return &s
}

// Renumbered returns the events of c with other numbers. They share memory with c, whose own numbers are not replaced.
func (c *Columns) Renumbered(n Numbers) *Columns {
	s := *c
	s.numbers = n
	return &s
}

// place returns the chunk of an event, and its index there.
func (c *Columns) place(i int) (*chunk, int) {
	i += c.first
	return c.chunks[i/chunkEvents], i % chunkEvents
}

// At returns an event.
func (c *Columns) At(i int) (e Event) {
	k, at := c.place(i)
	var one [1]Event
	var scratch [1]uint64
	k.read(at, one[:], &c.numbers, scratch[:])
	return one[0]
}

// TimeUS returns the time of an event.
func (c *Columns) TimeUS(i int) int64 {
	k, at := c.place(i)
	return int64(k.value(columnTime, at))
}

// Size returns the size of an event.
func (c *Columns) Size(i int) int64 {
	k, at := c.place(i)
	return int64(k.value(columnSize, at))
}

// Ptr returns the address of an event.
func (c *Columns) Ptr(i int) driver.Pointer {
	k, at := c.place(i)
	return driver.Pointer(k.value(columnPtr, at))
}

// Events returns all events in the usual form.
func (c *Columns) Events() []Event {
	events := make([]Event, c.Len())
	c.read(0, events, make([]uint64, min(len(events), chunkEvents)))
	return events
}

// read sets events to those from an index on.
func (c *Columns) read(from int, events []Event, scratch []uint64) {
	for len(events) > 0 {
		k, at := c.place(from)
		n := min(len(events), chunkEvents-at, len(scratch))
		k.read(at, events[:n], &c.numbers, scratch)
		events = events[n:]
		from += n
	}
}

// read sets events to those from an index on. They must all be in the chunk. The scratch memory has room for one value of
// each event.
func (k *chunk) read(from int, events []Event, n *Numbers, scratch []uint64) {
	v := scratch[:len(events)]
	k.unpack(columnTime, from, v)
	for i, x := range v {
		events[i].TimeUS = int64(x)
	}
	k.unpack(columnPtr, from, v)
	for i, x := range v {
		events[i].Ptr = driver.Pointer(x)
	}
	k.unpack(columnSize, from, v)
	for i, x := range v {
		events[i].Size = int64(x)
	}
	k.unpack(columnStack, from, v)
	for i, x := range v {
		events[i].Stack = number(n.Stacks, x)
	}
	k.unpack(columnStream, from, v)
	for i, x := range v {
		events[i].Stream = number(n.Streams, x)
	}
	k.unpack(columnMetadata, from, v)
	for i, x := range v {
		events[i].Metadata = number(n.Metadata, x)
	}
	k.unpack(columnPool, from, v)
	for i, x := range v {
		events[i].Pool = uint16(number(n.Pools, x))
	}
	k.unpack(columnAction, from, v)
	for i, x := range v {
		events[i].Action = mem.Action(x)
	}
}

// unpack sets v to the values of a column from an index on.
func (k *chunk) unpack(c, from int, v []uint64) {
	x := &k.columns[c]
	if x.width == 0 && x.slope == 0 {
		for i := range v {
			v[i] = x.base
		}
		return
	}
	bit, width, mask := uint(from)*uint(x.width), uint(x.width), uint64(1)<<x.width-1
	b := k.bytes[x.at:]
	for i := range v {
		v[i] = binary.LittleEndian.Uint64(b[bit/8:]) >> (bit % 8) & mask
		bit += width
	}
	switch {
	case x.dictionary > 0:
		dictionary := k.bytes[x.dictionary-1:]
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

// number returns the number that a table has for another one.
func number[T ~uint32](table []T, x uint64) T {
	if table == nil {
		return T(x)
	}
	return table[x]
}

// A column has the values of one field: base + slope*i/2^16 + v, where v is a number of width bits in chunk.bytes, shifted
// left by shift; or the element of a dictionary in chunk.bytes with the number v.
type column struct {
	base, slope  uint64
	at           uint32 // of the numbers, in chunk.bytes
	dictionary   uint32 // its place in chunk.bytes, plus 1; 0 for none
	width, shift uint8
}

// value returns a value of a column.
func (k *chunk) value(c, i int) uint64 {
	x := &k.columns[c]
	if x.width == 0 {
		return x.base + x.slope*uint64(i)>>16
	}
	bit := uint(i) * uint(x.width)
	v := binary.LittleEndian.Uint64(k.bytes[uint(x.at)+bit/8:]) >> (bit % 8) & (1<<x.width - 1)
	if x.dictionary > 0 {
		return binary.LittleEndian.Uint64(k.bytes[uint64(x.dictionary-1)+8*v:])
	}
	return x.base + x.slope*uint64(i)>>16 + v<<x.shift
}

// A Field is a number of an event that Numbers can replace.
type Field uint8

// The fields.
const (
	FieldStack    Field = columnStack
	FieldStream   Field = columnStream
	FieldMetadata Field = columnMetadata
	FieldPool     Field = columnPool
)

// EachNumber calls f for the numbers of a field, which Numbers do not replace, with the index of an event: for the first of
// several successive events with the same number at least.
func (c *Columns) EachNumber(field Field, f func(i int, number uint32)) {
	scratch := make([]uint64, min(c.Len(), chunkEvents))
	for i := 0; i < c.Len(); {
		k, at := c.place(i)
		n := min(c.n-i, chunkEvents-at)
		if k.columns[field].width == 0 {
			f(i, uint32(k.columns[field].base))
			i += n
			continue
		}
		v := scratch[:n]
		k.unpack(int(field), at, v)
		last := ^uint64(0)
		for j, x := range v {
			if x != last {
				f(i+j, uint32(x))
				last = x
			}
		}
		i += n
	}
}
