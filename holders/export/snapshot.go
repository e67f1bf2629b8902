package export

import (
	"cmp"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

const (
	blockUnit = 512     // PyTorch rounds requests up to it: kMinBlockSize
	smallSize = 1 << 20 // PyTorch splits no block of a large segment to leave less: kSmallSize
)

// Snapshot returns s as it would have been if it had been taken at the moments of the views, each of another device:
// the events up to the moment, and the segments and blocks that existed then. The settings, stacks and tables are
// shared with s, which is not changed. Statistics and the report of a failed request are those of the end, and are left
// out.
//
// Without views it returns s.
//
// Segments are those of History.Segments: one that was released later has its pool only if the recording has pools. The
// active blocks have the requested sizes of the recording. Their own sizes, which no event has, are rounded up as
// PyTorch does by default, and include the rest of a segment that PyTorch would not split off. So they may be smaller
// than they were.
func Snapshot(s *snapshot.Snapshot, views ...*holders.View) *snapshot.Snapshot {
	if len(views) == 0 {
		return s
	}
	cut := *s
	cut.Stats, cut.OutOfMemory = nil, nil
	cut.Traces, cut.TraceExtra = slices.Clone(s.Traces), slices.Clone(s.TraceExtra)
	for _, v := range views {
		device, events := v.Device(), v.Moment.Event+1
		cut.Segments = slices.DeleteFunc(slices.Clone(cut.Segments), func(seg snapshot.Segment) bool {
			return seg.Device == device
		})
		at, _ := slices.BinarySearchFunc(cut.Segments, device, func(seg snapshot.Segment, device int) int {
			return seg.Device - device
		})
		cut.Segments = slices.Insert(cut.Segments, at, segmentsAt(s, v)...)
		if t := v.History().Trace.Expanded(); device < len(cut.Traces) && len(t.Events) > events {
			cut.Traces[device] = cutTrace(t, events)
			if device < len(cut.TraceExtra) {
				cut.TraceExtra[device] = cutExtra(cut.TraceExtra[device], events)
			}
			until := t.Events[events].TimeUS
			cut.Annotations = slices.DeleteFunc(slices.Clone(cut.Annotations), func(a snapshot.Annotation) bool {
				return a.Device == device && until > 0 && a.TimeUS > until
			})
		}
	}
	return &cut
}

// cutTrace returns the first events of a trace.
func cutTrace(t *trace.Trace, events int) *trace.Trace {
	if events == 0 {
		return nil
	}
	cut := *t
	cut.Events = t.Events[:events]
	cut.Gaps = t.Gaps[:sort.SearchInts(t.Gaps, events+1)]
	cut.CompileContexts = t.CompileContexts[:sort.Search(len(t.CompileContexts), func(i int) bool {
		return t.CompileContexts[i].First >= events
	})]
	return &cut
}

func cutExtra(x snapshot.TraceExtra, events int) snapshot.TraceExtra {
	x.Keys = x.Keys[:sort.Search(len(x.Keys), func(i int) bool { return x.Keys[i].First >= events })]
	x.Unknown = x.Unknown[:sort.Search(len(x.Unknown), func(i int) bool { return x.Unknown[i].Before > events })]
	return x
}

// segmentsAt returns the segments of a device at the moment of a view, by address.
func segmentsAt(s *snapshot.Snapshot, v *holders.View) (all []snapshot.Segment) {
	final := map[driver.Pointer]*snapshot.Segment{}
	own := s.SegmentsOf(v.Device())
	for i := range own {
		final[own[i].Ptr] = &own[i]
	}
	last := v.History().Trace.Len()
	for _, r := range v.History().Segments() {
		if !r.ActiveAt(v.Moment.Event) {
			continue
		}
		seg := snapshot.Segment{
			Device: v.Device(), Ptr: r.Ptr, TotalSize: r.Size, Stream: r.Stream, Pool: r.Pool, Large: r.Large,
			Expandable: r.Expandable,
		}
		if f := final[r.Ptr]; f != nil && int(r.End) == last {
			seg.Stack, seg.Extra = f.Stack, f.Extra
		}
		all = append(all, seg)
	}
	slices.SortFunc(all, func(a, b snapshot.Segment) int { return cmp.Compare(a.Ptr, b.Ptr) })
	all = join(all)
	fill(all, v)
	return all
}

// join joins the pages of expandable segments that follow each other. PyTorch has one segment for them.
func join(all []snapshot.Segment) (joined []snapshot.Segment) {
	for _, seg := range all {
		if n := len(joined); n > 0 {
			before := &joined[n-1]
			if before.Expandable && seg.Expandable && end(before) == seg.Ptr && before.Stream == seg.Stream {
				before.TotalSize += seg.TotalSize
				before.Large = before.Large || seg.Large
				if before.Pool == (mem.PoolID{}) { // unknown, if the pages were released later
					before.Pool = seg.Pool
				}
				continue
			}
		}
		joined = append(joined, seg)
	}
	return joined
}

func end(seg *snapshot.Segment) driver.Pointer { return seg.Ptr + driver.Pointer(seg.TotalSize) }

// fill sets the blocks of the segments and the sums over them.
func fill(all []snapshot.Segment, v *holders.View) {
	blocks := slices.Clone(v.Blocks)
	slices.SortFunc(blocks, func(a, b holders.Block) int { return cmp.Compare(a.Ptr, b.Ptr) })
	for i := range all {
		seg := &all[i]
		first := sort.Search(len(blocks), func(n int) bool { return blocks[n].Ptr >= seg.Ptr })
		last := sort.Search(len(blocks), func(n int) bool { return blocks[n].Ptr >= end(seg) })
		fillSegment(seg, blocks[first:last], v.Moment.Event)
	}
}

// fillSegment sets the blocks of a segment.
func fillSegment(seg *snapshot.Segment, active []holders.Block, event int) {
	free := func(from, to driver.Pointer) {
		if from < to {
			seg.Blocks = append(seg.Blocks, snapshot.Block{Ptr: from, Size: int64(to - from)})
		}
	}
	next := seg.Ptr
	for i, b := range active {
		if b.Ptr < next || b.Size < 0 {
			continue // it contradicts the block before it
		}
		free(next, b.Ptr)
		limit := end(seg)
		if i+1 < len(active) {
			limit = active[i+1].Ptr
		}
		room := int64(limit - b.Ptr)
		size := room
		if rounded := (max(b.Size, 1) + blockUnit - 1) / blockUnit * blockUnit; rounded < room &&
			(!seg.Large || room-rounded > smallSize) {
			size = rounded
		}
		block := snapshot.Block{
			Ptr: b.Ptr, Size: size, RequestedSize: b.Size, State: mem.ActiveAllocated, Stack: b.Stack,
		}
		if int(b.Freed) <= event {
			block.State = mem.ActivePendingFree
		} else {
			seg.AllocatedSize += size
		}
		seg.ActiveSize += size
		seg.RequestedSize += b.Size
		seg.Blocks = append(seg.Blocks, block)
		next = b.Ptr + driver.Pointer(size)
	}
	free(next, end(seg))
}
