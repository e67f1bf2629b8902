package layer_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// A slidingAllocator is an allocator of numbers that slides its blocks to the front. It keeps them in the order of their
// addresses.
type slidingAllocator struct {
	mu       sync.Mutex
	blocks   []*placed
	next     uint64
	freed    []mem.Block
	used     [][]driver.Stream // of each Free
	backward bool              // the last one moved lands first
	between  func()            // called between the lifting and the landing, under the lock
	onFree   func()            // called before a Free has the lock
}

type placed struct {
	mem.Block
	holder mem.Holder
	told   []driver.Stream // what its last BeginMove said
}

const shelfStart = 0x1000

func (a *slidingAllocator) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	if size == 0 {
		return mem.Block{}, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at := driver.Pointer(shelfStart)
	i := 0
	for i < len(a.blocks) && a.blocks[i].Ptr < at+driver.Pointer(size) {
		at = a.blocks[i].Ptr + driver.Pointer(a.blocks[i].Size)
		i++
	}
	a.next++
	b := mem.Block{Ptr: at, Size: size, Tag: a.next}
	a.blocks = slices.Insert(a.blocks, i, &placed{Block: b})
	return b, nil
}

func (a *slidingAllocator) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	if a.onFree != nil {
		a.onFree()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.index(b)
	a.blocks = slices.Delete(a.blocks, i, i+1)
	a.freed, a.used = append(a.freed, b), append(a.used, used)
}

func (a *slidingAllocator) index(b mem.Block) int {
	i := slices.IndexFunc(a.blocks, func(l *placed) bool { return l.Block == b })
	if i < 0 {
		panic(fmt.Sprintf("slidingAllocator: %+v is not live", b))
	}
	return i
}

func (a *slidingAllocator) Movable(b mem.Block, h mem.Holder) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks[a.index(b)].holder = h
	return true
}

// Compact lifts all blocks that may be moved before any lands, and gives them new tags.
func (a *slidingAllocator) Compact(s driver.Stream) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var lifted []*placed
	for _, l := range a.blocks {
		ok := false
		if l.holder != nil {
			l.told, ok = l.holder.BeginMove()
		}
		if ok {
			lifted = append(lifted, l)
		}
	}
	if a.between != nil {
		a.between()
	}
	at := driver.Pointer(shelfStart)
	var moved []*placed
	for _, l := range a.blocks {
		switch {
		case !slices.Contains(lifted, l):
			at = l.Ptr
		case l.Ptr == at:
			l.holder.EndMove(l.Block, nil)
		default:
			a.next++
			l.Ptr, l.Tag = at, a.next
			moved = append(moved, l)
		}
		at += driver.Pointer(l.Size)
	}
	if a.backward {
		slices.Reverse(moved)
	}
	for _, l := range moved {
		l.holder.EndMove(l.Block, s)
	}
	return nil
}

var _ mem.Compactor = (*slidingAllocator)(nil)

// An owner holds a block.
type owner struct {
	block  mem.Block
	used   []driver.Stream
	refuse bool
	lifts  int
	lands  int
	moved  driver.Stream     // of the last landing
	onLand func(b mem.Block) // before the owner has it
}

func (o *owner) BeginMove() ([]driver.Stream, bool) {
	if o.refuse {
		return nil, false
	}
	o.lifts++
	return o.used, true
}

func (o *owner) EndMove(b mem.Block, s driver.Stream) {
	if o.onLand != nil {
		o.onLand(b)
	}
	if o.lands++; s == nil && b != o.block {
		panic(fmt.Sprintf("%+v landed as %+v though it was not moved", o.block, b))
	}
	o.block, o.moved = b, s
}

// own allocates a block that may be moved.
func own(t *testing.T, a mem.Allocator, size int64) *owner {
	t.Helper()
	o := &owner{block: fake.MustAlloc(t, a, size)}
	if !mem.Movable(a, o.block, o) {
		t.Fatalf("%T does not move its blocks", a)
	}
	return o
}

func compact(t *testing.T, a mem.Allocator, s driver.Stream) {
	t.Helper()
	c, ok := mem.Find[mem.Compactor](a)
	if !ok {
		t.Fatalf("no layer of %T compacts", a)
	}
	if err := c.Compact(s); err != nil {
		t.Fatal(err)
	}
}

