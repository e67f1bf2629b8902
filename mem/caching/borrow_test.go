package caching_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// A graph writes to its captured addresses at every launch: a pool that a graph uses lends nothing.
func TestAPoolThatAGraphUsesLendsNothing(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.set("limit:40MiB")
		s := b.s[1]
		p := b.NewPool(caching.PoolOptions{UseOnOOM: true})
		g := b.capture(p.ID(), s, func() {
			scratch := b.alloc(s, 40*mib)
			b.ok(s.Fill(scratch.Ptr, 1, scratch.Size))
			b.Free(scratch)
		})
		oom := refused(t, b, s, 40*mib)
		for _, r := range oom.Remedies {
			if strings.HasPrefix(r.Name, "UseOnOOM") {
				t.Errorf("a remedy is %v, which would not help", r)
			}
		}
		b.ok(g.Launch(s))
		b.set("limit:40MiB,pytorch-exact:True") // PyTorch does not care
		b.Free(b.alloc(s, 40*mib))
		b.set("limit:40MiB")
		b.ok(g.Close())
		b.ReleasePool(p.ID())
		b.Free(b.alloc(s, 40*mib)) // no graph uses it any more
		b.ok(p.Close())
		b.finish(nil, nil)
	})
}

// The owner of a borrowed block knows nothing of the pool's checkpoints: while the block is borrowed there are neither
// checkpoints nor restores.
func TestBorrowedBlocksAreNotRestored(t *testing.T) {
	b := newBench(t, gib, "limit:42MiB")
	p := b.NewPool(caching.PoolOptions{UseOnOOM: true})
	take := func(size int64) mem.Block {
		t.Helper()
		block, err := p.Alloc(b.s, size)
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	kept, block := take(512), take(40*mib)
	state, err := b.Checkpoint(p.ID())
	if err != nil {
		t.Fatal(err)
	}
	p.Free(block)
	borrowed := b.alloc(30 * mib)
	testkit.Equal(t, "where the borrowed block is", borrowed.Ptr, block.Ptr)
	refuses := func(err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrNotReady) || !strings.Contains(err.Error(), fmt.Sprintf("the block at %#x", borrowed.Ptr)) {
			t.Errorf("%v: want an error that names the block at %#x", err, borrowed.Ptr)
		}
	}
	for range 3 {
		_, err := b.Restore(state)
		refuses(err)
		_, err = b.Checkpoint(p.ID())
		refuses(err)
	}
	b.Free(borrowed)

	// Memory that was once borrowed is the pool's again, and so are later blocks in it.
	again := take(30 * mib)
	if _, err := b.Checkpoint(p.ID()); err != nil {
		t.Error(err)
	}
	d, err := b.Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "blocks that are live", len(d.Live), 2)
	testkit.Contains(t, testkit.Panic(t, func() { p.Free(again) }), "not live")
	testkit.Contains(t, testkit.Panic(t, func() { p.Free(kept) }), "not live")
	for _, block := range d.Live {
		p.Free(block)
	}
	b.Free(b.alloc(40 * mib)) // borrowed, and back
	block = take(40 * mib)
	if _, err := b.Checkpoint(p.ID()); err != nil {
		t.Errorf("the pool's own block: %v", err)
	}
	p.Free(block)
	for range 100 { // many in turn, and several at once
		p.Free(take(40 * mib))
		x, y := b.alloc(20*mib), b.alloc(15*mib)
		b.Free(x)
		borrowed = y
		_, err := b.Checkpoint(p.ID())
		refuses(err)
		b.Free(y)
	}
	if _, err := b.Checkpoint(p.ID()); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}
