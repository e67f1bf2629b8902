package verify

import (
	"time"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// Usage divides reserved memory at one moment, in bytes: Reserved is the sum of the other fields.
type Usage struct {
	Reserved  int64
	Requested int64 // requested, of active blocks
	Rounding  int64 // size of active blocks beyond the requested bytes
	Stranded  int64 // free bytes in segments with an active block, which cannot be freed
	Free      int64 // free bytes in segments without an active block
}

func (u *Usage) add(o Usage) {
	u.Reserved += o.Reserved
	u.Requested += o.Requested
	u.Rounding += o.Rounding
	u.Stranded += o.Stranded
	u.Free += o.Free
}

// UsageOf returns the usage of segments.
func UsageOf(segments []mem.SegmentInfo) (u Usage) {
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

// peakEntry returns the entry at which a recording first reached its reserved peak, or -1 if it never reserved memory.
func peakEntry(t *trace.Trace) int {
	at := -1
	var sums trace.Totals
	for i := range t.Events {
		before := sums.Reserved.Peak
		if sums.Add(t.Events[i].Action, t.Events[i].Size); sums.Reserved.Peak > before {
			at = i
		}
	}
	return at
}

// DriverUse is the use that an allocator made of its device.
type DriverUse struct {
	DriverCalls int64 // Alloc, Free, Reserve, Release, Create, Drop, Map and Unmap, including failed calls

	// DriverTime is the time of these calls: by the cost model of a simulated device, or measured on a real one with a
	// clock. It is -1 if unknown.
	DriverTime time.Duration

	// Stalls is the number of calls (Sync of a stream, Free of the device) that made the host wait for work. A
	// simulated device assumes the slowest possible program: a block is in use by its stream from its allocation until
	// after its free, and the work completes when a call waits for it. On a real device the only work is the writing
	// and checking of contents.
	Stalls int64
}

// Since returns the use since an earlier reading.
func (u DriverUse) Since(earlier DriverUse) DriverUse {
	u.DriverCalls -= earlier.DriverCalls
	u.Stalls -= earlier.Stalls
	if u.DriverTime >= 0 {
		u.DriverTime -= earlier.DriverTime
	}
	return u
}

func (u *DriverUse) add(o DriverUse) {
	u.DriverCalls += o.DriverCalls
	u.DriverTime += o.DriverTime
	u.Stalls += o.Stalls
}
