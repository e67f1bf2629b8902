package caching

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// A slab that takes its blocks from extents has every block once, and its blocks do not move.
func TestLargeSlab(t *testing.T) {
	const n = manyChunks*slabChunk + extent + slabChunk
	var s slab
	var blocks []*block
	for range n {
		ref, blk := s.newBlock()
		blk.ptr = driver.Pointer(ref)
		blocks = append(blocks, blk)
	}
	for i, blk := range blocks {
		if ref := blockRef(i + 1); s.at(ref) != blk || blk.ptr != driver.Pointer(ref) {
			t.Fatalf("block %d is that of %d, or has moved", ref, blk.ptr)
		}
	}
}
