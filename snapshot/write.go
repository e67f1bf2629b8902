package snapshot

import (
	"io"
	"slices"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A sink writes the dicts and lists of PyTorch's snapshots in one file format. A list is written in one call, a dict
// between beginDict and endDict as alternating keys and values.
type sink interface {
	beginDict()
	endDict()
	list(n int, item func(i int))
	key(name string)
	text(s string) // a string that may repeat
	integer(x int64)
	bits(x uint64) // an address or a handle
	boolean(b bool)
	pool(id mem.PoolID)
	frames(id trace.StackID)
	plain(v any)
	extra(x *Extra) // in a dict
}

// WritePickle writes s as torch.cuda.memory._dump_snapshot does, in protocol 4, for Python, torch.cuda._memory_viz and
// https://pytorch.org/memory_viz. Read returns s again, without unreferenced table entries. Keys that older PyTorch did
// not write are included. Entries have frames if any entry of the file has a stack, and pool_id if the trace has pools.
// A Snapshot with Stats, Limits, OutOfMemory or gaps in its traces has an additional key for each: memory_stats,
// memory_limits, out_of_memory and trace_gaps, which PyTorch's viewer ignores.
//
// Equal strings, frames and stacks are written once, so memory use is proportional to Stacks and the distinct strings,
// not to the number of events. Invalid UTF-8 in strings is replaced, see pickle.Writer. The error is that of w.
//
// The indices in the events must be valid. All traces must share Stacks.
func (s *Snapshot) WritePickle(w io.Writer) error {
	p := newPickleSink(w, s)
	s.write(p)
	return p.w.Close()
}

// WriteJSON writes s as JSON: the dicts and lists of WritePickle with the same keys, tuples as lists, and every item of
// a list of dicts on its own line. Stacks are written out wherever they are referenced, which makes a file with stacks
// much larger than the pickle. Integers are exact; those above 2^53 need a reader with more precision than doubles. NaN
// and the infinities become strings, and so do keys that are not str, as in Python's json; unknown keys that are tuples
// or bytes are left out. Recent versions of PyTorch's viewer open the file.
//
// Memory use is one JSON text of each frame, independent of the number of events. JSON writes shared values out in
// every place. The error is that of w, or an *Error if that would make the file too large: if the settings or the
// values of unknown keys share containers too often, or if repeated frames and repeated strings of more than 1 KiB take
// more than 64 MiB plus 32 KiB for each entry, segment and block before them. The file is then incomplete.
func (s *Snapshot) WriteJSON(w io.Writer) error {
	j := newJSONSink(w, s)
	s.write(j)
	j.out.text("\n")
	return j.out.close()
}

// write writes s. The traces come first, and an entry's frames last. So the keys and actions of entries are among the
// first 256 values in a pickle's memo, which are fetched with two bytes instead of five.
func (s *Snapshot) write(w sink) {
	w.beginDict()
	w.key("device_traces")
	w.list(len(s.Traces), func(device int) {
		t := s.Traces[device]
		if t == nil {
			t = &trace.Trace{}
		}
		e := s.entries(w, device, t, t.Len())
		w.list(e.len(), func(int) { e.write() })
	})
	w.key("segments")
	w.list(len(s.Segments), func(i int) { s.Segments[i].write(w) })
	if s.Settings.Raw != nil {
		w.key("allocator_settings")
		w.plain(s.Settings.Raw)
	}
	if slices.ContainsFunc(s.Traces, func(t *trace.Trace) bool { return t != nil && len(t.Gaps) > 0 }) {
		w.key("trace_gaps")
		w.list(len(s.Traces), func(device int) {
			var gaps []int
			if t := s.Traces[device]; t != nil {
				gaps = t.Gaps
			}
			w.list(len(gaps), func(i int) { w.integer(int64(gaps[i])) })
		})
	}
	w.key("external_annotations")
	w.list(len(s.Annotations), func(i int) { s.Annotations[i].write(w) })
	if s.Stats != nil {
		w.key("memory_stats")
		w.plain(plainStats(s.Stats))
	}
	if slices.ContainsFunc(s.Limits, func(n int64) bool { return n > 0 }) {
		w.key(limitsKey)
		w.list(len(s.Limits), func(device int) { w.integer(s.Limits[device]) })
	}
	if s.OutOfMemory != nil {
		w.key("out_of_memory")
		writeFacts(w, s.OutOfMemory.table())
	}
	w.extra(s.Extra)
	w.endDict()
}

func (s *Segment) write(w sink) {
	w.beginDict()
	w.key("device")
	w.integer(int64(s.Device))
	w.key("address")
	w.bits(uint64(s.Ptr))
	w.key("total_size")
	w.integer(s.TotalSize)
	w.key("allocated_size")
	w.integer(s.AllocatedSize)
	w.key("active_size")
	w.integer(s.ActiveSize)
	w.key("requested_size")
	w.integer(s.RequestedSize)
	w.key("stream")
	w.bits(s.Stream)
	w.key("segment_type")
	if s.Large {
		w.text("large")
	} else {
		w.text("small")
	}
	w.key("segment_pool_id")
	w.pool(s.Pool)
	w.key("is_expandable")
	w.boolean(s.Expandable)
	w.key("frames")
	w.frames(s.Stack)
	w.key("blocks")
	w.list(len(s.Blocks), func(i int) {
		b := &s.Blocks[i]
		w.beginDict()
		w.key("address")
		w.bits(uint64(b.Ptr))
		w.key("size")
		w.integer(b.Size)
		w.key("requested_size")
		w.integer(b.RequestedSize)
		w.key("state")
		w.text(b.State.String())
		w.extra(b.Extra)
		w.key("frames")
		w.frames(b.Stack)
		w.endDict()
	})
	w.extra(s.Extra)
	w.endDict()
}

func (a *Annotation) write(w sink) {
	w.beginDict()
	w.key("stage")
	w.text(a.Stage)
	w.key("name")
	w.text(a.Name)
	w.key("device")
	w.integer(int64(a.Device))
	w.key("time_us")
	w.integer(a.TimeUS)
	if a.Metadata != "" {
		w.key("metadata")
		w.text(a.Metadata)
	}
	w.extra(a.Extra)
	w.endDict()
}

// An entryWriter writes the entries of one trace, in order.
type entryWriter struct {
	w        sink
	t        *trace.Trace
	events   interface{ At(i int) *trace.Event }
	total    int                    // events
	stacks   bool                   // entries have frames
	next     int                    // event
	contexts []trace.CompileContext // that begin later
	context  string
	extra    TraceExtra // not written yet
	keys     *Extra
	device   bool // entries have their device
}

// entries returns the writer of the entries of a device, which has a number of events.
func (s *Snapshot) entries(w sink, device int, t *trace.Trace, events int) *entryWriter {
	return &entryWriter{
		w: w, t: t, events: t.Reader(), total: events, stacks: s.Stacks.Len() > 0, contexts: t.CompileContexts,
		extra: s.traceExtra(device),
	}
}

// len returns the number of entries.
func (x *entryWriter) len() int { return x.total + len(x.extra.Unknown) }

// write writes the next entry.
func (x *entryWriter) write() {
	if u := x.extra.Unknown; len(u) > 0 && (u[0].Before <= x.next || x.next == x.total) {
		x.extra.Unknown = u[1:]
		x.begin()
		x.w.extra(u[0].Entry)
		x.w.endDict()
		return
	}
	x.event(x.next)
	x.next++
}

// begin begins the dict of an entry.
func (x *entryWriter) begin() {
	x.w.beginDict()
	if x.device {
		x.w.key("device")
		x.w.integer(int64(x.t.Device))
	}
}

func (x *entryWriter) event(i int) {
	w, e := x.w, x.events.At(i)
	for len(x.contexts) > 0 && x.contexts[0].First <= i {
		x.context, x.contexts = x.contexts[0].Text, x.contexts[1:]
	}
	for len(x.extra.Keys) > 0 && x.extra.Keys[0].First <= i {
		x.keys, x.extra.Keys = x.extra.Keys[0].Extra, x.extra.Keys[1:]
	}
	x.begin()
	w.key("action")
	w.text(e.Action.String())
	if e.Action == mem.ActionOOM {
		w.key("device_free")
	} else {
		w.key("addr")
	}
	w.bits(uint64(e.Ptr))
	w.key("size")
	w.integer(e.Size)
	w.key("stream")
	w.bits(x.t.Streams[e.Stream])
	w.key("time_us")
	w.integer(e.TimeUS)
	if x.context != "" {
		w.key("compile_context")
		w.text(x.context)
	}
	w.key("user_metadata")
	w.text(x.t.Metadata[e.Metadata])
	if x.t.PoolsKnown {
		w.key("pool_id")
		w.pool(x.t.Pools[e.Pool])
	}
	w.extra(x.keys)
	if x.stacks {
		w.key("frames")
		w.frames(e.Stack)
	}
	w.endDict()
}

// plainStats converts a map to the type that pickle.Writer and JSON accept.
func plainStats(stats map[string]int64) map[string]any {
	all := make(map[string]any, len(stats))
	for name, n := range stats {
		all[name] = n
	}
	return all
}
