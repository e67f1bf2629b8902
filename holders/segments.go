package holders

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Segment is a range of reserved memory: a segment of the allocator, or pages that were mapped into an expandable
// segment. Pages that were mapped together and unmapped apart are several. It is reserved after the events Start to
// End-1.
type Segment struct {
	Ptr        driver.Pointer
	Size       int64  // bytes
	Start      int32  // the event that reserved it; -1 if it is older than the recording
	End        int32  // the event that released it; Trace.Len() if it was still reserved at the end
	Stream     uint64 // handle
	Pool       mem.PoolID
	Expandable bool
	Large      bool // in the pool for blocks over 1 MiB; of one that was released, as its size tells
}

// maxSmall is the size of PyTorch's segments for blocks of up to 1 MiB, in bytes (kSmallBuffer in
// c10/core/AllocatorConfig.h).
const maxSmall = 2 << 20

// ActiveAt reports whether the segment is reserved after an event.
func (s *Segment) ActiveAt(event int) bool { return int(s.Start) <= event && event < int(s.End) }

// stop is the address after the last byte.
func (s *Segment) stop() driver.Pointer { return s.Ptr + driver.Pointer(s.Size) }

// Segments returns all memory that was reserved during the recording, by Start and then by address. It begins with the
// final state and undoes the events, so that memory is included that was reserved before the recording.
func (h *History) Segments() []Segment {
	t := h.Trace
	u := undo{}
	own := h.snapshot.SegmentsOf(t.Device)
	for i := range own {
		u.open.insert(Segment{
			Ptr: own[i].Ptr, Size: own[i].TotalSize, End: int32(t.Len()),
			Stream: own[i].Stream, Pool: own[i].Pool, Expandable: own[i].Expandable, Large: own[i].Large,
		})
	}
	changes := t.Find(mem.ActionSegmentAlloc, mem.ActionSegmentMap, mem.ActionSegmentFree, mem.ActionSegmentUnmap)
	for _, i := range slices.Backward(changes) {
		e := t.At(int(i))
		if e.Size <= 0 {
			continue
		}
		s := Segment{
			Ptr: e.Ptr, Size: e.Size, End: i,
			Expandable: e.Action == mem.ActionSegmentUnmap, Large: e.Size > maxSmall,
		}
		switch e.Action {
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			u.reserved(s.Ptr, s.stop(), i)
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			if int(e.Stream) < len(t.Streams) {
				s.Stream = t.Streams[e.Stream]
			}
			if t.PoolsKnown && int(e.Pool) < len(t.Pools) {
				s.Pool = t.Pools[e.Pool]
			}
			u.reserved(s.Ptr, s.stop(), i) // nothing, unless the recording contradicts itself
			u.open.insert(s)
		}
	}
	for s := range u.open.all() {
		s.Start = -1
		u.closed = append(u.closed, s)
	}
	slices.SortFunc(u.closed, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Ptr, b.Ptr))
	})
	return u.closed
}

// An undo goes through the events from the last to the first.
type undo struct {
	open   segmentList // reserved after the current event; without Start
	closed []Segment
}

// reserved closes a range of addresses, which may be parts of open segments: an event reserved it.
func (u *undo) reserved(ptr, stop driver.Pointer, event int32) {
	for {
		s, ok := u.open.take(ptr, stop)
		if !ok {
			return
		}
		if s.Ptr < ptr {
			u.open.insert(s.part(s.Ptr, ptr))
		}
		if s.stop() > stop {
			u.open.insert(s.part(stop, s.stop()))
		}
		inside := s.part(max(s.Ptr, ptr), min(s.stop(), stop))
		inside.Start = event
		u.closed = append(u.closed, inside)
	}
}

// part returns the segment with other bounds.
func (s Segment) part(ptr, stop driver.Pointer) Segment {
	s.Ptr, s.Size = ptr, int64(stop-ptr)
	return s
}
