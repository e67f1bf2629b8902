package memtest

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
)

// A bug is something that a pool does wrong.
type bug string

const (
	none               bug = ""
	overlaps           bug = "what is cut off a block begins inside it"
	ignoresUsed        bug = "Free ignores the streams that it is told of"
	ignoresDefault     bug = "Free ignores the default stream"
	waitsForFirst      bug = "Free waits for the first stream only"
	crossesStreams     bug = "free memory of one stream goes to another"
	losesOnError       bug = "a segment that the driver does not take back is forgotten"
	losesPending       bug = "a free whose mark fails is forgotten"
	dropsFailedMark    bug = "a free whose mark fails waits for nothing"
	panicsOnError      bug = "a driver error panics"
	countsRefused      bug = "a request that is refused is counted"
	leaksSegment       bug = "emptying the cache forgets the third segment"
	miscounts          bug = "requested bytes of freed blocks are rounded"
	offByOne           bug = "active blocks are one too many when any wait"
	peakFalls          bug = "resetting peaks makes them zero"
	latePeak           bug = "the peak of allocated bytes rises with the next call"
	stalePeak          bug = "the peak of requested bytes is the current value"
	shortBlocks        bug = "blocks of odd hundreds of KiB are one byte short"
	unaligned          bug = "large blocks begin 16 bytes late"
	takesDoubleFree    bug = "a double free is taken"
	takesForeign       bug = "a foreign block is taken"
	zeroTakesMemory    bug = "zero bytes take a block"
	neverMerges        bug = "free neighbours are not merged"
	keepsPending       bug = "out of memory does not wait for pending frees"
	rawErrors          bug = "out of memory is the driver's error"
	overflows          bug = "sizes next to 2^63 overflow"
	touchesAfterReturn bug = "a block is filled after it was given back"
	losesFree          bug = "a free that leaves 40 blocks is never finished"
	dereferencesNil    bug = "Alloc takes a nil stream for a stream"
	freesForNil        bug = "Free notices a nil stream once the block is gone"
	forgetsLargest     bug = "the largest block is the last"
	keepsLargest       bug = "resetting peaks keeps the largest block"
	countsTentative    bug = "a tentative request that is refused is counted"
	gapInSnapshot      bug = "the snapshot leaves out the last block"
)

// A bug is found without statistics and a snapshot to look at, too: by the addresses, the contents and the device.
func TestPlantedBugsUnseen(t *testing.T) {
	for _, tt := range []struct {
		bug   bug
		check string // that must find it
	}{
		{overlaps, "Sizes"},
		{ignoresUsed, "UsedStreams"},
		{waitsForFirst, "UsedByMany"},
		{crossesStreams, "Sizes"},
		{losesOnError, "Faults"},
		{losesPending, "Faults"},
		{dropsFailedMark, "Faults"},
		{panicsOnError, "TooLarge"},
		{leaksSegment, "Sizes"},
		{shortBlocks, "ReuseWhileHeld"},
		{unaligned, "Sizes"},
		{takesDoubleFree, "Misuse"},
		{takesForeign, "Misuse"},
		{zeroTakesMemory, "Zero"},
		{neverMerges, "Sizes"},
		{keepsPending, "Exhaustion"},
		{rawErrors, "TooLarge"},
		{rawErrors, "Exhaustion"},
		{overflows, "TooLarge"},
		{touchesAfterReturn, "Sizes"},
		{losesFree, "Sizes"},
		{dereferencesNil, "NilStreams"},
		{freesForNil, "NilStreams"},
	} {
		t.Run(string(tt.bug)+"/"+tt.check, func(t *testing.T) {
			blind := func(_ testing.TB, dev driver.Device) mem.Allocator { return unseen{newPool(dev, tt.bug)} }
			if reportOf(t, tt.check, Config{New: blind, Ops: 500}.with(sim.Options{Total: 1 << 30})) == "" {
				t.Error("not found")
			}
		})
	}
}

// reportOf returns what one check of the suite reports, or an empty text.
func reportOf(t *testing.T, check string, cfg Config) string {
	t.Helper()
	for _, c := range checks {
		if c.name == check {
			return try(t, func(t testing.TB) { c.run(t, cfg) })
		}
	}
	t.Fatalf("no check is named %s", check)
	return ""
}

// unseen hides a pool's optional methods.
type unseen struct{ p *pool }

