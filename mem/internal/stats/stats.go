// Package stats counts blocks, and completes the statistics of allocators that count all blocks in one pool.
package stats

import "github.com/ashlar-go/ashlar/mem"

// Sums are of blocks: their number, their bytes, and the bytes requested for them.
type Sums struct{ N, Bytes, Requested int64 }

// Block returns the sums of one block.
func Block(bytes, requested int64) Sums { return Sums{1, bytes, requested} }

// Add adds t.
func (s *Sums) Add(t Sums) { *s = Sums{s.N + t.N, s.Bytes + t.Bytes, s.Requested + t.Requested} }

// Sub subtracts t.
func (s *Sums) Sub(t Sums) { *s = Sums{s.N - t.N, s.Bytes - t.Bytes, s.Requested - t.Requested} }

// Max replaces each sum by that of t, if it is larger.
func (s *Sums) Max(t Sums) {
	*s = Sums{max(s.N, t.N), max(s.Bytes, t.Bytes), max(s.Requested, t.Requested)}
}

// CountAlloc counts a new block in the sums over all pools.
func CountAlloc(s *mem.Stats, bytes, requested int64) {
	s.Allocation.All.Increase(1)
	s.AllocatedBytes.All.Increase(bytes)
	s.RequestedBytes.All.Increase(requested)
	s.LargestAlloc = max(s.LargestAlloc, bytes)
}

// CountFree counts the end of a block in the sums over all pools.
func CountFree(s *mem.Stats, bytes, requested int64) {
	s.Allocation.All.Decrease(1)
	s.AllocatedBytes.All.Decrease(bytes)
	s.RequestedBytes.All.Decrease(requested)
}

// OnePool completes statistics of which only the sums over all pools were counted: all blocks are in the large pool, no
// block is ever pending, and there is no split limit.
func OnePool(s mem.Stats) mem.Stats {
	s.Active, s.ActiveBytes = s.Allocation, s.AllocatedBytes
	for _, named := range s.Arrays() {
		named.Array.LargePool = named.Array.All
	}
	s.MaxSplitSize = -1
	return s
}
