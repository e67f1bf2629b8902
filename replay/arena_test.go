package replay_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/trace"
)

// An arena runs recorded training in hardly more memory than was requested at the peak, which PyTorch's policies do
// not.
func TestArenaNeedsHardlyMoreThanRequested(t *testing.T) {
	for _, name := range []string{"resnet", "gpt2", "unet"} {
		w := works(t, name)[0]
		r := compare(t, w, replay.CompareOptions{Specs: []string{"arena"}, Smallest: true}).Rows[0]
		if r.SmallestLimit <= 0 || r.SmallestLimit > r.RequestedPeak/1000*1005 {
			t.Errorf("%s: the smallest limit is %d bytes, requested were %d: want at most 1.005 of that", name, r.SmallestLimit, r.RequestedPeak)
		}
		if r.SmallestMoves == nil || r.SmallestMoves.Bytes == 0 || r.Moves == nil {
			t.Errorf("%s: moves %+v, under the smallest limit %+v", name, r.Moves, r.SmallestMoves)
		}
		at := compare(t, w, replay.CompareOptions{Specs: []string{"arena"}, Limit: r.SmallestLimit}).Rows[0]
		if !at.Completed() || at.ReservedPeak > r.SmallestLimit || *at.Moves != *r.SmallestMoves {
			t.Errorf("%s: under the smallest limit, %d bytes: %+v", name, r.SmallestLimit, at)
		}
		expandable, err := replay.SmallestLimit(w, "caching:expandable_segments:True", 0)
		if err != nil || expandable <= r.SmallestLimit {
			t.Errorf("%s: expandable segments need %d bytes, the arena %d: %v", name, expandable, r.SmallestLimit, err)
		}
	}
}

// shuffled is a program of blocks on three streams, half of them freed with other streams pending, that never has more
// than most bytes allocated.
func shuffled(t *testing.T, rng *rand.Rand, most int) *trace.Program {
	var script strings.Builder
	var live, pending []int
	sizes := map[int]int{}
	sum := 0
	for n := range 1500 {
		size := 512 * (1 + rng.IntN(40)) // what an arena rounds to
		if rng.IntN(20) == 0 {
			size *= 16
		}
		for sum+size > most {
			i := rng.IntN(len(live))
			b := live[i]
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			sum -= sizes[b]
			if fmt.Fprintf(&script, "free b%d", b); rng.IntN(2) == 0 {
				script.WriteString(" pending")
				pending = append(pending, b)
			}
			script.WriteByte('\n')
		}
		if len(pending) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(pending))
			fmt.Fprintf(&script, "complete b%d\n", pending[i])
			pending = append(pending[:i], pending[i+1:]...)
		}
		fmt.Fprintf(&script, "alloc b%d %d on=s%d\n", n, size, rng.IntN(3))
		sizes[n], live, sum = size, append(live, n), sum+size
	}
	return program(t, script.String())
}

