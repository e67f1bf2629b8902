package export

import (
	"fmt"
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
	smallPool = 2 << 20 // the size of PyTorch's segments for blocks up to smallSize: kSmallBuffer

	maxSegments = 1 << 18
)

// Snapshot returns s as it would have been if it had been taken at the moments of the views, each of another device: the
// events up to the moment, and the segments and blocks that existed then. The settings, stacks and tables are shared
// with s, which is not changed. Statistics and the report of a failed request are those of the end, and are left out.
//
// Segments follow from the final state and the later events. A segment that was freed later has the stream of that
// event, and its pool if the recording has pools. The active blocks have the requested sizes of the recording. Their
// own sizes, which no event has, are rounded up as PyTorch does by default, and include the rest of a segment that
// PyTorch would not split off. So they may be smaller than they were.
//
// It is an error if there were more than 262,144 segments at a time.
func Snapshot(s *snapshot.Snapshot, views ...*holders.View) (*snapshot.Snapshot, error) {
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
		segments, err := segmentsAt(s, v)
		if err != nil {
			return nil, err
		}
		cut.Segments = slices.Insert(cut.Segments, at, segments...)
		if t := v.History().Trace; device < len(cut.Traces) && len(t.Events) > events {
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
	return &cut, nil
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
func segmentsAt(s *snapshot.Snapshot, v *holders.View) ([]snapshot.Segment, error) {
	final := slices.Clone(s.SegmentsOf(v.Device()))
	x := segmentTable{device: v.Device(), all: make([]*snapshot.Segment, len(final))}
	for i := range final {
		x.all[i] = &final[i]
	}
	t := v.History().Trace
	for i := len(t.Events) - 1; i > v.Moment.Event; i-- {
		e := &t.Events[i]
		switch e.Action {
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			x.remove(e.Ptr, e.Size)
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			x.add(t, e)
		}
		if len(x.all) > maxSegments {
			return nil, fmt.Errorf("export: device %d had more than %d segments at event %d", v.Device(), maxSegments, i)
		}
	}
	x.fill(v)
	segments := make([]snapshot.Segment, len(x.all))
	for i, seg := range x.all {
		segments[i] = *seg
	}
	return segments, nil
}

// A segmentTable holds the segments of a device by address, while it goes back in time.
type segmentTable struct {
	device int
	all    []*snapshot.Segment
}

// after returns the index of the first segment that ends after an address.
func (x *segmentTable) after(p driver.Pointer) int {
	return sort.Search(len(x.all), func(i int) bool { return end(x.all[i]) > p })
}

func end(seg *snapshot.Segment) driver.Pointer { return seg.Ptr + driver.Pointer(seg.TotalSize) }

// remove removes memory: a segment, or a part of one that is mapped page by page.
func (x *segmentTable) remove(p driver.Pointer, size int64) {
	to := p + driver.Pointer(size)
	for i := x.after(p); i < len(x.all) && x.all[i].Ptr < to; {
		seg := x.all[i]
		x.all = slices.Delete(x.all, i, i+1)
		if seg.Ptr < p {
			left := *seg
			left.TotalSize = int64(p - seg.Ptr)
			x.all = slices.Insert(x.all, i, &left)
			i++
		}
		if end(seg) > to {
			right := *seg
			right.Ptr, right.TotalSize = to, int64(end(seg)-to)
			x.all = slices.Insert(x.all, i, &right)
			i++
		}
	}
}

// add adds memory that an event frees, unless it contradicts the other segments. Pages join their neighbours.
func (x *segmentTable) add(t *trace.Trace, e *trace.Event) {
	seg := &snapshot.Segment{
		Device: x.device, Ptr: e.Ptr, TotalSize: e.Size, Large: e.Size > smallPool,
		Expandable: e.Action == mem.ActionSegmentUnmap, Stack: e.Stack,
	}
	if int(e.Stream) < len(t.Streams) {
		seg.Stream = t.Streams[e.Stream]
	}
	if t.PoolsKnown && int(e.Pool) < len(t.Pools) {
		seg.Pool = t.Pools[e.Pool]
	}
	i := x.after(e.Ptr)
	if e.Size <= 0 || i < len(x.all) && x.all[i].Ptr < end(seg) {
		return
	}
	if i < len(x.all) && joins(seg, x.all[i]) {
		joined := *x.all[i]
		joined.Ptr, joined.TotalSize = seg.Ptr, joined.TotalSize+seg.TotalSize
		seg = &joined
		x.all = slices.Delete(x.all, i, i+1)
	}
	if i > 0 && joins(x.all[i-1], seg) {
		joined := *x.all[i-1]
		joined.TotalSize += seg.TotalSize
		x.all[i-1] = &joined
		return
	}
	x.all = slices.Insert(x.all, i, seg)
}

// joins reports whether b continues a: pages of one expandable segment.
func joins(a, b *snapshot.Segment) bool {
	return a.Expandable && b.Expandable && end(a) == b.Ptr && a.Stream == b.Stream
}

// fill sets the blocks of the segments and the sums over them.
func (x *segmentTable) fill(v *holders.View) {
	blocks := slices.Clone(v.Blocks)
	slices.SortFunc(blocks, func(a, b *holders.Block) int {
		switch {
		case a.Ptr < b.Ptr:
			return -1
		case a.Ptr > b.Ptr:
			return 1
		}
		return 0
	})
	for _, seg := range x.all {
		seg.Blocks, seg.AllocatedSize, seg.ActiveSize, seg.RequestedSize = nil, 0, 0, 0
		first := sort.Search(len(blocks), func(n int) bool { return blocks[n].Ptr >= seg.Ptr })
		last := sort.Search(len(blocks), func(n int) bool { return blocks[n].Ptr >= end(seg) })
		fillSegment(seg, blocks[first:last], v.Moment.Event)
	}
}

// fillSegment sets the blocks of a segment.
func fillSegment(seg *snapshot.Segment, active []*holders.Block, event int) {
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