func (u unseen) Alloc(s driver.Stream, size int64) (mem.Block, error) { return u.p.Alloc(s, size) }
func (u unseen) Free(b mem.Block, used ...driver.Stream)              { u.p.Free(b, used...) }
func (u unseen) EmptyCache() error                                    { return u.p.EmptyCache() }
func (u unseen) Close() error                                         { return u.p.Close() }

// On a device that does not report races the contents give a bug away.
func TestContentsTell(t *testing.T) {
	for _, b := range []bug{ignoresUsed, waitsForFirst, crossesStreams, touchesAfterReturn} {
		t.Run(string(b), func(t *testing.T) {
			cfg := Config{New: poolWith(b), Ops: 800}.with(sim.Options{Total: 1 << 30, Unchecked: true})
			for _, c := range checks {
				found := try(t, func(t testing.TB) { c.run(t, cfg) })
				if strings.Contains(found, "contents of") || strings.Contains(found, "still reads") {
					return
				}
			}
			t.Error("not found by the contents")
		})
	}
}

func (c Config) with(opts sim.Options) Config {
	c.Sim = opts
	return c.complete()
}

// A shrunk history is short, still fails, and reads as a script.
func TestShrink(t *testing.T) {
	cfg := Config{New: poolWith(ignoresUsed), Ops: 1000, Seeds: 1}.with(sim.Options{Total: 1 << 30})
	found := try(t, func(t testing.TB) { checkRandom(t, cfg) })
	_, rest, _ := strings.Cut(found, "\n\n")
	script, _, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(strings.TrimSpace(script), "\n")
	if len(lines) > 6 || !strings.Contains(script, " used=s") {
		t.Errorf("left of 1000 operations:\n%s", found)
	}
	if again := try(t, func(t testing.TB) { checkRandom(t, cfg) }); again != found {
		t.Errorf("run again, the report is another:\n%s\nand before:\n%s", again, found)
	}
}

// Every planted bug is found, and by the check that is there for it.
func TestPlantedBugs(t *testing.T) {
	for _, tt := range []struct {
		bug   bug
		check string // that must find it; others may too
		text  string // that its report must contain
	}{
		{overlaps, "Random", "snapshot"},
		{ignoresUsed, "UsedStreams", "race"},
		{ignoresUsed, "Random", "used="},
		{ignoresDefault, "UsedStreams", "race"},
		{waitsForFirst, "UsedByMany", "race"},
		{crossesStreams, "Random", "race"},
		{losesOnError, "Faults", ""},
		{losesPending, "Faults", ""},
		{dropsFailedMark, "Faults", "race"},
		{panicsOnError, "Faults", "panic"},
		{countsRefused, "TooLarge", "live"},
		{leaksSegment, "Random", "still held"},
		{miscounts, "Random", "requested_bytes"},
		{offByOne, "Random", "active"},
		{peakFalls, "Statistics", "Peak:0"},
		{latePeak, "Statistics", "allocated_bytes"},
		{stalePeak, "Random", "the peak of requested bytes live"},
		{shortBlocks, "Random", "too small"},
		{unaligned, "Sizes", "no multiple"},
		{takesDoubleFree, "Misuse", "freed block did not panic"},
		{takesForeign, "Misuse", "did not panic"},
		{zeroTakesMemory, "Zero", "0 bytes"},
		{neverMerges, "Exhaustion", ""},
		{keepsPending, "Exhaustion", "out of memory"},
		{rawErrors, "TooLarge", "matches mem.ErrNoMemory"},
		{overflows, "TooLarge", ""},
		{touchesAfterReturn, "Random", "race"},
		{losesFree, "Random", ""},
		{dereferencesNil, "NilStreams", "runtime error"},
		{freesForNil, "NilStreams", "not live"},
		{gapInSnapshot, "ManySmall", "snapshot"},
		{forgetsLargest, "Statistics", "the largest"},
		{keepsLargest, "Statistics", "the largest"},
		{countsTentative, "Exhaustion", "counts as out of memory"},
	} {
		t.Run(string(tt.bug)+"/"+tt.check, func(t *testing.T) {
			found := reportOf(t, tt.check, Config{New: poolWith(tt.bug), Ops: 500}.with(sim.Options{Total: 1 << 30}))
			if found == "" {
				t.Fatal("not found")
			}
			if !strings.Contains(found, tt.text) {
				t.Errorf("the report lacks %q:\n%s", tt.text, found)
			}
			if i := strings.Index(found, "operations are left"); i >= 0 && testing.Verbose() {
				t.Log(found)
			}
		})
	}
}
