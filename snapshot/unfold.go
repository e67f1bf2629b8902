package snapshot

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// plain converts the value of an unknown key to Go values and charges for them.
func (im *importer) plain(v pickle.Value) (any, error) {
	if im.values == nil {
		im.values = im.doc.Converter()
		im.values.Folded, im.values.Charge = im.unfold, im.charge
	}
	return im.values.Value(v)
}

// charge counts memory for unknown keys in the Snapshot, which was not counted while the pickle was read.
func (im *importer) charge(bytes int64) error {
	im.kept += bytes
	all, over := im.doc.Memory()+im.kept, error(nil)
	switch {
	case all > im.limits.Pickle.Memory:
		over = pickle.ErrLimit
	case all > im.limits.memory(im.source.N):
		over = ErrMemory
	default:
		return nil
	}
	return fmt.Errorf("snapshot: keys that are not known, with their values: %w", over)
}

// extra returns keys and values, in turn, as an Extra.
func (im *importer) extra(pairs []pickle.Value) (*Extra, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	if err := im.charge(int64(len(pairs)/2) * costSetPair); err != nil {
		return nil, err
	}
	x := &Extra{Pairs: make([]pickle.Pair, len(pairs)/2)}
	var err error
	for i := range x.Pairs {
		pair := &x.Pairs[i]
		if pair.Key, err = im.plain(pairs[2*i]); err != nil {
			return nil, err
		}
		if pair.Value, err = im.plain(pairs[2*i+1]); err != nil {
			return nil, err
		}
	}
	x.sort()
	return x, nil
}

// extraOf returns the Extra of a set of keys. All dicts with the set share it.
func (im *importer) extraOf(t *keySets, n uint32) (*Extra, error) {
	if n == 0 {
		return nil, nil
	}
	set := &t.sets[n-1]
	if set.extra == nil {
		var err error
		if set.extra, err = im.extra(set.pairs); err != nil {
			return nil, err
		}
	}
	return set.extra, nil
}

// Approximate cost in bytes of a trace entry and a frame as a map.
const (
	costPlainEntry = 1000
	costPlainFrame = 450
)

// unfold restores a folded dict inside the value of an unknown key. Folded dicts hold no nested containers except the
// frames of an entry, so the recursion ends.
func (im *importer) unfold(handle uint32) (any, error) {
	if handle&frameHandle != 0 {
		return im.plainFrame(handle &^ frameHandle)
	}
	if im.scan != nil {
		return nil, ErrNotScanned
	}
	if err := im.charge(costPlainEntry); err != nil {
		return nil, err
	}
	e := im.columns.At(int(handle))
	entry := map[string]any{
		"action": e.Action.String(), "size": e.Size, "stream": plainBits(im.streams.Values[e.Stream]),
		"time_us": e.TimeUS,
	}
	if e.Action == mem.ActionOOM {
		entry["device_free"] = int64(e.Ptr)
	} else {
		entry["addr"] = plainBits(uint64(e.Ptr))
	}
	if e.Metadata > 0 {
		entry["user_metadata"] = im.doc.StrByID(e.Metadata - 1)
	}
	if text := im.contexts.at(int(handle)); text > 0 {
		entry["compile_context"] = im.doc.StrByID(text - 1)
	}
	if e.Pool > 0 {
		id := im.pools.list[e.Pool-1]
		entry["pool_id"] = pickle.TupleValue{plainBits(id[0]), plainBits(id[1])}
	}
	if e.Stack > 0 {
		frames, err := im.plainStack(e.Stack)
		if err != nil {
			return nil, err
		}
		entry["frames"] = frames
	}
	return im.addTo(entry, &im.entryKeys, im.extras.at(int(handle)))
}

// plainStack returns the frames of a stack with a provisional number. A list that is not a stack becomes None.
func (im *importer) plainStack(provisional trace.StackID) (any, error) {
	id, err := im.stackOf(provisional)
	if err != nil {
		im.skipped.drop("frames, in keys that are not known", 1)
		return nil, nil
	}
	if frames, ok := im.plainStacks[id]; ok {
		return frames, nil
	}
	refs := im.stacks.table.At(id)
	if err := im.charge(64 + 16*int64(len(refs))); err != nil {
		return nil, err
	}
	frames := make([]any, len(refs))
	for i, n := range refs {
		if frames[i], err = im.plainFrame(n); err != nil {
			return nil, err
		}
	}
	if im.plainStacks == nil {
		im.plainStacks = map[trace.StackID]any{}
	}
	im.plainStacks[id] = frames
	return frames, nil
}

// plainFrame returns a frame without its nested values.
func (im *importer) plainFrame(n uint32) (any, error) {
	if frame, ok := im.plainFrames[n]; ok {
		return frame, nil
	}
	if err := im.charge(costPlainFrame); err != nil {
		return nil, err
	}
	f := &im.frames.list[n]
	known := map[string]any{"name": f.Name, "filename": f.Filename, "line": f.Line}
	if f.Line < 0 {
		known["line"] = uint64(f.Line)
	}
	frame, err := im.addTo(known, &im.frameKeys, im.frames.keys[n])
	if err != nil {
		return nil, err
	}
	if im.plainFrames == nil {
		im.plainFrames = map[uint32]any{}
	}
	im.plainFrames[n] = frame
	return frame, nil
}

// addTo adds a set of keys to a dict, except keys that are not str and nested values.
func (im *importer) addTo(dict map[string]any, t *keySets, n uint32) (any, error) {
	if n == 0 {
		return dict, nil
	}
	pairs := t.sets[n-1].pairs
	for i := 0; i < len(pairs); i += 2 {
		key, ok := im.doc.Str(pairs[i])
		if !ok || pairs[i+1].IsContainer() && !t.flat[pairs[i+1]] {
			im.skipped.drop(t.kind+keyName(im.doc, pairs[i])+", in keys that are not known", 1)
			continue
		}
		value, err := im.plain(pairs[i+1])
		if err != nil {
			return nil, err
		}
		dict[key] = value
	}
	return dict, nil
}

// plainBits converts an int of 64 bits to the type that package pickle uses.
func plainBits(x uint64) any {
	if int64(x) >= 0 {
		return int64(x)
	}
	return x
}
