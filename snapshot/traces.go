package snapshot

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// maxDevices is the maximum number of devices in a file, more than any machine has.
const maxDevices = 4096

// traces reads device_traces: a list of entries for each device.
func (im *importer) traces(s *Snapshot, v pickle.Value) error {
	lists, err := im.list("", "device_traces", v)
	if err != nil {
		return err
	}
	if len(lists) > maxDevices {
		return &Error{Field: "device_traces", Reason: fmt.Sprintf("%d devices: the limit is %d", len(lists),
			maxDevices)}
	}
	s.Traces = make([]*trace.Trace, len(lists))
	for device, v := range lists {
		place := fmt.Sprintf("device %d", device)
		if k := v.Kind(); k != pickle.List && k != pickle.Tuple && k != pickle.None {
			return wrongType("device_traces", "a list", v).at(place)
		}
		if im.doc.Len(v) == 0 {
			continue
		}
		if !im.once(v) {
			return &Error{Place: place, Field: "device_traces", Reason: "the same list as that of an earlier device"}
		}
		t := &trace.Trace{Device: device}
		n, x, err := im.deviceEvents(place, v, t)
		if err != nil {
			return err
		}
		if len(x.Keys)+len(x.Unknown) > 0 {
			s.TraceExtra = append(s.TraceExtra, make([]TraceExtra, device+1-len(s.TraceExtra))...)
			s.TraceExtra[device] = x
		}
		if n == 0 {
			continue
		}
		if err := im.resolve(s, t); err != nil {
			return err
		}
		s.Traces[device] = t
	}
	return nil
}

// gapsKey is a key that only Ashlar writes.
const gapsKey = "trace_gaps"

// gaps reads trace_gaps, which only Ashlar writes: for each device a list of indices into its trace. Indices are
// inexact if entries were skipped, so only their order is checked.
func (im *importer) gaps(s *Snapshot, v pickle.Value) error {
	const field = gapsKey
	lists, err := im.list("", field, v)
	if err != nil {
		return err
	}
	for device, v := range lists {
		place := fmt.Sprintf("device %d", device)
		items, err := im.list(place, field, v)
		if err != nil {
			return err
		}
		if !im.once(v) {
			return &Error{Place: place, Field: field, Reason: "the same list as that of an earlier device"}
		}
		if device >= len(s.Traces) || s.Traces[device] == nil {
			continue
		}
		t := s.Traces[device]
		if im.scan != nil && len(items) > 0 {
			return ErrNotScanned
		}
		last := int64(0)
		for _, item := range items {
			n, bad := integer(im.doc, field, item)
			if bad == nil && (n <= last || n > int64(t.Len())) {
				bad = &problem{field: field, reason: fmt.Sprintf("%d after %d, in a trace of %d entries", n, last,
					t.Len())}
			}
			if bad != nil {
				return bad.at(place)
			}
			t.Gaps, last = append(t.Gaps, int(n)), n
		}
	}
	return nil
}

// deviceEvents reads the events and compile contexts of one device into t, with provisional numbers. It returns the
// number of events, and unknown parts of entries.
func (im *importer) deviceEvents(place string, entries pickle.Value, t *trace.Trace) (int, TraceExtra, error) {
	d := deviceReading{im: im}
	im.doc.Runs(entries, func(v pickle.Value, first uint32, n int) bool {
		switch {
		case n > 0 && first&frameHandle == 0:
			d.folded(int(first), n)
		case n > 0: // frames
			d.err = outOfPlace(fmt.Sprintf("%s, trace entry %d", place, d.entries))
		default:
			d.unfolded(fmt.Sprintf("%s, trace entry %d", place, d.entries), v)
			d.entries++
		}
		return d.err == nil
	})
	t.CompileContexts = d.contexts
	whole := d.copy == nil && d.from == 0 && d.to == im.events.Len()
	if im.scan != nil {
		switch {
		case d.events == 0:
		case whole:
			im.scan.device, im.scan.events = t.Device, d.events
		case d.err == nil:
			d.err = ErrNotScanned
		}
		return d.events, d.extra, d.err
	}
	t.Columns = d.columns()
	if im.watcher != nil && whole {
		im.watched = t
	}
	return d.events, d.extra, d.err
}

