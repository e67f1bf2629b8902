package layer_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
)

// An optioned allocator notes the wishes of each request.
type optioned struct {
	*fake.Pile
	plain int // requests without
	got   []mem.AllocOptions
}

func (a *optioned) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	a.plain++
	return a.Pile.Alloc(s, size)
}

func (a *optioned) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	a.got = append(a.got, o)
	return a.Pile.Alloc(s, size)
}

// Options reach the allocator at the bottom, through every adaptor and through all of them, for small blocks and for
// large. Blocks that a layer has at hand it allocates by itself, but never for a request with FreedBefore.
// Layers that would ask again make requests tentative.
func TestWishesReachTheBottom(t *testing.T) {
	dev := sim.New(sim.Options{Unchecked: true})
	defer dev.Close()
	stacks := map[string]func(mem.Allocator) mem.Allocator{
		"magazine": func(below mem.Allocator) mem.Allocator { return magazine.New(below, magazine.Options{}) },
	}
	for _, ad := range adaptors {
		stacks[ad.name] = func(below mem.Allocator) mem.Allocator { return ad.over(t, dev, below) }
	}
	stacks["all"] = func(below mem.Allocator) mem.Allocator {
		for _, ad := range adaptors {
			if ad.name != "zero" && ad.name != "route" { // above which nothing may reuse memory
				below = ad.over(t, dev, below)
			}
		}
		return layer.NewZeroer(stacks["magazine"](below))
	}
	keeps, retries := []string{"slab", "magazine", "all"}, []string{"retry", "slab", "magazine", "all"}
	for name, over := range stacks {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int64{1, 3 << 20} {
				base := &optioned{Pile: fake.NewPile(4096)}
				a := over(base)
				for _, o := range []mem.AllocOptions{
					{NoRetry: true},
					{Logged: true},
					{NoRetry: true, Tentative: true},
					{NoRetry: true, FreedBefore: func() uint64 { return 42 }},
					{NoRetry: true, Key: "tenant"},
				} {
					base.got = nil
					b, err := mem.AllocWith(a, idle{}, size, o)
					testkit.Must(t, err)
					if slices.Contains(keeps, name) && (o.Logged || o.Tentative) && len(base.got) == 0 {
						a.Free(b)
						continue
					}
					if base.plain > 0 || len(base.got) == 0 {
						t.Fatalf("%d bytes with %+v: %d requests without wishes, %+v with", size, o, base.plain, base.got)
					}
					for _, got := range base.got {
						tentative := o.Tentative || !o.NoRetry && slices.Contains(retries, name)
						if got.NoRetry != o.NoRetry || got.Logged != o.Logged || got.Tentative != tentative || got.Key != o.Key || (got.FreedBefore == nil) != (o.FreedBefore == nil) ||
							o.FreedBefore != nil && got.FreedBefore() != 42 {
							t.Errorf("%d bytes with %+v: %+v has reached the bottom", size, o, got)
						}
					}
					a.Free(b)
				}
				base.got = nil
				b, err := a.Alloc(idle{}, 3<<20)
				testkit.Must(t, err)
				a.Free(b)
				if slices.Contains(retries, name) {
					for _, got := range base.got {
						if !got.Tentative || got.NoRetry || got.Logged || got.FreedBefore != nil {
							t.Errorf("a request without options arrives as %+v", got)
						}
					}
				} else if len(base.got) > 0 || base.plain == 0 {
					t.Errorf("a request without options arrives as %+v", base.got)
				}
			}
		})
	}
}

// Without options, or where no layer supports them, it is the request that it would have been.
func TestWishesOfAnAllocatorThatKnowsNone(t *testing.T) {
	base := fake.NewPile(512)
	b, err := mem.AllocWith(base, fake.S0, 100, mem.AllocOptions{NoRetry: true, Logged: true})
	testkit.Must(t, err)
	base.Fail = driver.ErrLost
	if _, err := mem.AllocWith(base, fake.S0, 100, mem.AllocOptions{}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("%+v, then %v", b, err)
	}
}

