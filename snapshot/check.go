package snapshot

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// maxCheckErrors is the maximum number of errors that Check reports.
const maxCheckErrors = 20

// Check reports inconsistencies of the segments: segments of one device that overlap, gaps between blocks, and sizes of
// a segment that differ from the sums over its blocks. Files of PyTorch are consistent. The error joins one *Error for
// each inconsistency.
func (s *Snapshot) Check() error {
	var all []error
	for i := range s.Segments {
		if len(all) >= maxCheckErrors {
			break
		}
		all = append(all, s.checkSegment(i)...)
	}
	return errors.Join(all...)
}

func (s *Snapshot) checkSegment(i int) (all []error) {
	seg := &s.Segments[i]
	report := func(field, format string, args ...any) {
		all = append(all, &Error{
			Place: fmt.Sprintf("device %d, segment at %#x", seg.Device, uint64(seg.Ptr)), Field: field,
			Reason: fmt.Sprintf(format, args...),
		})
	}
	if i > 0 {
		before := &s.Segments[i-1]
		if before.Device == seg.Device && seg.Ptr-before.Ptr < driver.Pointer(before.TotalSize) {
			report("address", "overlaps the segment at %#x of %d bytes", uint64(before.Ptr), before.TotalSize)
		}
	}
	next := seg.Ptr
	for j := range seg.Blocks {
		b := &seg.Blocks[j]
		if b.Ptr != next {
			report("blocks", "a gap of %d bytes before the block at %#x", int64(b.Ptr-next), uint64(b.Ptr))
			break
		}
		next += driver.Pointer(b.Size)
	}
	if end := seg.Ptr + driver.Pointer(seg.TotalSize); len(all) == 0 && next != end {
		report("blocks", "a gap of %d bytes after the last", int64(end-next))
	}
	allocated, active, requested := seg.sums()
	if allocated != seg.AllocatedSize {
		report("allocated_size", "%d, but the allocated blocks have %d", seg.AllocatedSize, allocated)
	}
	if active != seg.ActiveSize {
		report("active_size", "%d, but the active blocks have %d", seg.ActiveSize, active)
	}
	if seg.RequestedSize != 0 && requested != seg.RequestedSize {
		report("requested_size", "%d, but the active blocks have %d", seg.RequestedSize, requested)
	}
	return all
}