// A layer that cannot follow its blocks keeps those below from being moved, and keeps no holder.
func TestLayersThatCannotFollow(t *testing.T) {
	below := &slidingAllocator{}
	for name, a := range map[string]mem.Allocator{
		"a layer that knows nothing of moves": struct{ mem.Allocator }{below},
		"a limit over such a layer":           layer.NewLimiter(struct{ mem.Allocator }{below}, 1<<20),
		"a tracker over such a layer":         layer.NewLeakTracker(struct{ mem.Allocator }{below}, layer.LeakTrackerOptions{}),
		"a scope over such a layer":           layer.NewScope(struct{ mem.Allocator }{below}),
		"a magazine":                          magazine.New(below, magazine.Options{}),
		"a tracker over a magazine":           layer.NewLeakTracker(magazine.New(below, magazine.Options{}), layer.LeakTrackerOptions{}),
		"a pile":                              fake.NewPile(512),
	} {
		gap, b := fake.MustAlloc(t, a, 64), fake.MustAlloc(t, a, 64)
		o := &owner{block: b}
		if mem.Movable(a, b, o) {
			t.Errorf("%s says that it moves its blocks", name)
		}
		a.Free(gap)
		if err := below.Compact(fake.S1); err != nil {
			t.Fatal(err)
		}
		if o.lifts > 0 {
			t.Errorf("%s asked a holder that it did not take", name)
		}
		a.Free(b)
	}
	for _, l := range below.blocks {
		if l.holder != nil {
			t.Errorf("a holder reached the allocator below, for %+v", l.Block)
		}
	}
	if _, ok := any(raw.NewAddressed(below)).(mem.Mover); ok {
		t.Error("ByAddress, whose callers have nothing but addresses, is a Mover")
	}
}

// Each layer that can passes moves on, in any order.
func TestLayersThatFollow(t *testing.T) {
	for name, over := range map[string]func(mem.Allocator) mem.Allocator{
		"Limit": func(a mem.Allocator) mem.Allocator { return layer.NewLimiter(a, 1<<20) },
		"Track": func(a mem.Allocator) mem.Allocator { return layer.NewLeakTracker(a, layer.LeakTrackerOptions{}) },
		"Scope": func(a mem.Allocator) mem.Allocator { return layer.NewScope(a) },
		"all": func(a mem.Allocator) mem.Allocator {
			return layer.NewScope(layer.NewLeakTracker(layer.NewLimiter(layer.NewScope(layer.NewLeakTracker(a, layer.LeakTrackerOptions{})), 1<<20), layer.LeakTrackerOptions{}))
		},
	} {
		for _, backward := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, backward), func(t *testing.T) {
				below := &slidingAllocator{backward: backward}
				a := over(below)
				gap := fake.MustAlloc(t, a, 100)
				stays := own(t, a, 10)
				first, second, third := own(t, a, 100), own(t, a, 100), own(t, a, 100)
				stays.refuse = true
				first.used = []driver.Stream{fake.S0}
				a.Free(gap)
				for round := range 3 { // the first moves nothing: the one that stays is in the way
					compact(t, a, fake.S1)
					if round == 0 && (first.moved != nil || first.lands != 1 || stays.lands != 0) {
						t.Errorf("with nothing to move: %+v, %+v", first, stays)
					}
					stays.refuse = false
				}
				for i, o := range []*owner{stays, first, second, third} {
					if want := driver.Pointer(shelfStart + max(0, 100*i-90)); o.block.Ptr != want {
						t.Errorf("block %d is at %#x for its holder, want %#x", i, uint64(o.block.Ptr), uint64(want))
					}
					if o.lifts != o.lands {
						t.Errorf("block %d was lifted %d times and landed %d times", i, o.lifts, o.lands)
					}
				}
				if told := below.blocks[1].told; !slices.Contains(told, fake.S0) {
					t.Errorf("the streams that use a block are %v below, want s0 among them", told)
				}
				for _, o := range []*owner{second, stays, third, first} {
					lifts := o.lifts
					a.Free(o.block)
					compact(t, a, fake.S1)
					if o.lifts != lifts {
						t.Error("the holder of a freed block was asked")
					}
				}
				if len(below.blocks) != 0 {
					t.Errorf("%d blocks are left below", len(below.blocks))
				}
				if l, ok := mem.Find[*layer.Limiter](a); ok && l.Live() != 0 {
					t.Errorf("the limiter counts %d bytes at the end", l.Live())
				}
				if tr, ok := mem.Find[*layer.LeakTracker](a); ok && len(tr.Live()) != 0 {
					t.Errorf("the tracker has %v at the end", tr.Live())
				}
			})
		}
	}
}

