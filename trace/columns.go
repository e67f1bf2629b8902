package trace

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/packed"
	"github.com/ashlar-go/ashlar/mem"
)

// Columns are the events of a recording in about a fifth of the memory of a []Event: 8 to 10 bytes each for recordings
// of PyTorch. They do not change, and may be used by several goroutines. A ColumnsWriter makes them; Trace.Reader reads
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

// Have reports whether the tables have all numbers of an event.
func (n *Numbers) Have(e *Event) bool {
	return (n.Stacks == nil || int(e.Stack) < len(n.Stacks)) && (n.Streams == nil || int(e.Stream) < len(n.Streams)) &&
		(n.Metadata == nil || int(e.Metadata) < len(n.Metadata)) && (n.Pools == nil || int(e.Pool) < len(n.Pools))
}

// Replace replaces the numbers of an event.
func (n *Numbers) Replace(e *Event) {
	e.Stack = number(n.Stacks, uint64(e.Stack))
	e.Stream = number(n.Streams, uint64(e.Stream))
	e.Metadata = number(n.Metadata, uint64(e.Metadata))
	e.Pool = uint16(number(n.Pools, uint64(e.Pool)))
}

// chunkEvents is the number of events of a chunk. Values of one column lie together, in as many bits as their range in
// the chunk needs.
const chunkEvents = 4096

// A chunk has the columns of some events.
type chunk struct {
	columns [numFields]packed.Column
	bytes   []byte
}

// A Field is a field of an event, which is a column of a chunk.
type Field uint8

// The fields.
const (
	FieldTime Field = iota
	FieldPtr
	FieldSize
	FieldStack
	FieldStream
	FieldMetadata
	FieldPool
	FieldAction
	numFields
)

// A fieldSet is a set of fields.
type fieldSet [numFields]bool

// allFields has all fields.
var allFields = fieldSet{true, true, true, true, true, true, true, true}

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
func (c *Columns) At(i int) Event {
	k, at := c.place(i)
	b, n := k.bytes, &c.numbers
	return Event{
		TimeUS:   int64(k.columns[FieldTime].At(b, at)),
		Ptr:      driver.Pointer(k.columns[FieldPtr].At(b, at)),
		Size:     int64(k.columns[FieldSize].At(b, at)),
		Stack:    number(n.Stacks, k.columns[FieldStack].At(b, at)),
		Stream:   number(n.Streams, k.columns[FieldStream].At(b, at)),
		Metadata: number(n.Metadata, k.columns[FieldMetadata].At(b, at)),
		Pool:     uint16(number(n.Pools, k.columns[FieldPool].At(b, at))),
		Action:   mem.Action(k.columns[FieldAction].At(b, at)),
	}
}

// TimeUS returns the time of an event.
func (c *Columns) TimeUS(i int) int64 {
	k, at := c.place(i)
	return int64(k.columns[FieldTime].At(k.bytes, at))
}

// Size returns the size of an event.
func (c *Columns) Size(i int) int64 {
	k, at := c.place(i)
	return int64(k.columns[FieldSize].At(k.bytes, at))
}

// Ptr returns the address of an event.
func (c *Columns) Ptr(i int) driver.Pointer {
	k, at := c.place(i)
	return driver.Pointer(k.columns[FieldPtr].At(k.bytes, at))
}

// Events returns all events in the usual form.
func (c *Columns) Events() []Event {
	events := make([]Event, c.Len())
	c.read(0, events, &allFields, make([]uint64, min(len(events), chunkEvents)))
	return events
}

// read sets events to those from an index on.
func (c *Columns) read(from int, events []Event, fields *fieldSet, scratch []uint64) {
	for len(events) > 0 {
		k, at := c.place(from)
		n := min(len(events), chunkEvents-at, len(scratch))
		k.read(at, events[:n], &c.numbers, fields, scratch)
		events = events[n:]
		from += n
	}
}

// read sets the fields of events to those from an index on. They must all be in the chunk. The scratch memory has room
// for one value of each event.
func (k *chunk) read(from int, events []Event, n *Numbers, fields *fieldSet, scratch []uint64) {
	v := scratch[:len(events)]
	for f, wanted := range fields {
		if wanted {
			k.columns[f].Read(k.bytes, from, v)
			set(Field(f), events, v, n)
		}
	}
}

