package replay

import (
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// Usage says what reserved memory held at a moment, in bytes: Reserved is the sum of the others.
type Usage struct {
	Reserved  int64
	Requested int64 // asked for, of active blocks
	Rounding  int64 // by which active blocks are larger than that
	Stranded  int64 // free, beside an active block of the same segment, so that it cannot be given back
	Free      int64 // in segments without any active block
}

func (u *Usage) add(o Usage) {
	u.Reserved += o.Reserved
	u.Requested += o.Requested
	u.Rounding += o.Rounding
	u.Stranded += o.Stranded
	u.Free += o.Free
}

// usageOf adds segments up.
func usageOf(segments []mem.SegmentInfo) (u Usage) {
	for i := range segments {
		s := &segments[i]
		u.Reserved += s.TotalSize
		u.Requested += s.RequestedSize
		u.Rounding += s.ActiveSize - s.RequestedSize
		if s.ActiveSize == 0 {
			u.Free += s.TotalSize
		} else {
			u.Stranded += s.TotalSize - s.ActiveSize
		}
	}
	return u
}

// peakEntry is the entry at which a recording first reserved the most, or -1 if it never reserved any.
func peakEntry(t *trace.Trace) int {
	var reserved, peak int64
	at := -1
	for i := range t.Events {
		switch e := &t.Events[i]; e.Action {
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			if reserved += e.Size; reserved > peak {
				peak, at = reserved, i
			}
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			reserved -= e.Size
		}
	}
	return at
}
