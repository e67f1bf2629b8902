package snapshot

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// frames holds every distinct frame of the file once.
type frames struct {
	list   []trace.Frame
	ids    map[frameID]uint32
	keys   map[uint32]uint32 // the set of unknown keys of each frame that has some
	byNode map[uint32]uint32 // the numbers of frames that were not folded, by the number of the dict
}

type frameID struct {
	name, filename uint32 // numbers of strings
	keys           uint32
	line           int64
}

// exact returns the list without spare capacity.
func (t *frames) exact() []trace.Frame { return slices.Clip(t.list) }

// frame reads a stack frame and returns its number. While folding, it refuses a frame that holds containers.
func (im *importer) frame(doc *pickle.Document, pairs []pickle.Value, folding bool) (uint32, *problem) {
	var id frameID
	var name, filename pickle.Value
	var seen uint32
	for i := 0; i+1 < len(pairs); i += 2 {
		f, v := im.meanings.field(doc, pairs[i]), pairs[i+1]
		seen |= 1 << f
		switch f {
		case fieldName:
			name = v
		case fieldFilename:
			filename = v
		case fieldLine:
			line, bad := bits(doc, "line", v)
			if bad != nil {
				return 0, bad
			}
			id.line = int64(line)
		}
	}
	if seen&knownInFrames != knownInFrames {
		for _, key := range [...]string{"name", "filename", "line"} {
			if seen&(1<<fieldNames[key]) == 0 {
				return 0, &problem{field: key, reason: "missing"}
			}
		}
	}
	var ok bool
	if id.name, ok = name.StrID(); !ok {
		return 0, wrongType("name", "a str", name)
	}
	if id.filename, ok = filename.StrID(); !ok {
		return 0, wrongType("filename", "a str", filename)
	}
	if seen&^knownInFrames != 0 {
		id.keys = im.frameKeys.number(doc, &im.meanings, pairs, allFields&^knownInFrames)
		if folding && im.frameKeys.nested(id.keys) {
			return 0, &problem{reason: "a container in a key that is not known"}
		}
		im.frameKeys.has(id.keys)
	}
	n, ok := im.frames.ids[id]
	if !ok {
		if im.frames.ids == nil {
			im.frames.ids = map[frameID]uint32{}
		}
		n = uint32(len(im.frames.list))
		f := trace.Frame{Line: id.line}
		f.Name, _ = doc.Str(name)
		f.Filename, _ = doc.Str(filename)
		im.frames.list = append(im.frames.list, f)
		im.frames.ids[id] = n
		if id.keys > 0 {
			if im.frames.keys == nil {
				im.frames.keys = map[uint32]uint32{}
			}
			im.frames.keys[n] = id.keys
		}
		doc.Charge(costFrame)
	}
	return n, nil
}

// stacks holds every distinct stack of the file once.
type stacks struct {
	table *trace.Stacks   // allocated separately, so that the snapshot does not keep the rest alive
	ids   []trace.StackID // by the provisional number, if known
	known []bool
	equal map[string]trace.StackID // keyed by the frames' numbers as bytes
	refs  int
}

// stackOf returns the stack with a provisional number: the node of its list plus 1. An *Error names the frame as its
// place; the caller adds where the stack is.
func (im *importer) stackOf(provisional trace.StackID) (trace.StackID, error) {
	if provisional == 0 {
		return 0, nil
	}
	if im.stacks.ids == nil {
		im.stacks.ids, im.stacks.known = make([]trace.StackID, im.doc.Nodes()+1), make([]bool, im.doc.Nodes()+1)
	}
	if im.stacks.known[provisional] {
		return im.stacks.ids[provisional], nil
	}
	id, err := im.newStack(im.doc.ItemsOf(uint32(provisional) - 1))
	if err != nil {
		return 0, err
	}
	im.stacks.ids[provisional], im.stacks.known[provisional] = id, true
	return id, nil
}

// newStack stores the stack of a list that was not read before.
func (im *importer) newStack(items []pickle.Value) (trace.StackID, error) {
	if len(items) == 0 {
		return 0, nil
	}
	refs := make([]uint32, len(items))
	key := make([]byte, 0, 4*len(items))
	for i, item := range items {
		n, err := im.frameOf(item)
		if err != nil {
			return 0, within(fmt.Sprintf("frame %d", i), err)
		}
		refs[i] = n
		key = binary.LittleEndian.AppendUint32(key, n)
	}
	if id, ok := im.stacks.equal[string(key)]; ok {
		return id, nil
	}
	if im.stacks.refs += len(refs); im.stacks.refs > math.MaxUint32 {
		return 0, &Error{Field: "frames", Reason: "the stacks of the file have more than 2^32 frames in all"}
	}
	if im.stacks.equal == nil {
		im.stacks.equal = map[string]trace.StackID{}
	}
	id := im.stacks.table.Add(refs)
	im.stacks.equal[string(key)] = id
	return id, nil
}

// frameOf returns the number of a frame, which is an item of a stack.
func (im *importer) frameOf(item pickle.Value) (uint32, error) {
	if handle, folded := im.doc.Folded(item); folded && handle&frameHandle != 0 {
		return handle &^ frameHandle, nil
	}
	pairs, err := im.dict("", item)
	if err != nil {
		return 0, err
	}
	if n, ok := im.frames.byNode[item.Node()]; ok {
		return n, nil
	}
	n, bad := im.frame(im.doc, pairs, false)
	if bad != nil {
		return 0, bad.at("")
	}
	if im.frames.byNode == nil {
		im.frames.byNode = map[uint32]uint32{}
	}
	im.frames.byNode[item.Node()] = n
	return n, nil
}
