package caching

import "math/bits"

// The sizes of PyTorch's policy (c10/cuda/CUDACachingAllocator.cpp), in bytes.
const (
	minBlockSize  = 512      // every block is a multiple of it
	smallSize     = 1 << 20  // the largest request that is served from the small pool
	smallBuffer   = 2 << 20  // segments of the small pool, and pages of its expandable segments
	minLargeAlloc = 10 << 20 // requests from here on get a segment of their own
	roundLarge    = 2 << 20  // whose size is a multiple of this
	maxRequest    = 1 << 60  // 1 EiB: requests from here on are refused before anything is tried
)

// roundSize is the size of the block that a request gets: a multiple of 512, or, with round-ups set for its size, the
// next of div steps between two powers of two.
func (c *Config) roundSize(size int64) int64 {
	if c.anyRoundup {
		return c.roundUp(size)
	}
	return (size + minBlockSize - 1) &^ (minBlockSize - 1)
}

func (c *Config) roundUp(size int64) int64 {
	if div := c.roundupDivisions(size); div > 1 && (size-1)/minBlockSize >= div {
		return nextDivision(size, div)
	}
	return (size + minBlockSize - 1) &^ (minBlockSize - 1)
}

// roundupDivisions looks the size up among the 16 intervals from 1 MiB to beyond 32 GiB.
func (c *Config) roundupDivisions(size int64) int64 {
	log2 := 63 - bits.LeadingZeros64(uint64(size))
	return c.RoundupDivisions[min(max(log2-20, 0), len(c.RoundupDivisions)-1)]
}

// nextDivision rounds up to the next of div equal steps between the powers of two around size.
func nextDivision(size, div int64) int64 {
	if size&(size-1) == 0 {
		return size
	}
	floor := int64(1) << (63 - bits.LeadingZeros64(uint64(size)))
	step := floor >> (63 - bits.LeadingZeros64(uint64(div)))
	if step == 0 {
		return floor << 1
	}
	return (size + step - 1) &^ (step - 1)
}

// segmentSize is what the driver is asked for when a block of a rounded size has to come from a new segment.
func (c *Config) segmentSize(size int64) int64 {
	switch {
	case size <= smallSize:
		return smallBuffer
	case size < minLargeAlloc:
		return c.LargeSegmentSize
	default:
		return (size + roundLarge - 1) &^ (roundLarge - 1)
	}
}

// shouldSplit says whether a free block is cut to size, or allocated whole.
func (c *Config) shouldSplit(p *shardPool, blockSize, size int64, expandable bool) bool {
	remaining := blockSize - size
	if p.small() || expandable {
		return remaining >= minBlockSize && !p.noSplit
	}
	return size < c.MaxSplitSize && remaining > smallSize && !p.noSplit
}
