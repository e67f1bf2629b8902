package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A summary is what info says of one device, and the output of info --json.
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
	Biggest []bigAllocation `json:"biggest"`
	Skipped []snapshot.Skip `json:"-"`

	chart chart
}

// A bigAllocation is a size that was asked for, by one place in the code.
type bigAllocation struct {
	Size  int64  `json:"size"`
	Count int    `json:"count"`
	Where string `json:"where,omitempty"`
}

// maxBiggest is how many big allocations are shown.
const maxBiggest = 8

// summaries sums up each device that has a history or segments.
func summaries(s *snapshot.Snapshot) []summary {
	devices := len(s.Traces)
	for i := range s.Segments {
		devices = max(devices, s.Segments[i].Device+1)
	}
	var all []summary
	for device := range devices {
		var t *trace.Trace
		if device < len(s.Traces) {
			t = s.Traces[device]
		}
		d := summary{Device: device, Skipped: s.Skipped, Counts: map[string]int{}}
		if s.Settings.Raw != nil {
			text := settingsText(&s.Settings)
			d.Settings = &text
		}
		d.final(s)
		if t != nil {
			d.history(t)
		}
		if d.Entries > 0 || d.Live.Segments > 0 {
			all = append(all, d)
		}
	}
	return all
}

// final sums up the final state.
func (d *summary) final(s *snapshot.Snapshot) {
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device != d.Device {
			continue
		}
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
	slices.SortFunc(d.Pools, func(a, b mem.PoolID) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
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

// change is what an entry adds to what is requested and reserved.
func change(e *trace.Event) (requested, reserved int64) {
	switch e.Action {
	case mem.ActionAlloc:
		return e.Size, 0
	case mem.ActionFreeCompleted:
		return -e.Size, 0
	case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
		return 0, e.Size
	case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
		return 0, -e.Size
	}
	return 0, 0
}

// history sums up the entries.
func (d *summary) history(t *trace.Trace) {
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
	var requested, reserved int64
	for i := range t.Events {
		e := &t.Events[i]
		d.Counts[e.Action.String()]++
		d.StartUS, d.EndUS = min(d.StartUS, e.TimeUS), max(d.EndUS, e.TimeUS)
		a, b := change(e)
		requested, reserved = requested+a, reserved+b
	}
	// What is there at the end and was never allocated was there before.
	d.Late, d.LateReserved = max(d.Live.Requested-requested, 0), max(d.Live.Reserved-reserved, 0)
	if d.Late == 0 {
		d.LateReserved = 0
	}
	d.chart = newChart(t, d)
	d.biggest(t)
}

// biggest finds the largest sizes that were asked for, by size and place.
func (d *summary) biggest(t *trace.Trace) {
	type key struct {
		size  int64
		stack trace.StackID
	}
	counts := map[key]int{}
	for i := range t.Events {
		if e := &t.Events[i]; e.Action == mem.ActionAlloc {
			counts[key{e.Size, e.Stack}]++
		}
	}
	places := map[trace.StackID]string{}
	merged := map[bigAllocation]int{}
	for k, n := range counts {
		where, known := places[k.stack]
		if !known {
			where = place(t.Stacks, k.stack)
			places[k.stack] = where
		}
		merged[bigAllocation{Size: k.size, Where: where}] += n
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

// place is the line of code that a stack comes from: the innermost one in Python that is not part of PyTorch, or else
// the innermost one in Python, or else the innermost one that has a name.
func place(stacks *trace.Stacks, id trace.StackID) string {
	if stacks == nil || stacks.Len() == 0 {
		return ""
	}
	best, rank := "(no stack)", 0
	for _, n := range stacks.At(id) {
		f := &stacks.Frames[n]
		r := 1
		if strings.HasSuffix(f.Filename, ".py") {
			r = 2
			if !strings.Contains(f.Filename, "/torch/") {
				r = 3
			}
		} else if f.Name == "" || f.Name == "??" {
			continue
		}
		if r > rank {
			rank = r
			if best = f.Name; r > 1 {
				best = fmt.Sprintf("%s:%d %s", path.Base(f.Filename), f.Line, f.Name)
			}
		}
	}
	return best
}
