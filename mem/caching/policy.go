package caching

import "math/bits"

// The sizes of PyTorch's policy (c10/cuda/CUDACachingAllocator.cpp), in bytes.
const (
	minBlockSize  = 512      // every block is a multiple of it
	smallSize     = 1 << 20  // the largest request that is served from the small pool
	smallBuffer   = 2 << 20  // segments of the small pool, and pages of its expandable segments
	minLargeAlloc = 10 << 20 // larger or equal requests get a segment of their own
	roundLarge    = 2 << 20  // the size of such a segment is a multiple of this
	maxRequest    = 1 << 60  // 1 EiB: larger or equal requests are refused at once
)

// roundSize returns the size of the block for a request: a multiple of 512 or, if round-up divisions are set for its
// size, the next of the equal steps between two powers of two.
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

// roundupDivisions returns the divisions for a size, from the 16 intervals up to beyond 32 GiB.
func (c *Config) roundupDivisions(size int64) int64 {
	log2 := 63 - bits.LeadingZeros64(uint64(size))
	return c.RoundupDivisions[min(max(log2-20, 0), len(c.RoundupDivisions)-1)]
}

// nextDivision rounds size up to the next of div equal steps between the powers of two around it.
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

// segmentSize returns the size of a new segment for a block of a rounded size.
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

// shouldSplit reports whether a free block is split to size rather than allocated whole.
func (c *Config) shouldSplit(p *shardPool, blockSize, size int64, expandable bool) bool {
	remaining := blockSize - size
	if p.small() || expandable {
		return remaining >= minBlockSize && !p.noSplit
	}
	return size < c.MaxSplitSize && remaining > smallSize && !p.noSplit
}
