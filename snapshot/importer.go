package snapshot

import (
	"strings"

	"github.com/ashlar-go/ashlar/internal/countio"
	"github.com/ashlar-go/ashlar/internal/numbering"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// An importer turns one pickle into a Snapshot.
type importer struct {
	doc      *pickle.Document // set once it is complete
	limits   Limits
	source   *countio.Reader // counts the bytes of the file before decompression
	meanings meanings
	events   trace.ColumnsWriter         // the folded entries, in the order in which the pickle completes them
	columns  *trace.Columns              // events, once it is complete
	watcher  *trace.LifetimesWatcher     // of all folded entries, or nil
	watched  *trace.Trace                // whose events are all folded entries, or nil
	scan     *scanning                   // nil if the events are kept
	contexts runs                        // their compile contexts: numbers of strings plus 1
	extras   runs                        // their sets in entryKeys
	streams  numbering.Numbering[uint64] // by handle, in the order of the file
	pools    pools
	lastPool struct {
		value  pickle.Value
		number uint16
	}
	frames  frames
	stacks  stacks
	skipped skips
	used    map[uint32]bool // containers that must be read only once and have been

	folding                    entry // the one that is being folded
	layout                     layout
	costEvent                  int64
	streamNumbers, poolNumbers renumbering
	texts                      renumbering // of metadata

	// Unknown keys, and their Go values.
	entryKeys, frameKeys keySets
	values               *pickle.Converter
	kept                 int64 // size of the Go values in bytes
	plainFrames          map[uint32]any
	plainStacks          map[trace.StackID]any
}

func newImporter(limits Limits, source *countio.Reader, o readOptions) *importer {
	cost := int64(costColumns)
	switch {
	case o.scan != nil:
		cost = 0
	case !o.compact:
		cost += costEvent
	}
	im := &importer{
		limits: limits, source: source, costEvent: cost, stacks: stacks{table: &trace.Stacks{}}, skipped: skips{},
		used:      map[uint32]bool{},
		entryKeys: keySets{kind: "trace entry "}, frameKeys: keySets{kind: "frame "}, scan: o.scan,
	}
	switch {
	case o.scan != nil:
		im.events.Watch, im.events.Discard = o.scan.watch, true
	case o.compact:
		im.watcher = &trace.LifetimesWatcher{}
		im.events.Watch = im.watcher.Watch
	}
	return im
}

// A handle of a folded dict is the index of an event, or frameHandle plus the index of a frame.
const (
	frameHandle = 1 << 31
	maxFolded   = 1 << 31
	maxFoldKeys = 64 // dicts with more keys are not folded
)

// Costs in bytes, for Limits, of the data that the importer keeps while it reads the pickle: an event in columns and in
// the trace, and a frame or a stream with its map entry.
const (
	costColumns = 12
	costEvent   = 40
	costFrame   = 128
	costStream  = 64
)

// foldDict folds trace entries and frames while the pickle is read.
func (im *importer) foldDict(doc *pickle.Document, pairs []pickle.Value) (handle uint32, ok bool) {
	if len(pairs) > 2*maxFoldKeys {
		return 0, false
	}
	if im.layout.of(pairs) {
		if n, ok := im.foldAlike(doc, pairs); ok {
			return n, true
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		switch im.meanings.field(doc, pairs[i]) {
		case fieldAction:
			e := &im.folding
			n := im.events.Len()
			if bad := im.entry(doc, pairs, e); bad != nil || e.unknown || n == maxFolded || im.entryKeys.nested(e.keys) {
				return 0, false
			}
			im.entryKeys.has(e.keys)
			doc.Charge(im.costEvent + im.contexts.add(n, e.context) + im.extras.add(n, e.keys))
			im.events.Add(&e.event)
			im.layout.learn(doc, &im.meanings, pairs)
			return uint32(n), true
		case fieldFilename:
			n, bad := im.frame(doc, pairs, true)
			if bad != nil || n >= maxFolded {
				return 0, false
			}
			return n | frameHandle, true
		}
	}
	return 0, false
}

// snapshot reads the completed document.
func (im *importer) snapshot() (*Snapshot, error) {
	s := &Snapshot{}
	root := im.doc.Root()
	if root.Kind() == pickle.List { // torch.cuda.memory_snapshot()
		if err := im.segments(s, root); err != nil {
			return nil, err
		}
		return im.finish(s)
	}
	if root.Kind() != pickle.Dict {
		return nil, &Error{Reason: "no memory snapshot: want a dict with segments and device_traces, got " +
			root.Kind().String()}
	}
	segments, hasSegments := im.doc.Lookup(root, "segments")
	traces, hasTraces := im.doc.Lookup(root, "device_traces")
	if !hasSegments && !hasTraces {
		return nil, &Error{Reason: "no memory snapshot: the dict has neither segments nor device_traces, only " +
			im.keys(root)}
	}
	if hasSegments {
		if err := im.segments(s, segments); err != nil {
			return nil, err
		}
	}
	if err := im.rest(s, im.doc.Pairs(root), hasTraces); err != nil {
		return nil, err
	}
	if hasTraces {
		if err := im.traces(s, traces); err != nil {
			return nil, err
		}
		if gaps, ok := im.doc.Lookup(root, gapsKey); ok {
			if err := im.gaps(s, gaps); err != nil {
				return nil, err
			}
		}
	}
	return im.finish(s)
}

// rest reads the other parts of the file: all but segments and traces.
func (im *importer) rest(s *Snapshot, pairs []pickle.Value, hasTraces bool) error {
	var unknown []pickle.Value
	for i := 0; i+1 < len(pairs); i += 2 {
		key, _ := im.doc.Str(pairs[i])
		var err error
		switch {
		case key == "segments" || key == "device_traces" || key == gapsKey && hasTraces:
		case key == "allocator_settings" && !im.once(pairs[i+1]), key == "memory_stats" && !im.once(pairs[i+1]):
			err = &Error{Field: key, Reason: "the same dict as an earlier one"}
		case key == "allocator_settings":
			s.Settings, err = im.settings(pairs[i+1])
		case key == "memory_stats":
			s.Stats, err = im.stats(pairs[i+1])
		case key == limitsKey:
			s.Limits, err = im.memoryLimits(pairs[i+1])
		case key == "out_of_memory":
			s.OutOfMemory, err = im.outOfMemory(pairs[i+1])
		case key == "external_annotations":
			s.Annotations, err = im.annotations(pairs[i+1])
		default:
			im.skipped.key(im.doc, "", pairs[i], 1)
			unknown = append(unknown, pairs[i], pairs[i+1])
		}
		if err != nil {
			return err
		}
	}
	var err error
	s.Extra, err = im.extra(unknown)
	return err
}

// finish fills in the tables that all parts share.
func (im *importer) finish(s *Snapshot) (*Snapshot, error) {
	if len(im.frames.list) > 0 || im.stacks.table.Len() > 0 {
		im.stacks.table.Frames = im.frames.exact()
		s.Stacks = im.stacks.table
		for _, t := range s.Traces {
			if t != nil {
				t.Stacks = s.Stacks
			}
		}
	}
	for n, set := range im.frames.keys {
		x, err := im.extraOf(&im.frameKeys, set)
		if err != nil {
			return nil, err
		}
		if s.FrameExtra == nil {
			s.FrameExtra = map[uint32]*Extra{}
		}
		s.FrameExtra[n] = x
	}
	im.entryKeys.count(im.doc, im.skipped)
	im.frameKeys.count(im.doc, im.skipped)
	s.Skipped = im.skipped.list()
	if im.watched != nil {
		_, o := s.programOf(im.watched.Device, trace.ProgramOptions{})
		if l := im.watcher.Lifetimes(im.watched, o); l != nil {
			s.lifetimes = map[int]*trace.Lifetimes{im.watched.Device: l}
		}
	}
	return s, nil
}

// once reports whether v is empty or has not been passed to once before. A file in which several segments share a list
// of blocks is refused; otherwise a small file could expand into a huge snapshot.
func (im *importer) once(v pickle.Value) bool {
	if im.doc.Len(v) == 0 {
		return true
	}
	if im.used[v.Node()] {
		return false
	}
	im.used[v.Node()] = true
	return true
}

// list returns the items of a list or tuple. None counts as an empty list.
func (im *importer) list(place, field string, v pickle.Value) ([]pickle.Value, error) {
	switch v.Kind() {
	case pickle.List, pickle.Tuple:
		return im.doc.Items(v), nil
	case pickle.None:
		return nil, nil
	}
	return nil, wrongType(field, "a list", v).at(place)
}

// dict returns the keys and values of a dict. A folded dict is an error: it is a trace entry or a frame in the wrong
// place.
func (im *importer) dict(place string, v pickle.Value) ([]pickle.Value, error) {
	if v.Kind() != pickle.Dict {
		return nil, wrongType("", "a dict", v).at(place)
	}
	if _, folded := im.doc.Folded(v); folded {
		return nil, outOfPlace(place)
	}
	return im.doc.Pairs(v), nil
}

func outOfPlace(place string) error {
	return &Error{Place: place, Reason: "a trace entry or a stack frame is out of place here"}
}

// keys lists some keys of a dict for an error message.
func (im *importer) keys(v pickle.Value) string {
	var names []string
	for i, pairs := 0, im.doc.Pairs(v); i < len(pairs) && len(names) < 8; i += 2 {
		if s, ok := im.doc.Str(pairs[i]); ok {
			names = append(names, quote(s))
		}
	}
	if len(names) == 0 {
		return "no keys that are str"
	}
	return strings.Join(names, ", ")
}

const maxPools = 1<<16 - 2

// pools numbers the pools of trace entries from 1, in the order in which they appear; 0 means no pool.
type pools struct {
	list []mem.PoolID // list[i] has the number i+1
	byID map[mem.PoolID]uint16
}

func (t *pools) number(id mem.PoolID) (uint16, bool) {
	n, ok := t.byID[id]
	if !ok {
		if len(t.list) == maxPools {
			return 0, false
		}
		if t.byID == nil {
			t.byID = map[mem.PoolID]uint16{}
		}
		t.list = append(t.list, id)
		n = uint16(len(t.list))
		t.byID[id] = n
	}
	return n, true
}