// Contents survive moves on real memory, between streams and beside frees that are pending.
func TestContentsSurviveCompaction(t *testing.T) {
	for seed := range uint64(2) {
		p := shuffled(t, rand.New(rand.NewPCG(seed, 1)), 4<<20)
		for _, page := range []int64{0, 64 << 10} {
			dev, err := host.Open(host.Options{Total: 64 << 20, Granularity: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			a, err := arena.New(dev, arena.Config{Size: 4<<20 + 64<<10, Page: page})
			if err != nil {
				t.Fatal(err)
			}
			r, err := replay.Run(p, replay.AtOnce(a), dev, replay.Options{Contents: replay.WholeContents, Drain: true})
			if m := a.Moves(); err != nil || !r.Completed || m.Compactions < 10 {
				t.Errorf("seed %d, pages of %d: %+v, %+v, %v", seed, page, r, m, err)
			}
			if err := errors.Join(a.Check(), a.Close(), dev.Close()); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
}

// plainDevice has neither kernels nor graphs: an arena moves by copies of the stream that it is given.
type plainDevice struct{ driver.Device }

func (plainDevice) Kernels() driver.Kernels { return nil }
func (plainDevice) Graphs() driver.Graphs   { return nil }

// forgetful is a stream that copies nothing.
type forgetful struct{ driver.Stream }

func (forgetful) Copy(_, _ driver.Pointer, _ int64) error { return nil }

// A move that leaves a block's bytes behind is detected.
func TestContentsFindBlocksThatWereNotMoved(t *testing.T) {
	dev := plainDevice{drivertest.OpenDevice(t, "host:total=8GiB")}
	p := program(t, "alloc a 4096\nalloc b 4096\nalloc c 4096\nfree a\nalloc d 8192\nfree b\n")
	for _, forgets := range []bool{false, true} {
		a, err := arena.New(dev, arena.Config{Size: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		s := dev.DefaultStream()
		if forgets {
			s = forgetful{s}
		}
		r, err := replay.Run(p, a, dev, replay.Options{Contents: replay.WholeContents, Streams: []driver.Stream{s}})
		var changed *verify.ContentsError
		if found := errors.As(err, &changed); found != forgets || a.Moves().Blocks != 2 || found && changed.Op != 5 {
			t.Errorf("forgets %v: %+v, %+v, %v", forgets, r, a.Moves(), err)
		}
		if !forgets && (err != nil || !r.Completed) {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// Blocks of private pools stay where captured graphs saw them.
func TestBlocksOfPrivatePoolsStay(t *testing.T) {
	for pool, completes := range map[string]bool{"": true, " pool=1,0": false, " pool=0,1": false} {
		dev := sim.New(sim.Options{Unchecked: true})
		a, err := arena.New(dev, arena.Config{Size: 4096})
		if err != nil {
			t.Fatal(err)
		}
		p := program(t, "alloc a 512\nalloc b 512"+pool+"\nfree a\nalloc c 3584\nfree c\nfree b\n")
		r, err := replay.Run(p, a, dev, replay.Options{})
		if err != nil || r.Completed != completes || a.Moves().Blocks > 0 != completes {
			t.Errorf("b is%s: %+v, %+v, %v", pool, r, a.Moves(), err)
		}
	}
}

// Memory whose free is pending is there for others at once, of allocators that wait, and is looked at no more: direct
// has given it back.
func TestAtOnceCompletesDeferredFrees(t *testing.T) {
	p := program(t, "alloc a 4096\nfree a pending\nalloc b 4096 on=s1\nfree b pending\ncomplete b\ncomplete a\nalloc c 1024\n")
	dev := drivertest.OpenDevice(t, "host:total=8GiB")
	a, err := arena.New(dev, arena.Config{Size: 4096})
	if err != nil {
		t.Fatal(err)
	}
	for _, below := range []mem.Allocator{a, direct.New(dev, direct.Config{Limit: 4096})} {
		r, err := replay.Run(p, replay.AtOnce(below), dev, replay.Options{Contents: replay.WholeContents})
		if err != nil || !r.Completed || r.ReservedPeak != 4096 || r.AllocatedPeak != 4096 || r.RequestedPeak != 8192 {
			t.Errorf("%T: %+v, %v", below, r, err)
		}
	}
}

// A row may reserve the smaller of the limit and the settings' value; without either, as little as it needs.
func TestLimitsOfArenasAndDirect(t *testing.T) {
	w := scriptWork(t, "device sim total=1GiB\nalloc a 40MiB\nfree a\nalloc b 30MiB\n")
	const mib = 1 << 20
	for _, c := range []struct {
		spec            string
		limit, reserved int64
		completes       bool
	}{
		{"arena", 0, 40 * mib, true},
		{"arena", 64 * mib, 40 * mib, true},
		{"arena", 41 * mib, 40 * mib, true},
		{"arena", 39 * mib, 0, false},
		{"arena", 1 * mib, 1 * mib, false}, // less than a page
		{"arena:page=32MiB", 0, 64 * mib, true},
		{"arena:page=32MiB", 63 * mib, 0, false},
		{"arena:size=100MiB", 0, 100 * mib, true},
		{"arena:size=100MiB", 50 * mib, 50 * mib, true},
		{"arena:limit=35MiB", 0, 0, false},
		{"direct", 0, 40 * mib, true},
		{"direct", 39 * mib, 0, false},
		{"direct:session=on", 0, 70 * mib, true},
		{"direct:session=on", 69 * mib, 40 * mib, true},
		{"direct:limit=39MiB", 64 * mib, 0, false},
	} {
		r := compare(t, w, replay.CompareOptions{Specs: []string{c.spec}, Limit: c.limit}).Rows[0]
		if r.Completed() != c.completes || r.ReservedPeak != c.reserved || (r.Moves != nil) != strings.HasPrefix(c.spec, "arena") {
			t.Errorf("%s, limit %d: completes %v, %d reserved, moves %v", c.spec, c.limit, r.Completed(), r.ReservedPeak, r.Moves)
		}
	}
}
