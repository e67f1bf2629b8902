package snapshot

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// A problem is an error in a field of a dict. The caller that knows the place adds it.
type problem struct {
	field  string
	reason string
	got    pickle.Kind
}

func (p *problem) at(place string) error {
	reason := p.reason
	if p.got != pickle.Invalid {
		reason += ", got " + p.got.String()
	}
	return &Error{Place: place, Field: p.field, Reason: reason}
}

func wrongType(field, want string, v pickle.Value) *problem {
	return &problem{field: field, reason: "want " + want, got: v.Kind()}
}

// An entry is a trace entry that was read by itself, before the rest of the file is known. The numbers in event are
// provisional: Stack is the node of the list of frames plus 1, Metadata the number of the string plus 1, Stream and
// Pool index the importer's tables, with Pool 0 for none.
type entry struct {
	event   trace.Event
	action  pickle.Value
	unknown bool   // mem has no such action
	context uint32 // the number of the compile_context plus 1, or 0
	keys    uint32 // the number of the set of unknown keys
}

const entryRequired = 1<<fieldAction | 1<<fieldSize | 1<<fieldStream

// entry reads a trace entry. An annotation in another form than that of a trace.Recorder or of PyTorch counts as
// unknown.
func (im *importer) entry(doc *pickle.Document, pairs []pickle.Value, e *entry) *problem {
	*e = entry{}
	bad := im.knownEntry(doc, pairs, e)
	if bad == nil {
		return nil
	}
	for i := len(pairs) - 2; i >= 0; i -= 2 {
		if name := pairs[i+1]; im.meanings.field(doc, pairs[i]) == fieldAction && name.Kind() == pickle.Str {
			if action, _ := im.meanings.action(doc, name); action.IsAnnotation() {
				*e = entry{action: name, unknown: true}
				return nil
			}
			break
		}
	}
	return bad
}

func (im *importer) knownEntry(doc *pickle.Document, pairs []pickle.Value, e *entry) (bad *problem) {
	var seen uint32
	var addr uint64
	var free int64
	unknown := uint32(allFields &^ knownInEntries)
	for i := 0; i+1 < len(pairs); i += 2 {
		f, v := im.meanings.field(doc, pairs[i]), pairs[i+1]
		seen |= 1 << f
		switch f {
		case fieldAction:
			if v.Kind() != pickle.Str {
				return wrongType("action", "a str", v)
			}
			e.action = v
			action, known := im.meanings.action(doc, v)
			e.event.Action, e.unknown = action, !known
		case fieldAddr:
			addr, bad = bits(doc, "addr", v)
		case fieldDeviceFree:
			free, bad = size(doc, "device_free", v)
		case fieldSize:
			e.event.Size, bad = size(doc, "size", v)
		case fieldStream:
			var handle uint64
			handle, bad = bits(doc, "stream", v)
			known := len(im.streams.Values)
			e.event.Stream = im.streams.Of(handle)
			doc.Charge(int64(len(im.streams.Values)-known) * costStream)
		case fieldTime:
			e.event.TimeUS, bad = integer(doc, "time_us", v)
		case fieldMetadata:
			id, ok := v.StrID()
			switch {
			case ok:
				e.event.Metadata = id + 1
			case v.Kind() != pickle.None:
				return wrongType("user_metadata", "a str", v)
			}
		case fieldCompileContext:
			id, ok := v.StrID()
			e.context = 0
			if unknown &^= 1 << fieldCompileContext; ok {
				e.context = id + 1
			} else if v.Kind() != pickle.None {
				unknown |= 1 << fieldCompileContext
			}
		case fieldFrames:
			e.event.Stack, bad = framesOf(doc, v)
		case fieldPool:
			e.event.Pool, bad = im.poolNumber(doc, v)
		}
		if bad != nil {
			return bad
		}
	}
	if e.unknown {
		return nil
	}
	if missing := entryRequired &^ seen; missing != 0 {
		for _, name := range []string{"action", "size", "stream"} {
			if missing&(1<<fieldNames[name]) != 0 {
				return &problem{field: name, reason: "missing"}
			}
		}
	}
	switch hasAddr, hasFree := seen&(1<<fieldAddr) != 0, seen&(1<<fieldDeviceFree) != 0; {
	case e.event.Action == mem.ActionOOM && hasFree:
		e.event.Ptr = driver.Pointer(free)
		unknown |= 1 << fieldAddr
	case hasAddr:
		e.event.Ptr = driver.Pointer(addr)
		unknown |= 1 << fieldDeviceFree
	case e.event.Action == mem.ActionOOM:
		return &problem{field: "device_free", reason: "missing"}
	case e.event.Action != mem.ActionSnapshot:
		return &problem{field: "addr", reason: "missing"}
	}
	if seen&unknown != 0 {
		e.keys = im.entryKeys.number(doc, &im.meanings, pairs, unknown)
	}
	return nil
}

// framesOf returns the provisional number of a stack: the number of the list that holds it. The list may be incomplete.
func framesOf(_ *pickle.Document, v pickle.Value) (trace.StackID, *problem) {
	switch v.Kind() {
	case pickle.List, pickle.Tuple:
		return trace.StackID(v.Node() + 1), nil
	case pickle.None:
		return 0, nil
	}
	return 0, wrongType("frames", "a list", v)
}

// poolNumber returns the provisional number of a pool.
func (im *importer) poolNumber(doc *pickle.Document, v pickle.Value) (uint16, *problem) {
	if v == im.lastPool.value && v.Kind() == pickle.Tuple { // tuples do not change
		return im.lastPool.number, nil
	}
	if v.Kind() == pickle.None {
		return 0, nil
	}
	id, bad := poolID(doc, "pool_id", v)
	if bad != nil {
		return 0, bad
	}
	n, ok := im.pools.number(id)
	if !ok {
		return 0, &problem{field: "pool_id", reason: fmt.Sprintf("more than %d pools in one file", maxPools)}
	}
	im.lastPool.value, im.lastPool.number = v, n
	return n, nil
}

// poolID reads a pair of ints.
func poolID(doc *pickle.Document, field string, v pickle.Value) (mem.PoolID, *problem) {
	items := doc.Items(v)
	if len(items) != 2 {
		return mem.PoolID{}, &problem{field: field, reason: "want a tuple of two ints", got: v.Kind()}
	}
	var id mem.PoolID
	for i, item := range items {
		x, ok := doc.Bits(item)
		if !ok {
			return mem.PoolID{}, wrongType(field, "a tuple of two ints", item)
		}
		id[i] = x
	}
	return id, nil
}

// bits reads an address or a handle: any int of 64 bits, negative ones as two's complement.
func bits(doc *pickle.Document, field string, v pickle.Value) (uint64, *problem) {
	x, ok := doc.Bits(v)
	if !ok {
		return 0, wrongType(field, "an int", v)
	}
	return x, nil
}

// integer reads an int that fits into an int64.
func integer(doc *pickle.Document, field string, v pickle.Value) (int64, *problem) {
	x, ok := doc.Int(v)
	if !ok {
		if v.Kind() == pickle.Int {
			return 0, &problem{field: field, reason: "the int does not fit into a signed 64-bit integer"}
		}
		return 0, wrongType(field, "an int", v)
	}
	return x, nil
}

// size reads an int that counts bytes.
func size(doc *pickle.Document, field string, v pickle.Value) (int64, *problem) {
	x, bad := integer(doc, field, v)
	if bad == nil && x < 0 {
		return 0, &problem{field: field, reason: fmt.Sprintf("%d is negative", x)}
	}
	return x, bad
}
