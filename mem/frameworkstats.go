package mem

import (
	"fmt"
	"strings"
)

// FrameworkStats are statistics by the names of TensorFlow's AllocatorStats. Sizes are bytes. TensorFlow's ClearStats
// is ResetPeakStats and ResetAccumulatedStats of a StatsReporter.
type FrameworkStats struct {
	NumAllocs         int64  // num_allocs: blocks allocated
	BytesInUse        int64  // bytes_in_use: live, as the allocator rounds them
	PeakBytesInUse    int64  // peak_bytes_in_use
	LargestAllocSize  int64  // largest_alloc_size: of one block, since the last reset of peaks
	BytesLimit        *int64 // bytes_limit: maximum of live bytes; nil if unknown, as for page-locked memory
	BytesReserved     int64  // bytes_reserved: allocated from the device
	PeakBytesReserved int64  // peak_bytes_reserved

	BytesReservableLimit  *int64 // bytes_reservable_limit: maximum that the allocator may hold; nil without a limit
	LargestFreeBlockBytes int64  // largest_free_block_bytes: 0 if none is free or it is unknown
	PoolBytes             int64  // pool_bytes: in segments, which here is all reserved memory
	PeakPoolBytes         int64  // peak_pool_bytes
}

// A FrameworkReporter keeps its own statistics by TensorFlow's names.
type FrameworkReporter interface {
	FrameworkStats() FrameworkStats
}

// FrameworkStatsOf returns an allocator's statistics by TensorFlow's names: those of the topmost layer that is a
// FrameworkReporter or a StatsReporter. For a StatsReporter the largest free block comes from a snapshot, which takes
// time in proportion to the blocks. The limit is the lowest limit of all layers (see LimitOf), or the size of the
// memory if that is less. A layer reports that size, in bytes, by a method Capacity() int64. It reports false if no
// layer has statistics; a layer.SizeTracker adds them to any allocator.
func FrameworkStatsOf(a Allocator) (s FrameworkStats, ok bool) {
	for layer := range Layers(a) {
		if r, is := layer.(FrameworkReporter); is {
			s, ok = r.FrameworkStats(), true
		} else if r, is := layer.(StatsReporter); is {
			stats := r.Stats()
			s, ok = stats.Usage().FrameworkStats(stats.ReservedBytes.All), true
			s.LargestFreeBlockBytes = largestFree(layer)
		}
		if ok {
			break
		}
	}
	if !ok {
		return FrameworkStats{}, false
	}
	limit, has := LimitOf(a)
	if c, known := Find[interface{ Capacity() int64 }](a); known {
		if n := c.Capacity(); !has || n < limit {
			limit, has = n, true
		}
	}
	if has && (s.BytesLimit == nil || limit < *s.BytesLimit) {
		s.BytesLimit = &limit
	}
	return s, true
}

// FrameworkStats returns the usage, and the bytes reserved from the device, by TensorFlow's names. There are no limits,
// and the largest free block is unknown.
func (u Usage) FrameworkStats(reserved Stat) FrameworkStats {
	return FrameworkStats{
		NumAllocs: u.Blocks.Allocated, LargestAllocSize: u.Largest,
		BytesInUse: u.Bytes.Current, PeakBytesInUse: u.Bytes.Peak,
		BytesReserved: reserved.Current, PeakBytesReserved: reserved.Peak,
		PoolBytes: reserved.Current, PeakPoolBytes: reserved.Peak,
	}
}

// largestFree returns the size of the largest free block of a snapshot.
func largestFree(a Allocator) (most int64) {
	sn, ok := Find[Snapshotter](a)
	if !ok {
		return 0
	}
	for _, seg := range sn.Snapshot() {
		for _, b := range seg.Blocks {
			if b.State == Inactive {
				most = max(most, b.Size)
			}
		}
	}
	return most
}

// Map returns the statistics by TensorFlow's names. Limits that do not exist are left out.
func (s FrameworkStats) Map() map[string]int64 {
	m := make(map[string]int64, 11)
	for _, f := range s.fields() {
		if f.value != nil {
			m[f.name] = *f.value
		}
	}
	return m
}

// String returns a line for each statistic, as TensorFlow's DebugString does. A limit that does not exist is "none".
func (s FrameworkStats) String() string {
	var text strings.Builder
	for _, f := range s.fields() {
		if f.value == nil {
			fmt.Fprintf(&text, "%-25s%20s\n", f.name+":", "none")
		} else {
			fmt.Fprintf(&text, "%-25s%20d\n", f.name+":", *f.value)
		}
	}
	return text.String()
}

type frameworkField struct {
	name  string
	value *int64
}

func (s *FrameworkStats) fields() []frameworkField {
	return []frameworkField{
		{"num_allocs", &s.NumAllocs},
		{"bytes_in_use", &s.BytesInUse},
		{"peak_bytes_in_use", &s.PeakBytesInUse},
		{"largest_alloc_size", &s.LargestAllocSize},
		{"bytes_limit", s.BytesLimit},
		{"bytes_reserved", &s.BytesReserved},
		{"peak_bytes_reserved", &s.PeakBytesReserved},
		{"bytes_reservable_limit", s.BytesReservableLimit},
		{"largest_free_block_bytes", &s.LargestFreeBlockBytes},
		{"pool_bytes", &s.PoolBytes},
		{"peak_pool_bytes", &s.PeakPoolBytes},
	}
}
