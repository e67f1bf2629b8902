package snapshot

import (
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/trace"
)

// Live holds optional parts of a snapshot that Of cannot get from an allocator. The zero value is valid.
type Live struct {
	Device int // ordinal

	// Recorder, if not nil, is attached to the allocator. It provides the history, the stacks of blocks and segments,
	// and annotations.
	Recorder *trace.Recorder

	Annotations []Annotation // placed before those of Recorder
}

// Of returns a snapshot of the current state of an allocator: its segments from one call of mem.Snapshotter, and
// further parts from its other layers. The error is an *Error if no layer is a Snapshotter.
//
//   - Statistics are those of the topmost mem.StatsReporter, read directly afterwards.
//   - Settings are those of mem/caching, if it is the lowest layer.
//   - Limits has the lowest limit of the layers (mem.LimitOf), such as that of an engine's device.
//   - The stacks of blocks are those of the recorder, or else of a *layer.LeakTracker among the layers.
//   - If the allocator reports the moment at which it describes the segments to its observers (mem.ActionSnapshot), as
//     mem/caching does, the history and the stacks are those of that moment. The history then leads to the segments
//     even if other goroutines allocate during the call, provided that one snapshot is taken at a time. With other
//     allocators no goroutine may allocate or free until Of returns.
func Of(a mem.Allocator, o Live) (*Snapshot, error) {
	layer, ok := mem.Find[mem.Snapshotter](a)
	if !ok {
		return nil, &Error{Reason: "the allocator does not describe what it holds: no layer of it is a mem.Snapshotter"}
	}
	return of(a, layer.Snapshot, o), nil
}

// of implements Of. It calls describe for the segments.
func of(a mem.Allocator, describe func() []mem.SegmentInfo, o Live) *Snapshot {
	var infos []mem.SegmentInfo
	view := &trace.View{}
	if o.Recorder == nil {
		infos = describe()
	} else {
		view = o.Recorder.View(func() { infos = describe() })
	}
	s := &Snapshot{
		Segments: make([]Segment, 0, len(infos)), Traces: make([]*trace.Trace, o.Device+1), Stacks: view.Stacks,
		Annotations: annotationsOf(o, view),
	}
	if reporter, ok := mem.Find[mem.StatsReporter](a); ok {
		s.Stats = reporter.Stats().Map()
	}
	if t := view.Trace; t != nil && len(t.Events) > 0 {
		t.Device = o.Device
		s.Traces[o.Device] = t
	}
	if limit, ok := mem.LimitOf(a); ok {
		s.Limits = make([]int64, o.Device+1)
		s.Limits[o.Device] = limit
	}
	if c, ok := mem.Find[*caching.Allocator](a); ok {
		s.Settings = SettingsOf(c.Config())
	}
	sites := map[driver.Pointer]layer.LiveBlock{}
	if tracker, ok := mem.Find[*layer.LeakTracker](a); ok {
		for _, b := range tracker.Live() {
			sites[b.Block.Ptr] = b
		}
	}
	stacks := trace.NewStackSet(s.Stacks)
	for i := range infos {
		seg := segmentOf(&infos[i], o.Device, func(b *mem.BlockInfo) trace.StackID {
			if b.State == mem.Inactive {
				return 0
			}
			if id := view.Block(b.Ptr); id != 0 {
				return id
			}
			site, ok := sites[b.Ptr]
			if !ok || b.State != mem.ActiveAllocated || site.Requested != b.RequestedSize {
				return 0
			}
			return stacks.Add(siteFrames(site.Site))
		})
		seg.Stack = view.Segment(seg.Ptr)
		s.Segments = append(s.Segments, seg)
	}
	if s.Stacks = stacks.Table(); s.Traces[o.Device] != nil {
		s.Traces[o.Device].Stacks = s.Stacks
	}
	return s
}

func annotationsOf(o Live, view *trace.View) []Annotation {
	all := o.Annotations[:len(o.Annotations):len(o.Annotations)]
	for _, a := range view.Annotations {
		all = append(all, Annotation{
			Device: o.Device, TimeUS: a.TimeUS, Name: a.Name, Stage: a.Stage,
			Metadata: a.Metadata,
		})
	}
	return all
}

func segmentOf(info *mem.SegmentInfo, device int, stack func(*mem.BlockInfo) trace.StackID) Segment {
	seg := Segment{
		Device: device, Ptr: info.Ptr, TotalSize: info.TotalSize, AllocatedSize: info.AllocatedSize,
		ActiveSize: info.ActiveSize, RequestedSize: info.RequestedSize, Stream: uint64(info.Stream), Pool: info.Pool,
		Large: info.Large, Expandable: info.Expandable, Blocks: make([]Block, len(info.Blocks)),
	}
	for i := range info.Blocks {
		b := &info.Blocks[i]
		seg.Blocks[i] = Block{Ptr: b.Ptr, Size: b.Size, RequestedSize: b.RequestedSize, State: b.State, Stack: stack(b)}
	}
	return seg
}

// siteFrames returns the frames of a site that a LeakTracker recorded.
func siteFrames(site []runtime.Frame) []trace.Frame {
	frames := make([]trace.Frame, len(site))
	for i := range site {
		frames[i] = trace.Frame{Name: site[i].Function, Filename: site[i].File, Line: int64(site[i].Line)}
	}
	return frames
}
