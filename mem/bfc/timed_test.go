package bfc_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

// stamped takes the whole of an allocator as four blocks, and frees the first three: their stamps are 1, 2 and 3.
func stamped(t *testing.T) (b *bench, counter *bfc.Counter, blocks []mem.Block) {
	counter = &bfc.Counter{}
	b = newBench(t, bfc.Config{Limit: 1024, NoGrowth: true, Counter: counter})
	for range 4 {
		blocks = append(blocks, b.alloc(256))
	}
	for _, block := range blocks[:3] {
		b.Free(block)
	}
	if n := counter.Get(); n != 3 {
		t.Fatalf("three frees counted %d", n)
	}
	return b, counter, blocks
}

func (b *bench) before(count uint64, size int64) (mem.Block, error) {
	return b.Request(context.Background(), b.s, size, bfc.Options{FreedBefore: func() uint64 { return count }})
}

func TestStampedBlocksMergeBelowTheFrontier(t *testing.T) {
	for _, c := range []struct {
		frontier uint64
		size     int64 // of the largest block that there is then
	}{{0, 256}, {1, 256}, {2, 256}, {3, 512}, {4, 768}, {9, 768}} {
		b, _, blocks := stamped(t)
		b.SetSafeFrontier(c.frontier)
		b.SetSafeFrontier(c.frontier / 2) // it never falls
		// Bounded, so that nothing merges by force; all stamps are up to 3.
		if block, err := b.before(3, c.size+256); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("frontier %d: %d bytes: %+v, %v", c.frontier, c.size+256, block, err)
		}
		if block, err := b.before(3, c.size); err != nil || block.Ptr != blocks[0].Ptr {
			t.Errorf("frontier %d: %d bytes: %+v, %v; want the first block's place", c.frontier, c.size, block, err)
		}
	}
}

func TestFreedBeforeBoundsStamps(t *testing.T) {
	b, _, blocks := stamped(t)
	first, err := b.before(1, 256)
	if err != nil || first.Ptr != blocks[0].Ptr {
		t.Fatalf("up to 1: %+v, %v", first, err)
	}
	if block, err := b.before(1, 256); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("nothing else was freed up to 1: %+v, %v", block, err)
	}
	var oom *mem.OutOfMemory
	if _, err := b.before(1, 256); !errors.As(err, &oom) ||
		!slices.ContainsFunc(oom.Remedies, func(r mem.Remedy) bool { return r.Name == "Options.FreedBefore" }) {
		t.Errorf("the error names no bound: %v", err)
	}
	b.SetSafeFrontier(3)
	if block, err := b.before(1, 256); err != nil || block.Ptr != blocks[1].Ptr {
		t.Errorf("2 is below the frontier: %+v, %v", block, err)
	}
}

// A request without a bound takes any free block, and before it fails has them merged.
func TestStampedBlocksMergeByForce(t *testing.T) {
	b, counter, blocks := stamped(t)
	two := b.alloc(512)
	if two.Ptr != blocks[0].Ptr {
		t.Errorf("512 bytes at %#x", uint64(two.Ptr))
	}
	b.Free(two) // stamp 4; only as much as was needed had merged
	b.Free(blocks[3])
	if n := counter.Get(); n != 5 {
		t.Fatalf("%d frees", n)
	}
	if n := len(b.Snapshot()[0].Blocks); n != 3 {
		t.Errorf("%d free blocks: want 512, 256 and 256 bytes", n)
	}
	b.SetSafeFrontier(6)
	if all := b.alloc(1024); all.Ptr != blocks[0].Ptr {
		t.Errorf("all at %#x", uint64(all.Ptr))
	}
}

// The remainder cut off a stamped block merges like the block itself.
func TestRestOfAStampedBlockMerges(t *testing.T) {
	b, _, blocks := stamped(t)
	b.SetSafeFrontier(4)
	three, err := b.before(3, 768)
	if err != nil {
		t.Fatal(err)
	}
	b.Free(three) // stamp 4
	if first, err := b.before(4, 256); err != nil || first.Ptr != blocks[0].Ptr {
		t.Fatalf("%+v, %v", first, err)
	}
	b.Free(blocks[3]) // stamp 5, beside the rest, of stamp 4
	b.SetSafeFrontier(6)
	if _, err := b.before(1, 768); err != nil {
		t.Errorf("both are below the frontier: %v", err)
	}
}

func TestFrontierWakesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, blocks := stamped(t)
		got := inBackground(func() (mem.Block, error) {
			return b.Request(t.Context(), b.s, 768, bfc.Options{Wait: true, FreedBefore: func() uint64 { return 1 }})
		})
		b.SetSafeFrontier(4)
		if a := <-got; a.err != nil || a.Ptr != blocks[0].Ptr {
			t.Errorf("%+v", a)
		}
	})
}

// The frontier may be ahead of the counter, without bound: memory freed below it merges at the next request.
func TestFreesBelowTheFrontier(t *testing.T) {
	b, _, blocks := stamped(t)
	b.SetSafeFrontier(100)
	for i := range 3 {
		three, err := b.before(1, 768)
		if err != nil || three.Ptr != blocks[0].Ptr {
			t.Fatalf("after %d frees more: %+v, %v", i, three, err)
		}
		b.Free(three)
	}
}

// Memory merged by force for a failed request may be what another request waits for.
func TestForcedMergesWakeThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, blocks := stamped(t)
		got := inBackground(func() (mem.Block, error) {
			return b.Request(t.Context(), b.s, 768, bfc.Options{Wait: true, FreedBefore: func() uint64 { return 3 }})
		})
		if block, err := b.Alloc(b.s, 1024); !errors.Is(err, mem.ErrNoMemory) {
			t.Fatalf("%+v, %v", block, err)
		}
		if a := <-got; a.err != nil || a.Ptr != blocks[0].Ptr {
			t.Errorf("%+v", a)
		}
	})
}

// Several blocks that the frontier passes at once merge with a neighbour that it had passed before, on either side.
func TestRunsOfStampedBlocksMerge(t *testing.T) {
	for _, order := range [][3]int{{2, 0, 1}, {0, 2, 1}} {
		b := newBench(t, bfc.Config{Limit: 1024, NoGrowth: true, Counter: &bfc.Counter{}})
		var blocks []mem.Block
		for range 4 {
			blocks = append(blocks, b.alloc(256))
		}
		b.Free(blocks[order[0]])
		b.SetSafeFrontier(2)
		if block, err := b.before(1, 512); err == nil {
			t.Fatalf("order %d: %+v", order, block)
		}
		b.Free(blocks[order[1]])
		b.Free(blocks[order[2]])
		b.SetSafeFrontier(4)
		if block, err := b.before(1, 768); err != nil || block.Ptr != blocks[0].Ptr {
			t.Errorf("order %d: %+v, %v", order, block, err)
		}
	}
}
