// Package stats completes the statistics of allocators that count all blocks in one pool.
package stats

import "github.com/ashlar-go/ashlar/mem"

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
