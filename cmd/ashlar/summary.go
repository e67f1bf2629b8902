package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A summary is the output of info for one device, and of info --json.
type summary struct {
	Trace    string         `json:"trace"`
	Device   int            `json:"device"`
	Entries  int            `json:"entries"`
	StartUS  int64          `json:"start_us"` // of the first entry, microseconds since 1970
	EndUS    int64          `json:"end_us"`
	Counts   map[string]int `json:"counts"` // entries by action
	Streams  []uint64       `json:"streams"`
	Pools    []mem.PoolID   `json:"pools"`
	Settings *string        `json:"settings"` // null if the file has none
	Limit    *int64         `json:"limit"`    // bytes that could be reserved; null if the file does not say, or there was none
	Peaks    struct {
		Requested int64 `json:"requested"`
		Reserved  int64 `json:"reserved"`
	} `json:"peaks"`
	Late         int64 `json:"requested_before"` // bytes that were there before the first entry
	LateReserved int64 `json:"reserved_before"`
	Live         struct {
		Blocks    int   `json:"blocks"`
		Requested int64 `json:"requested"`
		Reserved  int64 `json:"reserved"`
		Segments  int   `json:"segments"`
	} `json:"live"`
	Segments []segmentLine   `json:"segments"` // of the final state
	Biggest  []bigAllocation `json:"biggest"`
	Skipped  []skip          `json:"skipped"`

	NumFailures    int `json:"failures"`       // requests without room
	Contradictions int `json:"contradictions"` // entries that contradict those before them
	Oversized      int `json:"oversized"`      // entries of more than was ever reserved, which count nowhere else

	OutOfMemory string `json:"out_of_memory,omitempty"` // what the request said that the file reports of

	Failures      []replay.Failure `json:"-"`
	contradiction string           // the first
	oversized     string           // the first
	most          int64            // bytes that were reserved at a time; 0 if nothing was
	stacks        bool             // there are some
	chart         chart
}

// A skip counts unknown parts of the file.
type skip struct {
	What  string `json:"what"`
	Count int    `json:"count"`
}

// maxWhere is the maximum length in runes of a source position or a name.
const maxWhere = 100

// A bigAllocation is a size that one source position requested.
type bigAllocation struct {
	Size  int64  `json:"size"`
	Count int    `json:"count"`
	Where string `json:"where,omitempty"`
}

// maxBiggest is the maximum number of big allocations shown.
const maxBiggest = 8

// maxFailures is the maximum number of failed requests shown.
const maxFailures = 3

// summaries sums up each device that has a history or segments.
func summaries(s *snapshot.Snapshot) []summary {
	works := map[int]*replay.Work{}
	if all, err := replay.Works(s); err == nil { // what cannot be replayed is summed up all the same
		for _, w := range all {
			works[w.Device] = w
		}
	}
	skipped := []skip{}
	for _, k := range s.Skipped {
		skipped = append(skipped, skip{k.What, k.Count})
	}
	var all []summary
	for device := range s.NumDevices() {
		var t *trace.Trace
		if device < len(s.Traces) {
			t = s.Traces[device]
		}
		d := summary{Device: device, Skipped: skipped, Counts: map[string]int{}, Segments: []segmentLine{}}
		if s.Settings.Raw != nil {
			text := settingsText(&s.Settings)
			d.Settings = &text
		}
		if device < len(s.Limits) && s.Limits[device] > 0 {
			d.Limit = &s.Limits[device]
		}
		d.final(s)
		if t != nil {
			d.history(t, works[device])
		}
		if o := s.OutOfMemory; o != nil &&
			(o.Facts == nil && device == 0 || o.Facts != nil && o.Facts.Device == device) {
			d.OutOfMemory = o.Text
		}
		if d.Entries > 0 || d.Live.Segments > 0 {
			all = append(all, d)
		}
	}
	return all
}

