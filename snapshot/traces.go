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
		entries, err := im.list(place, "device_traces", v)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			continue
		}
		if !im.once(v) {
			return &Error{Place: place, Field: "device_traces", Reason: "the same list as that of an earlier device"}
		}
		t := &trace.Trace{Device: device}
		x, err := im.deviceEvents(place, entries, t)
		if err != nil {
			return err
		}
		if len(x.Keys)+len(x.Unknown) > 0 {
			s.TraceExtra = append(s.TraceExtra, make([]TraceExtra, device+1-len(s.TraceExtra))...)
			s.TraceExtra[device] = x
		}
		if len(t.Events) == 0 {
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
		last := int64(0)
		for _, item := range items {
			n, bad := integer(im.doc, field, item)
			if bad == nil && (n <= last || n > int64(len(t.Events))) {
				bad = &problem{field: field, reason: fmt.Sprintf("%d after %d, in a trace of %d entries", n, last,
					len(t.Events))}
			}
			if bad != nil {
				return bad.at(place)
			}
			t.Gaps, last = append(t.Gaps, int(n)), n
		}
	}
	return nil
}

// deviceEvents reads the events and compile contexts of one device into t, with provisional numbers and without spare
// capacity. It returns their unknown parts.
func (im *importer) deviceEvents(place string, entries []pickle.Value, t *trace.Trace) (TraceExtra, error) {
	d := deviceReading{im: im, events: make([]trace.Event, 0, len(entries))}
	for i := 0; i < len(entries) && d.err == nil; i++ {
		h, ok := im.folded(entries[i])
		if !ok {
			d.unfolded(fmt.Sprintf("%s, trace entry %d", place, i), entries[i])
			continue
		}
		run := im.events.from(h)
		n := 1 // how many entries are consecutive in both lists
		for ; n < len(run) && i+n < len(entries); n++ {
			if next, ok := im.folded(entries[i+n]); !ok || next != h+n {
				break
			}
		}
		at := len(d.events)
		im.contexts.each(h, n, func(offset int, text uint32) { d.say(at+offset, text) })
		im.extras.each(h, n, func(offset int, keys uint32) { d.have(at+offset, keys) })
		d.events = append(d.events, run[:n]...)
		i += n - 1
	}
	t.Events, t.CompileContexts = slices.Clip(d.events), d.contexts
	return d.extra, d.err
}

// A deviceReading is a partly read trace of one device.
type deviceReading struct {
	im       *importer
	events   []trace.Event
	contexts []trace.CompileContext
	extra    TraceExtra
	keys     uint32 // the set of keys of the last event
	err      error
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
	e, bad := im.entry(im.doc, pairs)
	switch {
	case bad != nil:
		d.err = bad.at(where)
	case e.unknown:
		name, _ := im.doc.Str(e.action)
		im.skipped.add("trace entry action "+quote(name), 1)
		var entry *Extra
		entry, d.err = im.extra(pairs)
		d.extra.Unknown = append(d.extra.Unknown, UnknownEntry{Before: len(d.events), Entry: entry})
	default:
		im.entryKeys.has(e.keys)
		d.say(len(d.events), e.context)
		d.have(len(d.events), e.keys)
		d.events = append(d.events, e.event)
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

// folded returns the index in im.events of a folded trace entry.
func (im *importer) folded(v pickle.Value) (int, bool) {
	h, ok := im.doc.Folded(v)
	return int(h), ok && h&frameHandle == 0
}

// resolve builds the tables of a trace and replaces the provisional numbers in its events.
func (im *importer) resolve(s *Snapshot, t *trace.Trace) error {
	streams := im.streamTable(t)
	pools := im.poolTable(s, t)
	metadata := map[uint32]uint32{}
	t.Metadata = []string{""}
	var lastText, lastMetadata uint32 // most events have the metadata of the one before
	t.PoolsKnown = true
	for i := range t.Events {
		e := &t.Events[i]
		e.Stream = streams[e.Stream]
		if e.Pool == 0 {
			t.PoolsKnown = false
		}
		if e.Metadata != lastText {
			lastText, lastMetadata = e.Metadata, im.metadata(t, metadata, e.Metadata)
		}
		e.Metadata = lastMetadata
		stack, err := im.stackOf(e.Stack)
		if err != nil {
			return within(fmt.Sprintf("device %d, trace event %d", t.Device, i), err)
		}
		e.Stack = stack
	}
	for i := range t.Events {
		if e := &t.Events[i]; t.PoolsKnown {
			e.Pool = uint16(pools[e.Pool])
		} else {
			e.Pool = 0
		}
	}
	return nil
}

// metadata returns the index in t.Metadata for a provisional number: a string's number plus 1, or 0.
func (im *importer) metadata(t *trace.Trace, known map[uint32]uint32, provisional uint32) uint32 {
	if provisional == 0 {
		return 0
	}
	n, ok := known[provisional]
	if !ok {
		if text := im.doc.StrByID(provisional - 1); text != "" {
			n = uint32(len(t.Metadata))
			t.Metadata = append(t.Metadata, text)
		}
		known[provisional] = n
	}
	return n
}

// A renumbering maps the importer's numbers to those of one trace, for one trace after another. The time for each
// depends on the size of that trace only.
type renumbering struct {
	seen  []int // by the importer's number: the last trace that used it, counted from 1
	table []uint32
	used  []uint32 // the numbers of this trace, in no order
}

// of returns the importer's numbers that a trace uses. All are less than n.
func (r *renumbering) of(t *trace.Trace, n int, number func(e *trace.Event) uint32) []uint32 {
	if more := n - len(r.seen); more > 0 {
		r.seen, r.table = append(r.seen, make([]int, more)...), append(r.table, make([]uint32, more)...)
	}
	r.used = r.used[:0]
	for i := range t.Events {
		if k := number(&t.Events[i]); r.seen[k] != t.Device+1 {
			r.seen[k] = t.Device + 1
			r.used = append(r.used, k)
		}
	}
	return r.used
}

// streamTable fills t.Streams and returns its indices by the importer's numbers.
func (im *importer) streamTable(t *trace.Trace) []uint32 {
	used := im.streamNumbers.of(t, len(im.streams.Values), func(e *trace.Event) uint32 { return e.Stream })
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
// order, and returns its indices by the importer's numbers.
func (im *importer) poolTable(s *Snapshot, t *trace.Trace) []uint32 {
	used := im.poolNumbers.of(t, len(im.pools.list)+1, func(e *trace.Event) uint32 { return uint32(e.Pool) })
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
		if n > 0 {
			i, _ := slices.BinarySearchFunc(t.Pools, im.pools.list[n-1], comparePools)
			im.poolNumbers.table[n] = uint32(i)
		}
	}
	return im.poolNumbers.table
}

// comparePools orders pools by their numbers, so the default pool (0, 0) comes first.
func comparePools(a, b mem.PoolID) int { return slices.Compare(a[:], b[:]) }