// set sets a field of events.
func set(f Field, events []Event, v []uint64, n *Numbers) {
	events = events[:len(v)]
	switch f {
	case FieldTime:
		for i, x := range v {
			events[i].TimeUS = int64(x)
		}
	case FieldPtr:
		for i, x := range v {
			events[i].Ptr = driver.Pointer(x)
		}
	case FieldSize:
		for i, x := range v {
			events[i].Size = int64(x)
		}
	case FieldStack:
		for i, x := range v {
			events[i].Stack = number(n.Stacks, x)
		}
	case FieldStream:
		for i, x := range v {
			events[i].Stream = number(n.Streams, x)
		}
	case FieldMetadata:
		for i, x := range v {
			events[i].Metadata = number(n.Metadata, x)
		}
	case FieldPool:
		for i, x := range v {
			events[i].Pool = uint16(number(n.Pools, x))
		}
	case FieldAction:
		for i, x := range v {
			events[i].Action = mem.Action(x)
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

// pack sets the columns of a chunk. The scratch memory has room for one value of each event.
func (k *chunk) pack(events []Event, scratch *packing) {
	v := scratch.values[:len(events)]
	p := &scratch.packer
	column := func(c Field, value func(e *Event) uint64) {
		for i := range events {
			v[i] = value(&events[i])
		}
		k.columns[c] = p.Column(v, c == FieldTime, c == FieldSize)
	}
	p.Bytes = p.Bytes[:0]
	column(FieldTime, func(e *Event) uint64 { return uint64(e.TimeUS) })
	column(FieldPtr, func(e *Event) uint64 { return uint64(e.Ptr) })
	column(FieldSize, func(e *Event) uint64 { return uint64(e.Size) })
	column(FieldStack, func(e *Event) uint64 { return uint64(e.Stack) })
	column(FieldStream, func(e *Event) uint64 { return uint64(e.Stream) })
	column(FieldMetadata, func(e *Event) uint64 { return uint64(e.Metadata) })
	column(FieldPool, func(e *Event) uint64 { return uint64(e.Pool) })
	column(FieldAction, func(e *Event) uint64 { return uint64(e.Action) })
	k.bytes = slices.Clone(p.Bytes)
}

// A packing is the scratch memory of pack.
type packing struct {
	values [chunkEvents]uint64
	packer packed.Packer
}

// each calls f for the values of a column in order, some at a time, with the index of the first.
func (c *Columns) each(column Field, f func(first int, values []uint64)) {
	scratch := make([]uint64, min(c.Len(), chunkEvents))
	for i := 0; i < c.Len(); {
		k, at := c.place(i)
		v := scratch[:min(c.n-i, chunkEvents-at)]
		k.columns[column].Read(k.bytes, at, v)
		f(i, v)
		i += len(v)
	}
}

// find returns the indices of the events with one of some actions. Chunks that cannot have any are not read.
func (c *Columns) find(wanted []mem.Action) (found []int32) {
	var table [256]bool
	for _, a := range wanted {
		table[a] = true
	}
	v := make([]uint64, min(c.Len(), chunkEvents))
	for i := 0; i < c.Len(); {
		k, at := c.place(i)
		n := min(c.n-i, chunkEvents-at)
		actions := &k.columns[FieldAction]
		least, most := actions.Range()
		if slices.ContainsFunc(wanted, func(a mem.Action) bool { return least <= int64(a) && int64(a) <= most }) {
			actions.Read(k.bytes, at, v[:n])
			for j, a := range v[:n] {
				if table[uint8(a)] {
					found = append(found, int32(i+j))
				}
			}
		}
		i += n
	}
	return found
}

// EachNumber calls f for the numbers of a field that Numbers can replace, as they are without, with the index of an
// event: for the first of several successive events with the same number at least.
func (c *Columns) EachNumber(field Field, f func(i int, number uint32)) {
	c.each(field, func(first int, values []uint64) {
		last := ^uint64(0)
		for j, x := range values {
			if x != last {
				f(first+j, uint32(x))
				last = x
			}
		}
	})
}
