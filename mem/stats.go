package mem

import (
	"fmt"
	"iter"
)

// A Stat follows one quantity. Allocated is the sum of its increases, Freed the sum of its decreases.
type Stat struct {
	Current, Peak, Allocated, Freed int64
}

// Increase adds n, which is not negative.
func (s *Stat) Increase(n int64) {
	s.Current += n
	s.Allocated += n
	s.Peak = max(s.Peak, s.Current)
}

// Decrease subtracts n, which is not negative.
func (s *Stat) Decrease(n int64) {
	s.Current -= n
	s.Freed += n
}

// A Usage follows blocks: their sizes in bytes, as the allocator rounds them, and their number.
type Usage struct {
	Bytes, Blocks Stat
	Largest       int64 // bytes of the largest block since the last reset of peaks
}

// Alloc counts a new block of size bytes.
func (u *Usage) Alloc(size int64) {
	u.Bytes.Increase(size)
	u.Blocks.Increase(1)
	u.Largest = max(u.Largest, size)
}

// Free counts the end of a block of size bytes.
func (u *Usage) Free(size int64) {
	u.Bytes.Decrease(size)
	u.Blocks.Decrease(1)
}

// A StatArray follows one quantity: in all pools together, in the pools of small blocks (up to 1 MiB), and in the pools
// of large blocks.
type StatArray struct {
	All, SmallPool, LargePool Stat
}

// Stats are the counters of a caching allocator, by the names of torch.cuda.memory_stats().
type Stats struct {
	Allocation         StatArray // live blocks
	Segment            StatArray // segments from the driver, without expandable ones
	Active             StatArray // live blocks or waiting for other streams
	InactiveSplit      StatArray // free blocks that share a segment, which therefore cannot be freed
	AllocatedBytes     StatArray
	ReservedBytes      StatArray
	ActiveBytes        StatArray
	InactiveSplitBytes StatArray
	RequestedBytes     StatArray // requested bytes of the active blocks

	OversizeAllocations Stat // live blocks of at least MaxSplitSize
	OversizeSegments    Stat

	NumAllocRetries   int64 // requests that needed the whole cache freed first
	NumOOMs           int64 // requests without room; as in PyTorch, those beyond 1 EiB are refused and not counted
	NumSyncAllStreams int64
	NumDeviceAlloc    int64 // segments allocated and ranges mapped
	NumDeviceFree     int64 // segments freed and ranges unmapped
	NumOOMRejections  int64 // requests refused at once, under throw_on_cudamalloc_oom
	MaxSplitSize      int64 // bytes; -1 if blocks of every size may be split

	// LargestAlloc is the size in bytes of the largest block allocated since the last reset of peaks. It is
	// TensorFlow's largest_alloc_size; torch.cuda.memory_stats() has no such key.
	LargestAlloc int64
}

// Arrays returns the nine quantities that are counted by pool, with PyTorch's names for them.
func (s *Stats) Arrays() []NamedStatArray {
	return []NamedStatArray{
		{"allocation", &s.Allocation},
		{"segment", &s.Segment},
		{"active", &s.Active},
		{"inactive_split", &s.InactiveSplit},
		{"allocated_bytes", &s.AllocatedBytes},
		{"reserved_bytes", &s.ReservedBytes},
		{"active_bytes", &s.ActiveBytes},
		{"inactive_split_bytes", &s.InactiveSplitBytes},
		{"requested_bytes", &s.RequestedBytes},
	}
}

// Usage returns the live blocks.
func (s *Stats) Usage() Usage {
	return Usage{Bytes: s.AllocatedBytes.All, Blocks: s.Allocation.All, Largest: s.LargestAlloc}
}

// ResetPeaks sets each peak to the current value, and forgets the largest block, as TensorFlow's ClearStats does.
func (s *Stats) ResetPeaks() {
	for st := range s.each() {
		st.Peak = st.Current
	}
	s.LargestAlloc = 0
}

// ResetAccumulated sets the sums of increases and decreases, and the counts, to zero.
func (s *Stats) ResetAccumulated() {
	for st := range s.each() {
		st.Allocated, st.Freed = 0, 0
	}
	s.NumAllocRetries, s.NumOOMs, s.NumSyncAllStreams, s.NumDeviceAlloc, s.NumDeviceFree, s.NumOOMRejections = 0, 0, 0,
		0, 0, 0
}

// each visits every quantity.
func (s *Stats) each() iter.Seq[*Stat] {
	return func(yield func(*Stat) bool) {
		for _, q := range s.Arrays() {
			if !yield(&q.Array.All) || !yield(&q.Array.SmallPool) || !yield(&q.Array.LargePool) {
				return
			}
		}
		_ = yield(&s.OversizeAllocations) && yield(&s.OversizeSegments)
	}
}

// A NamedStatArray is one of the quantities of Stats.
type NamedStatArray struct {
	Name  string
	Array *StatArray
}

// Map returns the statistics under the keys of torch.cuda.memory_stats(), except those of private pools: see
// MapWithPools.
func (s Stats) Map() map[string]int64 {
	m := make(map[string]int64, 128)
	for _, a := range s.Arrays() {
		a.Array.put(m, a.Name)
	}
	s.OversizeAllocations.put(m, "oversize_allocations")
	s.OversizeSegments.put(m, "oversize_segments")
	m["num_alloc_retries"] = s.NumAllocRetries
	m["num_ooms"] = s.NumOOMs
	m["num_sync_all_streams"] = s.NumSyncAllStreams
	m["num_device_alloc"] = s.NumDeviceAlloc
	m["num_device_free"] = s.NumDeviceFree
	m["num_oom_rejections"] = s.NumOOMRejections
	m["max_split_size"] = s.MaxSplitSize
	return m
}

// MapWithPools is Map with the reserved bytes of each private pool, as caching.Allocator.ReservedByPrivatePools returns
// them: pool (0, 1) has the keys that begin with "reserved_bytes_by_private_pools.0_1.".
func (s Stats) MapWithPools(reserved map[PoolID]StatArray) map[string]int64 {
	m := s.Map()
	for id, a := range reserved {
		a.put(m, fmt.Sprintf("reserved_bytes_by_private_pools.%d_%d", id[0], id[1]))
	}
	return m
}

func (a *StatArray) put(m map[string]int64, prefix string) {
	a.All.put(m, prefix+".all")
	a.SmallPool.put(m, prefix+".small_pool")
	a.LargePool.put(m, prefix+".large_pool")
}

func (s *Stat) put(m map[string]int64, prefix string) {
	m[prefix+".current"] = s.Current
	m[prefix+".peak"] = s.Peak
	m[prefix+".allocated"] = s.Allocated
	m[prefix+".freed"] = s.Freed
}
