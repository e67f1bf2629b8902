package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
func summaries(in *input) []summary {
	s, surveys := in.snapshot, in.surveys
	if surveys == nil {
		surveys = surveysOf(s)
	}
	skipped := []skip{}
	for _, k := range s.Skipped {
		skipped = append(skipped, skip{k.What, k.Count})
	}
	var all []summary
	for device := range s.NumDevices() {
		d := summary{Device: device, Skipped: skipped, Counts: map[string]int{}, Segments: []segmentLine{}}
		if s.Settings.Raw != nil {
			text := settingsText(&s.Settings)
			d.Settings = &text
		}
		if device < len(s.Limits) && s.Limits[device] > 0 {
			d.Limit = &s.Limits[device]
		}
		d.final(s)
		if n := surveys[device]; n != nil {
			d.history(s.Traces[device], n)
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

// history sums up the entries.
func (d *summary) history(t *trace.Trace, n *survey) {
	d.Entries, d.StartUS, d.EndUS = n.entries, n.start, n.end
	for a, count := range n.counts {
		if count > 0 {
			d.Counts[mem.Action(a).String()] = count
		}
	}
	if len(t.Streams) > len(d.Streams) {
		d.Streams = t.Streams
	}
	if t.PoolsKnown && len(t.Pools) > len(d.Pools) {
		d.Pools = t.Pools
	}
	w := n.work
	if w != nil {
		d.NumFailures = w.NumFailures
		d.Failures = w.Failures[:min(len(w.Failures), maxFailures)]
		if a := &w.Program.Anomalies; a.Count > 0 {
			d.Contradictions, d.contradiction = a.Count, a.First[0].String()
		}
	}
	d.stacks = t.Stacks.Len() > 0
	// Blocks and segments of the final state that no entry allocated were there before the first entry.
	d.Late, d.LateReserved = max(d.Live.Requested-n.sums.Requested.Current-n.leftOut, 0),
		max(d.Live.Reserved-n.sums.Reserved.Current, 0)
	if w != nil {
		d.Late = w.Program.Prelude.Bytes // an entry may contradict the final state too
	}
	if d.Late == 0 {
		d.LateReserved = 0
	}
	d.Oversized, d.oversized = n.oversized, n.firstOversized
	d.Peaks.Requested, d.Peaks.Reserved = d.Late+n.sums.Requested.Peak, d.LateReserved+n.sums.Reserved.Peak
	d.chart = newChart(d, &n.memory)
	d.Biggest = n.biggest.list(t, n.numbers)
}