// A deviceReading is a partly read trace of one device.
type deviceReading struct {
	im       *importer
	entries  int                  // read so far, with those that are unknown
	events   int                  // read so far
	from, to int                  // of im.columns, which has them all unless copy has
	copy     *trace.ColumnsWriter // nil until needed
	contexts []trace.CompileContext
	extra    TraceExtra
	keys     uint32 // the set of keys of the last event
	err      error
}

// folded adds entries that were folded.
func (d *deviceReading) folded(first, n int) {
	at := d.events
	d.im.contexts.each(first, n, func(offset int, text uint32) { d.say(at+offset, text) })
	d.im.extras.each(first, n, func(offset int, keys uint32) { d.have(at+offset, keys) })
	d.entries += n
	d.events += n
	switch {
	case at == 0:
		d.from, d.to = first, first+n
	case d.copy == nil && first == d.to:
		d.to += n
	default:
		d.copyFrom(first, first+n)
	}
}

// copyFrom copies events of im.columns.
func (d *deviceReading) copyFrom(from, to int) {
	if d.im.scan != nil {
		d.err = ErrNotScanned
		return
	}
	if d.copy == nil {
		d.copy = &trace.ColumnsWriter{}
		d.copyFrom(d.from, d.to)
	}
	r := (&trace.Trace{Columns: d.im.columns}).Reader()
	for i := from; i < to; i++ {
		d.copy.Add(r.At(i))
	}
}

// columns returns the events.
func (d *deviceReading) columns() *trace.Columns {
	if d.copy != nil {
		return d.copy.Columns()
	}
	return d.im.columns.Slice(d.from, d.to)
}

// unfolded reads an entry that was not folded.
func (d *deviceReading) unfolded(where string, v pickle.Value) {
	im := d.im
	pairs, err := im.dict(where, v)
	if err == nil && !im.once(v) {
		err = &Error{Place: where, Reason: "the same dict as an earlier entry"}
	}
	if err != nil {
		d.err = err
		return
	}
	var e entry
	bad := im.entry(im.doc, pairs, &e)
	switch {
	case bad != nil:
		d.err = bad.at(where)
	case e.unknown:
		name, _ := im.doc.Str(e.action)
		im.skipped.add("trace entry action "+quote(name), 1)
		var entry *Extra
		entry, d.err = im.extra(pairs)
		d.extra.Unknown = append(d.extra.Unknown, UnknownEntry{Before: d.events, Entry: entry})
	default:
		im.entryKeys.has(e.keys)
		d.say(d.events, e.context)
		d.have(d.events, e.keys)
		if d.copyFrom(0, 0); d.err == nil {
			d.copy.Add(&e.event)
			d.events++
		}
	}
}

// say records that the events from index at on have the compile context text, a number plus 1, if that is a change.
func (d *deviceReading) say(at int, text uint32) {
	s, last := "", ""
	if text > 0 {
		s = d.im.doc.StrByID(text - 1)
	}
	if n := len(d.contexts); n > 0 {
		last = d.contexts[n-1].Text
	}
	if s != last {
		d.contexts = append(d.contexts, trace.CompileContext{First: at, Text: s})
	}
}

// have records that the events from index at on have a set of unknown keys.
func (d *deviceReading) have(at int, keys uint32) {
	if keys == d.keys || d.err != nil {
		return
	}
	var x *Extra
	x, d.err = d.im.extraOf(&d.im.entryKeys, keys)
	d.extra.Keys = append(d.extra.Keys, EntryExtra{First: at, Extra: x})
	d.keys = keys
}

// resolve builds the tables of a trace and replaces the provisional numbers of its events.
func (im *importer) resolve(s *Snapshot, t *trace.Trace) error {
	var used numbered = t.Columns
	if im.scan != nil {
		used = im.scan
	}
	n := trace.Numbers{Streams: im.streamTable(t, used), Pools: im.poolTable(s, t, used)}
	t.Metadata = []string{""}
	used.EachNumber(trace.FieldMetadata, func(_ int, text uint32) {
		if int(text) >= len(im.texts.seen) {
			im.texts.grow(int(text) + 1)
		}
		if im.texts.seen[text] != t.Device+1 {
			im.texts.seen[text] = t.Device + 1
			im.texts.table[text] = im.metadata(t, text)
		}
	})
	n.Metadata = im.texts.table
	var err error
	used.EachNumber(trace.FieldStack, func(i int, stack uint32) {
		if _, bad := im.stackOf(trace.StackID(stack)); bad != nil && err == nil {
			err = within(fmt.Sprintf("device %d, trace event %d", t.Device, i), bad)
		}
	})
	n.Stacks = im.stacks.ids
	if im.scan != nil {
		im.scan.numbers = n
		return err
	}
	t.Columns = im.renumbered(t.Columns, n)
	return err
}