// final sums up the final state.
func (d *summary) final(s *snapshot.Snapshot) {
	own := s.SegmentsOf(d.Device)
	for i := range own {
		seg := &own[i]
		d.Segments = append(d.Segments, segmentOf(seg))
		d.Live.Segments++
		d.Live.Reserved += seg.TotalSize
		d.Streams = append(d.Streams, seg.Stream)
		d.Pools = append(d.Pools, seg.Pool)
		for j := range seg.Blocks {
			b := &seg.Blocks[j]
			if b.State == mem.Inactive {
				continue
			}
			d.Live.Blocks++
			if b.RequestedSize > 0 {
				d.Live.Requested += b.RequestedSize
			} else {
				d.Live.Requested += b.Size
			}
		}
	}
	slices.Sort(d.Streams)
	d.Streams = slices.Compact(d.Streams)
	slices.SortFunc(d.Pools, func(a, b mem.PoolID) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	d.Pools = slices.Compact(d.Pools)
}

// settingsText is the settings in the syntax of PYTORCH_CUDA_ALLOC_CONF, "" for the defaults. If the process was not
// given such a text, the settings were set by calls, and are put together from what was in force.
func settingsText(s *snapshot.Settings) string {
	if s.Conf != "" {
		return s.Conf
	}
	var parts []string
	if s.ExpandableSegments {
		parts = append(parts, "expandable_segments:True")
	}
	if s.MaxSplitSize > 0 {
		parts = append(parts, fmt.Sprintf("max_split_size_mb:%d", s.MaxSplitSize>>20))
	}
	if s.GarbageCollectionThreshold > 0 {
		parts = append(parts, fmt.Sprintf("garbage_collection_threshold:%g", s.GarbageCollectionThreshold))
	}
	var divisions []string
	for _, r := range s.RoundupPower2Divisions {
		if r.Divisions > 1 {
			divisions = append(divisions, fmt.Sprintf("%d:%d", r.MiB, r.Divisions))
		}
	}
	if len(divisions) > 0 {
		parts = append(parts, "roundup_power2_divisions:["+strings.Join(divisions, ",")+"]")
	}
	return strings.Join(parts, ",")
}

// add applies an entry to the sums, unless it is implausible.
func (d *summary) add(sums *trace.Totals, e *trace.Event) {
	if !d.implausible(e) {
		sums.Add(e.Action, e.Size)
	}
}

// implausible reports whether an entry is for a block larger than the reserved peak.
func (d *summary) implausible(e *trace.Event) bool {
	return d.most > 0 && e.Size > d.most && (e.Action == mem.ActionAlloc || e.Action == mem.ActionFreeCompleted)
}

// history sums up the entries. W is the work of the history, or nil if it cannot be replayed.
func (d *summary) history(t *trace.Trace, w *replay.Work) {
	d.Entries = len(t.Events)
	if d.Entries == 0 {
		return
	}
	d.StartUS, d.EndUS = t.Events[0].TimeUS, t.Events[0].TimeUS
	if len(t.Streams) > len(d.Streams) {
		d.Streams = t.Streams
	}
	if t.PoolsKnown && len(t.Pools) > len(d.Pools) {
		d.Pools = t.Pools
	}
	if w != nil {
		d.most, d.NumFailures = w.RecordedReserved, w.NumFailures
		d.Failures = w.Failures[:min(len(w.Failures), maxFailures)]
		if a := &w.Program.Anomalies; a.Count > 0 {
			d.Contradictions, d.contradiction = a.Count, a.First[0].String()
		}
	}
	d.stacks = t.Stacks.Len() > 0
	var sums trace.Totals
	for i := range t.Events {
		e := &t.Events[i]
		d.Counts[e.Action.String()]++
		d.StartUS, d.EndUS = min(d.StartUS, e.TimeUS), max(d.EndUS, e.TimeUS)
		if d.implausible(e) {
			if d.Oversized++; d.Oversized == 1 {
				d.oversized = fmt.Sprintf("entry %s: %v of %s bytes", count(i), e.Action, count(e.Size))
			}
		}
		d.add(&sums, e)
	}
	// Blocks and segments of the final state that no entry allocated were there before the first entry.
	d.Late, d.LateReserved = max(d.Live.Requested-sums.Requested.Current, 0),
		max(d.Live.Reserved-sums.Reserved.Current, 0)
	if w != nil {
		d.Late = w.Program.Prelude.Bytes // an entry may contradict the final state too
	}
	if d.Late == 0 {
		d.LateReserved = 0
	}
	d.chart = newChart(t, d)
	d.biggest(t)
}

// biggest finds the largest requested sizes, by size and source position.
func (d *summary) biggest(t *trace.Trace) {
	type key struct {
		size  int64
		stack trace.StackID
	}
	counts := map[key]int{}
	for i := range t.Events {
		if e := &t.Events[i]; e.Action == mem.ActionAlloc && !d.implausible(e) {
			counts[key{e.Size, e.Stack}]++
		}
	}
	frames, lines := holders.NewFrames(t.Stacks), map[trace.StackID]string{}
	merged := map[bigAllocation]int{}
	for k, n := range counts {
		if _, known := lines[k.stack]; !known {
			lines[k.stack] = frames.Line(k.stack)
		}
		merged[bigAllocation{Size: k.size, Where: lines[k.stack]}] += n
	}
	for b, n := range merged {
		b.Count = n
		d.Biggest = append(d.Biggest, b)
	}
	slices.SortFunc(d.Biggest, func(a, b bigAllocation) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.Count, a.Count), strings.Compare(a.Where, b.Where))
	})
	d.Biggest = d.Biggest[:min(len(d.Biggest), maxBiggest)]
}