// The other allocator of a Fallback is asked under the same wishes.
func TestWishesFallBack(t *testing.T) {
	then := &optioned{Pile: fake.NewPile(1)}
	_, err := mem.AllocWith(layer.NewFallback(layer.NewLimiter(fake.NewPile(1), 0), then), fake.S0, 100, mem.AllocOptions{NoRetry: true})
	if testkit.Must(t, err); len(then.got) != 1 || !then.got[0].NoRetry {
		t.Errorf("it has %+v", then.got)
	}
}

// The site of a request with options is its caller: a tracker leaves its own calls out in both cases.
func TestTrackedSitesOfWishes(t *testing.T) {
	a := layer.NewLeakTracker(fake.NewPile(1), layer.LeakTrackerOptions{})
	_, err := a.Alloc(fake.S0, 1)
	testkit.Must(t, err)
	_, err = a.AllocWith(fake.S0, 1, mem.AllocOptions{Logged: true})
	testkit.Must(t, err)
	for _, b := range a.Live() {
		if !strings.HasSuffix(b.Site[0].Function, "TestTrackedSitesOfWishes") {
			t.Errorf("number %d was asked for by %s", b.Number, b.Site[0].Function)
		}
	}
}

// Of a block that its owner logs nothing is written when it is moved, nor of another in the other's place: blocks come
// to where others have been, in any order.
func TestLogOfMovesThatOthersLog(t *testing.T) {
	for _, backward := range []bool{false, true} {
		below := &slidingAllocator{backward: backward}
		var out bytes.Buffer
		a := layer.NewLogger(below, &out, nil)
		var owners [5]owner
		for i := range owners {
			b, err := mem.AllocWith(a, idle{}, 100, mem.AllocOptions{Logged: i%2 == 0})
			testkit.Must(t, err)
			owners[i].block = b
			if i > 0 {
				mem.Movable(a, b, &owners[i])
			}
		}
		a.Free(owners[0].block)
		out.Reset()
		testkit.Must(t, below.Compact(idle{}))
		if n := strings.Count(out.String(), "move"); n != 2 {
			t.Errorf("%d moves are logged, of which 2 are its own:\n%s", n, &out)
		}
		out.Reset()
		testkit.Must(t, below.Compact(idle{})) // nothing is left to move
		for i := range owners[1:] {
			a.Free(owners[1+i].block)
		}
		if n := strings.Count(out.String(), "free"); n != 2 || strings.Contains(out.String(), "move") {
			t.Errorf("%d frees are logged, of which 2 are its own:\n%s", n, &out)
		}
		if _, err := a.Alloc(idle{}, 50); err != nil || !strings.Contains(out.String(), "allocate,0x1000,50") {
			t.Errorf("%v: an address stays out of the log when its block is gone:\n%s", err, &out)
		}
	}
}

// Join forgets no wish: every field of either is in both.
func TestJoinOfOptions(t *testing.T) {
	full := mem.AllocOptions{
		NoRetry: true, Logged: true, Tentative: true, RoundUp: 4, FreedBefore: func() uint64 { return 1 }, Key: "anna",
	}
	of := reflect.ValueOf(full)
	for _, both := range []mem.AllocOptions{full.Join(mem.AllocOptions{}), (mem.AllocOptions{}).Join(full)} {
		for i := range of.NumField() {
			name := of.Type().Field(i).Name
			if of.Field(i).IsZero() {
				t.Errorf("the test sets no %s", name)
			}
			if reflect.ValueOf(both).Field(i).IsZero() {
				t.Errorf("%s is lost", name)
			}
		}
	}
	if o := full.Join(mem.AllocOptions{RoundUp: 8, Key: "berta"}); o.RoundUp != 4 || o.Key != "anna" {
		t.Errorf("both have %+v", o)
	}
}
