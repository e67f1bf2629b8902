package layer_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// A scope is an allocator like others.
func TestScopeConformance(t *testing.T) {
	memtest.Run(t, memtest.Config{
		New: func(t testing.TB, dev driver.Device) mem.Allocator {
			below, err := caching.New(dev, caching.Default())
			if err != nil {
				t.Fatal(err)
			}
			return layer.NewScope(layer.NewScope(below))
		},
		Ops: 300, Seeds: 2, FaultOps: 15,
	})
}

// Blocks that are live when the scope is closed go back, the last one first, with the streams recorded for them.
func TestScopeFreesTheRestInReverse(t *testing.T) {
	below := &slidingAllocator{}
	s := layer.NewScope(below)
	var blocks []mem.Block
	for i := range 6 {
		blocks = append(blocks, fake.MustAlloc(t, s, int64(i+1)))
	}
	s.Use(blocks[2], fake.S1)
	s.Use(blocks[2], fake.S0, fake.S1)
	s.Use(blocks[4], fake.S1)
	s.Use(mem.Block{}, fake.S1)
	s.Free(blocks[1])
	s.Free(blocks[4], fake.S0)
	kept, used := s.Keep(blocks[0])
	if kept.Ptr != blocks[0].Ptr || kept.Size != 1 || len(used) != 0 {
		t.Errorf("kept %+v, used by %v; want the block at %#x", kept, used, uint64(blocks[0].Ptr))
	}
	again := fake.MustAlloc(t, s, 7) // in the record of a block that is gone
	for range 2 {
		s.Close()
	}
	var sizes []int64
	for _, b := range below.freed {
		sizes = append(sizes, b.Size)
	}
	if want := []int64{2, 5, again.Size, 6, 4, 3}; !slices.Equal(sizes, want) {
		t.Errorf("freed were blocks of %v bytes, want %v", sizes, want)
	}
	for i, want := range [][]driver.Stream{{}, {fake.S1, fake.S0}, {}, {}, {}, {fake.S1, fake.S0}} {
		if !slices.Equal(below.used[i], want) {
			t.Errorf("free %d names the streams %v, want %v", i, below.used[i], want)
		}
	}
	below.Free(kept)
	if len(below.blocks) != 0 {
		t.Errorf("%d blocks are left", len(below.blocks))
	}
}

// Deferred, Close frees after an error and after a panic.
func TestScopeAfterErrorsAndPanics(t *testing.T) {
	failed := errors.New("failed")
	for _, how := range []string{"error", "panic"} {
		below := &slidingAllocator{}
		work := func() error {
			s := layer.NewScope(below)
			defer s.Close()
			fake.MustAlloc(t, s, 10)
			fake.MustAlloc(t, s, 20)
			if how == "panic" {
				panic(failed)
			}
			return failed
		}
		func() {
			defer func() {
				if r := recover(); how == "panic" && r != failed {
					t.Errorf("the panic became %v", r)
				}
			}()
			if err := work(); !errors.Is(err, failed) {
				t.Errorf("the error became %v", err)
			}
		}()
		if len(below.blocks) != 0 || len(below.freed) != 2 {
			t.Errorf("%s: %d blocks are left, %d were freed", how, len(below.blocks), len(below.freed))
		}
	}
}

// One Free that panics does not keep the other blocks for ever.
func TestScopeCloseGoesOnAfterAPanic(t *testing.T) {
	below := &slidingAllocator{}
	s := layer.NewScope(below)
	for range 3 {
		fake.MustAlloc(t, s, 8)
	}
	below.onFree = func() { below.onFree = nil; panic("below: no") }
	if text := testkit.Panic(t, s.Close); text != "below: no" {
		t.Errorf("Close panicked with %q", text)
	}
	s.Close()
	if len(below.freed) != 2 {
		t.Errorf("%d blocks went back, want the other 2", len(below.freed))
	}
}

func TestScopeMisusePanics(t *testing.T) {
	below := &slidingAllocator{}
	s, other := layer.NewScope(below), layer.NewScope(below)
	b, freed, kept := fake.MustAlloc(t, s, 8), fake.MustAlloc(t, s, 8), fake.MustAlloc(t, s, 8)
	foreign, direct := fake.MustAlloc(t, other, 8), fake.MustAlloc(t, below, 8)
	s.Free(freed)
	inner, _ := s.Keep(kept)
	misuse := func(what string, f func()) {
		t.Helper()
		if text := testkit.Panic(t, f); !strings.HasPrefix(text, "layer: Scope: ") {
			t.Errorf("%s panics with %q", what, text)
		}
	}
	for what, bad := range map[string]mem.Block{
		"freed": freed, "kept": kept, "another scope's": foreign, "the allocator below's": direct, "what Keep returned": inner,
		"inside": {Ptr: b.Ptr + 1, Size: 7, Tag: b.Tag}, "of no such record": {Ptr: b.Ptr, Size: 8, Tag: 1<<32 | 99},
	} {
		misuse("Free of a block that is "+what, func() { s.Free(bad) })
		misuse("Keep of a block that is "+what, func() { s.Keep(bad) })
		misuse("Use of a block that is "+what, func() { s.Use(bad, fake.S0) })
		misuse("Movable of a block that is "+what, func() { s.Movable(bad, &owner{}) })
	}
	s.Close() // no lock was left behind
	misuse("Alloc after Close", func() { s.Alloc(fake.S0, 1) })
	misuse("Alloc of nothing after Close", func() { s.Alloc(fake.S0, 0) })
	misuse("Free after Close", func() { s.Free(b) })
	s.Free(mem.Block{})
	if k, used := s.Keep(mem.Block{}); k != (mem.Block{}) || used != nil || s.Movable(mem.Block{}, &owner{}) {
		t.Error("the zero block is something")
	}
}