// The tracker's report, and what it says of a wrong Free, are about where blocks are now.
func TestTrackerFollows(t *testing.T) {
	below := &slidingAllocator{}
	tr := layer.NewLeakTracker(below, layer.LeakTrackerOptions{})
	gap, o := fake.MustAlloc(t, tr, 64), own(t, tr, 64)
	from := o.block
	tr.Free(gap) // remembered as freed, at the address that the block moves to
	o.onLand = func(b mem.Block) {
		if live := tr.Live(); len(live) != 1 || live[0].Block != b {
			t.Errorf("when the holder of %+v hears of it, the tracker has %+v", b, live)
		}
	}
	compact(t, tr, fake.S1)
	if o.block.Ptr != gap.Ptr || o.moved == nil {
		t.Fatalf("the block is at %#x, want %#x", uint64(o.block.Ptr), uint64(gap.Ptr))
	}
	live := tr.Live()
	if len(live) != 1 || live[0].Block != o.block || live[0].Number != 2 || live[0].Stream != fake.S0.ID() || len(live[0].Site) == 0 {
		t.Errorf("live are %+v, want the second allocation at its new address", live)
	}
	testkit.Contains(t, testkit.Panic(t, func() { tr.Free(from) }), "layer: LeakTracker: Free of 64 bytes at 0x1040, which is not a block")
	testkit.Contains(t, testkit.Panic(t, func() { tr.Free(gap) }), "layer: LeakTracker: ")
	testkit.Contains(t, testkit.Panic(t, func() { tr.Movable(from, o) }), "layer: LeakTracker: Movable of 64 bytes at 0x1040")
	tr.Free(o.block)
	testkit.Contains(t, testkit.Panic(t, func() { tr.Free(o.block) }), "double free of 64 bytes at 0x1000")
	if tr.Movable(mem.Block{}, o) {
		t.Error("the zero block may be moved")
	}
}

// A block whose Free has begun is not moved, though its holder would let it.
func TestNoMoveUnderAFree(t *testing.T) {
	for name, over := range map[string]func(mem.Allocator) mem.Allocator{
		"Track": func(a mem.Allocator) mem.Allocator { return layer.NewLeakTracker(a, layer.LeakTrackerOptions{}) },
		"Track, no graves": func(a mem.Allocator) mem.Allocator {
			return layer.NewLeakTracker(a, layer.LeakTrackerOptions{Freed: -1})
		},
		"Scope": func(a mem.Allocator) mem.Allocator { return layer.NewScope(a) },
	} {
		t.Run(name, func(t *testing.T) {
			below := &slidingAllocator{}
			a := over(below)
			gap, o := fake.MustAlloc(t, a, 64), own(t, a, 64)
			a.Free(gap)
			below.onFree = func() { compact(t, a, fake.S1) }
			a.Free(o.block)
			if o.lands != o.lifts || o.moved != nil {
				t.Errorf("%d lifts, %d landings, moved on %v", o.lifts, o.lands, o.moved)
			}
		})
	}
}

// An allocator that lands a block on another is found out.
func TestTrackerRefusesLandingOnALiveBlock(t *testing.T) {
	below := &slidingAllocator{}
	tr := layer.NewLeakTracker(below, layer.LeakTrackerOptions{})
	other, o := fake.MustAlloc(t, tr, 64), own(t, tr, 64)
	h := below.blocks[1].holder
	if _, ok := h.BeginMove(); !ok {
		t.Fatal("the holder refuses")
	}
	text := testkit.Panic(t, func() { h.EndMove(mem.Block{Ptr: other.Ptr, Size: 64, Tag: 9}, fake.S1) })
	if !strings.HasPrefix(text, "layer: LeakTracker: the allocator below moved 64B at 0x1000, where 64B is live") || o.lands != 0 {
		t.Errorf("panicked with %q, and %d landings", text, o.lands)
	}
}
