package trace

import "encoding/binary"

// A StackSet collects stacks in a table, each stack and each frame once. The zero value is empty. Not safe for
// concurrent use.
type StackSet struct {
	table  *Stacks
	frames map[Frame]uint32
	known  map[string]StackID // by the numbers of the frames
}

// NewStackSet returns a set that adds to table. It finds the existing frames of the table, but not its stacks: adding
// an existing stack duplicates it. A nil table is created on demand.
func NewStackSet(table *Stacks) *StackSet {
	x := &StackSet{table: table}
	if table != nil {
		x.frames = make(map[Frame]uint32, len(table.Frames))
		for i, f := range table.Frames {
			x.frames[f] = uint32(i)
		}
	}
	return x
}

// Table returns the table, or nil if none was given and nothing was added.
func (x *StackSet) Table() *Stacks { return x.table }

// Add returns the number of a stack, given with the innermost frame first. Without frames it returns 0, no stack.
func (x *StackSet) Add(frames []Frame) StackID {
	if len(frames) == 0 {
		return 0
	}
	if x.table == nil {
		x.table = &Stacks{}
	}
	if x.frames == nil {
		x.frames = map[Frame]uint32{}
	}
	refs := make([]uint32, len(frames))
	var key []byte
	for i, f := range frames {
		n, ok := x.frames[f]
		if !ok {
			n = uint32(len(x.table.Frames))
			x.table.Frames = append(x.table.Frames, f)
			x.frames[f] = n
		}
		refs[i] = n
		key = binary.LittleEndian.AppendUint32(key, n)
	}
	id, ok := x.known[string(key)]
	if !ok {
		if x.known == nil {
			x.known = map[string]StackID{}
		}
		id = x.table.Add(refs)
		x.known[string(key)] = id
	}
	return id
}