// Goroutines that share a scope may close it under each other's requests: every block goes back once.
func TestScopeConcurrently(t *testing.T) {
	for seed := range uint64(20) {
		below := &slidingAllocator{}
		s := layer.NewScope(below)
		var wg sync.WaitGroup
		for g := range uint64(4) {
			wg.Go(func() {
				defer func() {
					// Who is late finds the scope closed, or its block gone with it.
					if text, _ := recover().(string); text != "" && !strings.HasPrefix(text, "layer: Scope: ") {
						t.Errorf("seed %d: %s", seed, text)
					}
				}()
				rng := rand.New(rand.NewPCG(seed, g))
				var own []mem.Block
				for range 200 {
					if b, err := s.Alloc(fake.S0, 1+rng.Int64N(100)); err == nil {
						s.Use(b, fake.S1)
						own = append(own, b)
					}
					if i := rng.IntN(len(own)); rng.IntN(2) == 0 {
						s.Free(own[i])
						own = slices.Delete(own, i, i+1)
					}
					if len(own) == 0 {
						own = append(own, fake.MustAlloc(t, s, 8))
					}
				}
			})
		}
		if seed%2 == 1 {
			for range rng(seed).IntN(50) {
				runtime.Gosched()
			}
			s.Close()
		}
		wg.Wait()
		s.Close()
		if len(below.blocks) != 0 {
			t.Errorf("seed %d: %d blocks are left", seed, len(below.blocks))
		}
	}
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 99)) }

// Blocks that have moved go back from where they are, after the stream that moved them.
func TestScopeFreesMovedBlocks(t *testing.T) {
	below := &slidingAllocator{}
	s := layer.NewScope(below)
	gap := fake.MustAlloc(t, s, 64)
	first, second := own(t, s, 64), own(t, s, 64)
	s.Use(second.block, fake.S0)
	tag := second.block.Tag
	s.Free(gap)
	compact(t, s, fake.S1)
	if second.block.Ptr != shelfStart+64 || second.block.Tag != tag {
		t.Errorf("the block is %+v for its holder, want it at %#x with the scope's tag", second.block, shelfStart+64)
	}
	if told := below.blocks[1].told; !slices.Equal(told, []driver.Stream{fake.S0}) {
		t.Errorf("the streams that use the block are %v below, want s0", told)
	}
	s.Free(first.block)
	s.Close()
	if n := len(below.blocks); n != 0 || below.freed[2].Ptr != shelfStart+64 {
		t.Errorf("%d blocks are left; freed were %+v", n, below.freed)
	}
	if !slices.Equal(below.used[2], []driver.Stream{fake.S0, fake.S1}) {
		t.Errorf("Close named the streams %v, want the one that uses the block and the one that moved it", below.used[2])
	}
}

// A warm request makes no garbage.
func TestScopeMakesNoGarbage(t *testing.T) {
	s := layer.NewScope(&line{})
	if n := testing.AllocsPerRun(100, func() {
		b, _ := s.Alloc(fake.S0, 512)
		s.Free(b)
	}); n != 0 {
		t.Errorf("%v objects for a pair of Alloc and Free", n)
	}
}

// A block taken out of the scope can still be moved, and its holder gets the block as the allocator below knows it.
func TestScopeKeepsMovableBlocks(t *testing.T) {
	below := &slidingAllocator{}
	s := layer.NewScope(below)
	gap, o := fake.MustAlloc(t, s, 64), own(t, s, 64)
	o.block, _ = s.Keep(o.block)
	s.Free(gap)
	s.Close()
	compact(t, s, fake.S1)
	if o.block.Ptr != shelfStart || o.moved != fake.S1 {
		t.Errorf("the block is at %#x for its holder", uint64(o.block.Ptr))
	}
	below.Free(o.block)
}

// Close waits for a block that is being moved, and lets none be moved from then on.
func TestScopeClosedDuringAMove(t *testing.T) {
	below := &slidingAllocator{}
	s := layer.NewScope(below)
	lowest, gap := fake.MustAlloc(t, below, 64), fake.MustAlloc(t, s, 64)
	first, second := own(t, s, 64), own(t, s, 64)
	s.Free(gap)
	closed := func() bool { return testkit.PanicText(func() { s.Alloc(fake.S0, 0) }) != "" }
	var wg sync.WaitGroup
	below.between = func() {
		testkit.Contains(t, testkit.Panic(t, func() { s.Keep(first.block) }), "layer: Scope: Keep of a block", "is being moved")
		wg.Go(s.Close)
		for !closed() {
			runtime.Gosched()
		}
	}
	below.onFree = func() {
		below.between, below.onFree = nil, nil
		below.Free(lowest)
		compact(t, s, fake.S1) // between the frees of the last block and the first, which could move now
	}
	compact(t, s, fake.S1)
	wg.Wait()
	if len(below.blocks) != 0 || below.freed[2].Ptr != shelfStart+128 || below.freed[3].Ptr != shelfStart+64 {
		t.Errorf("freed were %+v, and %d blocks are left", below.freed, len(below.blocks))
	}
	for i, o := range []*owner{first, second} {
		if o.lifts != 2 || o.lands != 2 || o.moved != nil {
			t.Errorf("block %d: lifted %d times, landed %d times, at last on %v", i, o.lifts, o.lands, o.moved)
		}
	}
}
