package memtest

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/layer"
)

func sliderWith(b moveBug) func(testing.TB, driver.Device) mem.Allocator {
	return func(_ testing.TB, dev driver.Device) mem.Allocator { return &slider{dev: dev, bug: b} }
}

// sliding is a Config for sliders, on a device with room for few of the blocks that are asked for.
func sliding(b moveBug, opts sim.Options) Config {
	opts.Total = 16 << 20
	return Config{New: sliderWith(b), MaxBlock: 1 << 20, Ops: 400, Seeds: 4, FaultOps: 40, Waits: true}.with(opts)
}

// A sound allocator that moves its blocks passes, whatever the order in which the device does its work.
func TestSlider(t *testing.T) {
	for name, opts := range map[string]sim.Options{
		"at once":   {},
		"at random": {Completion: sim.AtRandom, Seed: 5},
		"on demand": {Completion: sim.OnDemand},
	} {
		t.Run(name, func(t *testing.T) { Run(t, sliding(sound, opts)) })
	}
}

// It passes on memory that is really there.
func TestSliderOnHost(t *testing.T) {
	Run(t, Config{
		Device: On("host:total=16MiB"),
		New:    sliderWith(sound), MaxBlock: 512 << 10, Ops: 300, Seeds: 2, FaultOps: 20, Waits: true,
	})
}

// Adaptors that follow blocks leave it sound; under one that does not follow, nothing moves.
func TestSliderUnderAdaptors(t *testing.T) {
	for name, over := range map[string]func(mem.Allocator) mem.Allocator{
		"followed": func(a mem.Allocator) mem.Allocator {
			return layer.NewScope(layer.NewLeakTracker(layer.NewLimiter(a, 1<<40), layer.LeakTrackerOptions{Freed: 4}))
		},
		"not followed": func(a mem.Allocator) mem.Allocator {
			return layer.NewLeakTracker(blindfold{a}, layer.LeakTrackerOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := sliding(sound, sim.Options{Completion: sim.AtRandom, Seed: 9})
			cfg.New = func(_ testing.TB, dev driver.Device) mem.Allocator { return over(&slider{dev: dev}) }
			Run(t, cfg)
		})
	}
}

// A blindfold is a layer without support for moves.
type blindfold struct{ mem.Allocator }

func (b blindfold) Unwrap() mem.Allocator { return b.Allocator }

// A hoarder moves nothing, and keeps the holders that it says it does not take.
type hoarder struct {
	*pool
	holders []mem.Holder
}

func (h *hoarder) Movable(_ mem.Block, o mem.Holder) bool {
	h.holders = append(h.holders, o)
	return false
}

func TestHoarder(t *testing.T) {
	cfg := Config{New: func(_ testing.TB, dev driver.Device) mem.Allocator { return &hoarder{pool: newPool(dev, none)} }}.
		with(sim.Options{Total: 1 << 30})
	if found := try(t, func(t testing.TB) { checkMoves(t, cfg) }); !strings.Contains(found, "keeps the holder") {
		t.Errorf("found: %q", found)
	}
}

// Every bug of one that moves blocks is found by the check that is there for it.
func TestPlantedMoves(t *testing.T) {
	for _, tt := range []struct {
		bug  moveBug
		text string // that the report must contain
	}{
		{forgetsUsed, "race"},
		{forgetsOwner, "race"},
		{forgetsFreed, "race"},
		{reusesTooSoon, "race"},
		{landsBeside, ""},
		{saysOldPlace, "landed, not moved"},
		{leavesBytes, ""},
		{leavesTail, ""},
		{liftsFreed, "has been freed"},
		{liftsTwice, "has not landed since it was lifted"},
		{landsTwice, "which is not lifted"},
		{neverLands, "has not landed by the end of the call"},
		{overridesNo, "which is not lifted"},
		{takesUnmovable, ""},
		{leavesHole, "is left with 2 holes"},
		{waits, "it waited for s"},
		{ignoresErrors, ""},
		{givesUp, "contents of blocks are lost"},
		{staysLifted, "has not landed by the end of the call"},
		{refusesLater, "Movable of"},
		{resizes, "by being moved"},
	} {
		t.Run(string(tt.bug), func(t *testing.T) {
			cfg := sliding(tt.bug, sim.Options{})
			found := try(t, func(t testing.TB) { checkMoves(t, cfg) })
			if found == "" {
				t.Fatal("not found")
			}
			if !strings.Contains(found, tt.text) {
				t.Errorf("the report lacks %q:\n%s", tt.text, found)
			}
			if testing.Verbose() {
				t.Log(found)
			}
		})
	}
}

// If all driver calls fail, undoing a move fails like the move: the allocator then may lose the contents of its blocks,
// if it says so, and refuse each later move.
func TestMoveCannotBeUndone(t *testing.T) {
	cfg := Config{Waits: true, Alignment: 512, Reserved: 64 << 10}
	cfg.New = func(t testing.TB, dev driver.Device) mem.Allocator {
		return New(t, arena.New, dev, arena.Config{Page: 8 << 20, Bounce: 64 << 10})
	}
	h := history{
		{kind: opAlloc, block: 0, size: 512},
		{kind: opAlloc, block: 1, size: 512},
		{kind: opAlloc, block: 2, size: 10 << 20},
		{kind: opMovable, block: 1},
		{kind: opMovable, block: 2},
		{kind: opFree, block: 0},
		{kind: opCompact},
		{kind: opCheck, block: 1},
		{kind: opSyncAll},
		{kind: opCompact},
		{kind: opWrite, block: 2},
		{kind: opCheck, block: 2},
		{kind: opSyncAll},
	}
	h.failEach(t, cfg.complete(), false, fault.Rule{Onwards: true})
}

// On a device that does not report races the contents give most of them away.
func TestContentsTellOfMoves(t *testing.T) {
	for _, b := range []moveBug{forgetsUsed, forgetsOwner, forgetsFreed, leavesBytes, leavesTail, ignoresErrors} {
		t.Run(string(b), func(t *testing.T) {
			cfg := sliding(b, sim.Options{Unchecked: true})
			if found := try(t, func(t testing.TB) { checkMoves(t, cfg) }); !strings.Contains(found, "contents of") {
				t.Errorf("not found by the contents: %q", found)
			}
		})
	}
}
