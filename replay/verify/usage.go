package verify

import (
	"time"

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

// UsageOf adds segments up.
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

// peakEntry is the entry at which a recording first reached its reserved peak, or -1 if it never reserved memory.
func peakEntry(t *trace.Trace) int {
	at := -1
	var sums trace.Totals
	for i := range t.Events {
		before := sums.ReservedPeak
		if sums.Add(t.Events[i].Action, t.Events[i].Size); sums.ReservedPeak > before {
			at = i
		}
	}
	return at
}

// A DriverUse is what an allocator asked of its device.
type DriverUse struct {
	DriverCalls int64 // for memory: Alloc, Free, Reserve, Release, Create, Drop, Map, Unmap; those that failed too

	// DriverTime is what these calls take: by the cost model of a simulated device, as CompareOptions.Now tells of a real
	// one. It is -1 without that.
	DriverTime time.Duration

	// Stalls is how many calls (Sync of a stream, Free of the device) kept the host waiting for work that was not done.
	// A simulated device knows the slowest program there could be: a block is in use by its stream from the moment it is
	// allocated until after it is freed, and that work is done when somebody waits for it, and not before. On a real
	// device the only work is what writes and checks contents.
	Stalls int64
}

// Since returns the difference to an earlier reading.
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
