package caching_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// Blocks that several streams use, allocated again within the capture in which they were freed.

// reuse turns reuse during captures on.
func (b *graphBench) reuse() {
	b.t.Helper()
	_, err := b.ParseConfigure("graph_capture_record_stream_reuse:True")
	b.ok(err)
}

// isFree fails the test unless a request on s gets the address of a block that was freed, or does not get it, as want
// says. What it got is queued as the sum of in and v.
func (b *graphBench) isFree(want bool, when string, s driver.Stream, freed, in, zero mem.Block, v byte) mem.Block {
	b.t.Helper()
	got := b.alloc(s, b.size)
	if (got.Ptr == freed.Ptr) != want {
		b.t.Errorf("%s: allocated again: %v, want %v", when, got.Ptr == freed.Ptr, want)
	}
	b.sum(s, got, in, zero, v)
	return got
}

// reclaim2 is PyTorch's test_graph_capture_reclaim_2_streams, with contents.
func (b *graphBench) reclaim2(size int64, launches int) {
	b.t.Helper()
	zero := b.zeros(size)
	main, side, id := b.s[0], b.s[1], mem.PoolID{34, 0}
	in := b.alloc(main, size)
	var ofMain, ofSide mem.Block
	g := b.capture(id, main, func() {
		used := b.alloc(main, size)
		ofMain, ofSide = b.alloc(main, size), b.alloc(main, size)
		b.sum(main, used, in, zero, 1)
		b.follow(side, main)
		b.sum(side, ofSide, used, zero, 1)
		b.Free(used, side)
		before := b.isFree(false, "before the join", main, used, in, zero, 7)
		b.follow(main, side)
		after := b.isFree(true, "after the join", main, used, in, zero, 9)
		b.sum(main, ofMain, before, after, 0)
		b.Free(before)
		b.Free(after)
	})
	for i := range byte(launches) {
		b.ok(main.Fill(in.Ptr, i, size))
		b.ok(g.Launch(main)) // on the simulator it fails if two branches of the graph race
		b.holds(main, ofSide, i+2)
		b.holds(main, ofMain, 2*i+16)
	}
	other := b.s[3] // launches of one graph do not overlap, on whatever streams
	b.ok(main.Fill(in.Ptr, 50, size))
	b.follow(other, main)
	b.ok(g.Launch(main))
	b.ok(g.Launch(other))
	b.follow(main, other)
	b.holds(main, ofSide, 52)
	b.holds(main, ofMain, 116)
	b.finish([]driver.Graph{g}, []mem.PoolID{id}, zero, in, ofMain, ofSide)
}

// reclaim4 is PyTorch's test_graph_capture_reclaim_4_streams, with contents.
func (b *graphBench) reclaim4(size int64, launches int) {
	b.t.Helper()
	zero := b.zeros(size)
	main, id := b.s[0], mem.PoolID{35, 0}
	in := b.alloc(main, size)
	outs := make([]mem.Block, 4)
	g := b.capture(id, main, func() {
		used := b.alloc(main, size)
		for i := range outs {
			outs[i] = b.alloc(main, size)
		}
		b.sum(main, used, in, zero, 1)
		for i, s := range b.s[1:] {
			b.follow(s, main)
			b.sum(s, outs[i], used, zero, byte(i))
		}
		b.Free(used, b.s[1:]...)
		var all []mem.Block
		fresh := func(want bool, when string) {
			all = append(all, b.isFree(want, when, main, used, in, zero, 3))
		}
		fresh(false, "before any join")
		b.follow(main, b.s[1])
		fresh(false, "the second has joined the first")
		b.follow(b.s[2], b.s[3])
		fresh(false, "the fourth has joined the third")
		b.follow(main, b.s[2])
		fresh(true, "the third has joined the first")
		b.sum(main, outs[3], all[2], all[3], 0)
		for _, block := range all {
			b.Free(block)
		}
	})
	for i := range byte(launches) {
		b.ok(main.Fill(in.Ptr, i, size))
		b.ok(g.Launch(main))
		for n, out := range outs[:3] {
			b.holds(main, out, i+1+byte(n))
		}
		b.holds(main, outs[3], 2*i+6)
	}
	b.finish([]driver.Graph{g}, []mem.PoolID{id}, append(outs, zero, in)...)
}

func TestBehaviour34_ReuseAfterAJoin(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.reuse()
		b.reclaim2(4096, 50)
	})
}

func TestBehaviour35_ReuseAfterTheLastOfSeveralJoins(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.reuse()
		b.reclaim4(4096, 50)
	})
}

