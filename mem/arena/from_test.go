package arena_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	_ "github.com/ashlar-go/ashlar/mem/bfc"
	_ "github.com/ashlar-go/ashlar/mem/caching"
	_ "github.com/ashlar-go/ashlar/mem/paged"
)

// An arena of a block of any allocator allocates memory that other streams wait for, compacts within the block, and
// gives it back with the streams that used it. The race detector of the device watches.
func TestNewFrom(t *testing.T) {
	for _, name := range []string{"caching", "bfc", "paged", "direct", "arena:size=16MiB"} {
		t.Run(name, func(t *testing.T) {
			dev := drivertest.OpenSim(t, 64<<20)
			from, err := mem.Open(name, dev)
			testkit.Must(t, err)
			home := drivertest.NewStream(t, dev)
			other := drivertest.NewStream(t, dev)
			odd, err := from.Alloc(home, 256) // which leaves bfc an address that is no multiple of 512
			testkit.Must(t, err)
			before, err := from.Alloc(home, 1<<20)
			testkit.Must(t, err)
			testkit.Must(t, home.Fill(before.Ptr, 1, before.Size))
			from.Free(before) // and now it may be the arena's
			a, err := arena.NewFrom(from, dev, home, arena.Config{Size: 1 << 20})
			testkit.Must(t, err)
			low, err := a.Alloc(other, 1<<19)
			testkit.Must(t, err)
			testkit.Must(t, other.Fill(low.Ptr, 2, low.Size))
			high, err := a.Alloc(home, 1<<18)
			testkit.Must(t, err)
			testkit.Must(t, home.Fill(high.Ptr, 3, high.Size))
			if low.Ptr%512 != 0 || a.Size() != 1<<20 {
				t.Errorf("a block at %#x of an arena of %d bytes", low.Ptr, a.Size())
			}
			h := &settler{block: high}
			if !a.Movable(high, h) {
				t.Fatal("nothing is movable")
			}
			if err := a.Close(); err == nil || !strings.Contains(err.Error(), "2 live blocks") {
				t.Errorf("Close with live blocks: %v", err)
			}
			a.Free(low)
			testkit.Must(t, a.Compact(home))
			if h.block.Ptr != low.Ptr {
				t.Errorf("the block is at %#x, want it at %#x", h.block.Ptr, low.Ptr)
			}
			var got [1]byte
			testkit.Must(t, home.CopyOut(got[:], h.block.Ptr))
			if got[0] != 3 {
				t.Errorf("the block has %d in it, want 3", got[0])
			}
			if _, err := a.Alloc(home, 1<<20); !errors.Is(err, mem.ErrNoMemory) || strings.Contains(err.Error(), "size=") {
				t.Errorf("more than the block: %v; want no advice for a region", err)
			}
			testkit.Must(t, other.Fill(h.block.Ptr, 4, 1)) // work that Close does not wait for
			a.Free(h.block, other)
			testkit.Must(t, a.Close())
			testkit.Must(t, a.Close())
			next, err := from.Alloc(home, 1<<20)
			testkit.Must(t, err)
			testkit.Must(t, home.Fill(next.Ptr, 5, next.Size))
			from.Free(next)
			from.Free(odd)
			if c, ok := from.(interface{ Close() error }); ok {
				testkit.Must(t, c.Close())
			}
			for _, s := range []driver.Stream{home, other} {
				testkit.Must(t, s.Close())
			}
			testkit.Must(t, dev.Close())
			for _, r := range dev.Reports() {
				t.Error(r)
			}
			if l := dev.Leaks(); !l.Empty() {
				t.Errorf("left: %v", l)
			}
		})
	}
}

// A settler lets its block be moved.
type settler struct{ block mem.Block }

func (s *settler) BeginMove() ([]driver.Stream, bool) { return nil, true }

func (s *settler) EndMove(b mem.Block, _ driver.Stream) { s.block = b }

// Wrong settings, or a lack of room, leave nothing behind.
func TestNewFromRefuses(t *testing.T) {
	dev := drivertest.OpenSim(t, 8<<20)
	from, err := arena.New(dev, arena.Config{Size: 1 << 20})
	testkit.Must(t, err)
	for want, cfg := range map[string]arena.Config{
		"want a size":   {},
		"no pages":      {Size: 1 << 20, Page: 2 << 20},
		"multiple of":   {Size: 1 << 20, Round: 100},
		"out of memory": {Size: 2 << 20},
	} {
		if _, err := arena.NewFrom(from, dev, dev.DefaultStream(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v: want %q in it", cfg, err, want)
		}
	}
	testkit.Must(t, from.Close())
	testkit.Must(t, dev.Close())
}
