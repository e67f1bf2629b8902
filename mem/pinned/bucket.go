package pinned

import (
	"cmp"
	"math/bits"
	"slices"
)

// maxBits bounds requests to 64 TiB.
const maxBits = 46

// exactRounding is the unit for sizes that are not rounded to a power of two: the page of most hosts.
const exactRounding = 4 << 10

// round returns the size of the block for a request.
func (c *Config) round(size int64) int64 {
	power := int64(1) << bits.Len64(uint64(size-1))
	if size <= c.maxRound() && power <= c.maxCached() {
		return power
	}
	return (size + exactRounding - 1) &^ (exactRounding - 1)
}

// bucket returns the bucket of a size: bucket n has blocks of over 2^(n-1) and up to 2^n bytes.
func bucket(size int64) int { return bits.Len64(uint64(size - 1)) }

// A bucketList is the cached blocks of one bucket, ordered by size and then by when they were freed. Where all have one
// size, putting and taking are at the end.
type bucketList []*piece

// put inserts r after all blocks that are not larger.
func (s *bucketList) put(r *piece) {
	list := *s
	i := len(list)
	if i > 0 && list[i-1].size() > r.size() {
		i = list.from(r.size() + 1)
	}
	*s = slices.Insert(list, i, r)
}

// take removes and returns the smallest block of at least size bytes, among equals the one that was freed last, or nil.
func (s *bucketList) take(size int64) *piece {
	list := *s
	i := len(list) - 1
	if i < 0 || list[i].size() < size {
		return nil
	}
	if list[0].size() != list[i].size() {
		best := list[list.from(size)].size()
		i = list.from(best+1) - 1
	}
	r := list[i]
	*s = slices.Delete(list, i, i+1)
	return r
}

// from returns the index of the first block of at least size bytes.
func (s bucketList) from(size int64) int {
	i, _ := slices.BinarySearchFunc(s, size, func(r *piece, size int64) int { return cmp.Compare(r.size(), size) })
	return i
}