// Nothing is asked of the device for a setting that is off.
func TestNoReuseInACaptureUnlessAskedFor(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.size = 4096
		main, side, id := b.s[0], b.s[1], mem.PoolID{1, 0}
		asked := []intercept.Kind{intercept.Capturing, intercept.Ordered, intercept.Mark, intercept.Reached}
		b.BeginAllocateToPool(id, func(s driver.Stream) bool { return s == main })
		b.ok(b.dev.Graphs().Begin(main))
		used := b.alloc(main, b.size)
		b.follow(side, main)
		var before []int64
		for _, kind := range asked {
			before = append(before, b.dev.CallsOf(kind))
		}
		b.Free(used, side)
		blocks := []mem.Block{b.alloc(main, b.size)}
		for i, kind := range asked {
			testkit.Equal(t, string(kind)+" by the allocator", b.dev.CallsOf(kind), before[i])
		}
		b.follow(main, side)
		blocks = append(blocks, b.alloc(main, b.size))
		for _, block := range blocks {
			if block.Ptr == used.Ptr {
				t.Error("the block was allocated again")
			}
		}
		g, err := b.dev.Graphs().End(main)
		b.ok(err)
		b.EndAllocateToPool(id)
		b.finish([]driver.Graph{g}, []mem.PoolID{id}, blocks...)
	})
}

// Work that a capture does not order waits for the capture's end, as before: a stream outside it, and work queued
// before it on a stream that is part of it.
func TestWhatACaptureDoesNotOrderIsNotReused(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.reuse()
		zero := b.zeros(4096)
		main, side, outside, id := b.s[0], b.s[1], b.s[2], mem.PoolID{1, 0}
		var kept mem.Block
		first := b.capture(id, main, func() {
			used := b.alloc(main, b.size)
			kept = b.alloc(main, b.size)
			b.sum(main, kept, zero, zero, 1)
			b.follow(side, main)
			marks := b.dev.CallsOf(intercept.Mark)
			b.Free(used, side, outside)
			testkit.Equal(b.t, "marks taken of what cannot be ordered", b.dev.CallsOf(intercept.Mark), marks)
			b.follow(main, side)
			b.Free(b.isFree(false, "a stream outside", main, used, zero, zero, 0))
		})
		b.ok(first.Launch(main))
		b.follow(side, main)
		release := b.hold(side)
		b.ok(side.Copy(kept.Ptr+2048, kept.Ptr, 1024)) // ordinary work
		var blocks []mem.Block
		second := b.capture(id, main, func() {
			b.follow(side, main)
			b.Free(kept, side)
			b.follow(main, side)
			blocks = append(blocks, b.isFree(false, "work from before the capture goes on", main, kept, zero, zero, 0))
			release()
			again := b.alloc(main, b.size)
			for again.Ptr != kept.Ptr { // takes its time on the host
				b.Free(again)
				runtime.Gosched()
				again = b.alloc(main, b.size)
			}
			blocks = append(blocks, again)
			b.sum(main, again, zero, zero, 5)
		})
		b.ok(second.Launch(main))
		b.holds(main, kept, 5)
		b.sync(side, outside)
		b.finish([]driver.Graph{first, second}, []mem.PoolID{id, id}, append(blocks, zero)...)
	})
}

// Requests on streams of several captures at once, from goroutines of their own.
func TestReuseInCapturesAtOnce(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.reuse()
		b.size = 4096
		work := func(n int) error {
			main, side, id := b.s[2*n], b.s[2*n+1], mem.PoolID{uint64(n + 1), 0}
			for range 30 {
				b.BeginAllocateToPool(id, func(s driver.Stream) bool { return s == main || s == side })
				err := b.dev.Graphs().Begin(main)
				used, e1 := b.Alloc(main, b.size)
				m, e2 := main.Mark()
				e3 := side.WaitFor(main, m)
				e4 := errors.Join(main.Fill(used.Ptr, 1, b.size))
				b.Free(used, side)
				m, e5 := side.Mark()
				e6 := main.WaitFor(side, m)
				again, e7 := b.Alloc(main, b.size)
				if again.Ptr != used.Ptr {
					e7 = errors.Join(e7, errors.New("the block was not used again"))
				}
				b.Free(again)
				g, e8 := b.dev.Graphs().End(main)
				b.EndAllocateToPool(id)
				b.ReleasePool(id)
				if err := errors.Join(err, e1, e2, e3, e4, e5, e6, e7, e8); err != nil {
					return err
				}
				if err := g.Close(); err != nil {
					return err
				}
			}
			return nil
		}
		errs := make(chan error)
		for n := range 2 {
			go func() { errs <- work(n) }()
		}
		b.ok(errors.Join(<-errs, <-errs))
		b.finish(nil, nil)
	})
}