// renumbered returns events with other numbers. The tables are the importer's; a trace keeps its own, unless they would
// be larger than its events.
func (im *importer) renumbered(c *trace.Columns, n trace.Numbers) *trace.Columns {
	if len(n.Stacks)+len(n.Streams)+len(n.Metadata)+len(n.Pools) <= c.Len() {
		n.Streams, n.Pools, n.Metadata = slices.Clone(n.Streams), slices.Clone(n.Pools), slices.Clone(n.Metadata)
		return c.Renumbered(n)
	}
	var w trace.ColumnsWriter
	r := (&trace.Trace{Columns: c.Renumbered(n)}).Reader()
	for i := range c.Len() {
		w.Add(r.At(i))
	}
	return w.Columns()
}

// metadata returns the index in t.Metadata for a provisional number: a string's number plus 1, or 0.
func (im *importer) metadata(t *trace.Trace, provisional uint32) uint32 {
	if provisional == 0 {
		return 0
	}
	text := im.doc.StrByID(provisional - 1)
	if text == "" {
		return 0
	}
	t.Metadata = append(t.Metadata, text)
	return uint32(len(t.Metadata) - 1)
}

// A renumbering maps the importer's numbers to those of one trace, for one trace after another. The time for each
// depends on the size of that trace only.
type renumbering struct {
	seen  []int // by the importer's number: the last trace that used it, counted from 1
	table []uint32
	used  []uint32 // the numbers of this trace, in no order
}

// of returns the importer's numbers that a trace uses. All are less than n.
func (r *renumbering) of(t *trace.Trace, from numbered, n int, field trace.Field) []uint32 {
	r.grow(n)
	r.used = r.used[:0]
	from.EachNumber(field, func(_ int, k uint32) {
		if r.seen[k] != t.Device+1 {
			r.seen[k] = t.Device + 1
			r.used = append(r.used, k)
		}
	})
	return r.used
}

// grow makes room for n numbers.
func (r *renumbering) grow(n int) {
	if more := n - len(r.seen); more > 0 {
		r.seen, r.table = append(r.seen, make([]int, more)...), append(r.table, make([]uint32, more)...)
	}
}

// streamTable fills t.Streams and returns its indices by the importer's numbers.
func (im *importer) streamTable(t *trace.Trace, from numbered) []uint32 {
	used := im.streamNumbers.of(t, from, len(im.streams.Values), trace.FieldStream)
	for _, n := range used {
		t.Streams = append(t.Streams, im.streams.Values[n])
	}
	slices.Sort(t.Streams)
	for _, n := range used {
		i, _ := slices.BinarySearch(t.Streams, im.streams.Values[n])
		im.streamNumbers.table[n] = uint32(i)
	}
	return im.streamNumbers.table
}

// poolTable fills t.Pools with the default pool, those of the device's segments and those of its events, in ascending
// order, and returns its indices by the importer's numbers. If an event has no pool, that of all is the default one.
func (im *importer) poolTable(s *Snapshot, t *trace.Trace, from numbered) []uint32 {
	used := im.poolNumbers.of(t, from, len(im.pools.list)+1, trace.FieldPool)
	t.PoolsKnown = !slices.Contains(used, 0)
	all := map[mem.PoolID]bool{{}: true}
	for _, n := range used {
		if n > 0 {
			all[im.pools.list[n-1]] = true
		}
	}
	for _, seg := range s.SegmentsOf(t.Device) {
		if len(all) < maxPools {
			all[seg.Pool] = true
		}
	}
	for id := range all {
		t.Pools = append(t.Pools, id)
	}
	slices.SortFunc(t.Pools, comparePools)
	for _, n := range used {
		i := 0
		if t.PoolsKnown {
			i, _ = slices.BinarySearchFunc(t.Pools, im.pools.list[n-1], comparePools)
		}
		im.poolNumbers.table[n] = uint32(i)
	}
	return im.poolNumbers.table
}

// comparePools orders pools by their numbers, so the default pool (0, 0) comes first.
func comparePools(a, b mem.PoolID) int { return slices.Compare(a[:], b[:]) }
