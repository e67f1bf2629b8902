package campaign

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// requests makes a program of small requests and frees. Some frees are deferred.
func requests(rng *rand.Rand, n int) *trace.Program {
	p := &trace.Program{Streams: 3, Pools: []mem.PoolID{{}}}
	var live, pending []uint32
	take := func(from *[]uint32) uint32 {
		at := rng.IntN(len(*from))
		b := (*from)[at]
		*from = append((*from)[:at:at], (*from)[at+1:]...)
		return b
	}
	for len(p.Ops) < n {
		switch k := rng.IntN(10); {
		case len(live) == 0, k < 5 && len(live) < 60:
			b := uint32(p.Blocks)
			p.Blocks++
			live = append(live, b)
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpAlloc, Block: b, Size: 1 + rng.Int64N(1<<rng.IntN(18)), Stream: rng.Uint32N(3)})
		case k == 5 && len(pending) > 0:
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpComplete, Block: take(&pending)})
		case k == 6:
			b := take(&live)
			pending = append(pending, b)
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFreeDeferred, Block: b})
		default:
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFree, Block: take(&live)})
		}
	}
	return p
}

// Every byte of every block is, when the block is freed, what was written to it: in paged memory, in a plan that fits,
// in a plan of another program, and in an arena so small that it compacts.
func TestContentsByteForByte(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, count *part) {
		for rng, n := range histories(seed, 17, 4**ops) {
			p, other := requests(rng, n), requests(rng, n)
			all := map[string]func(driver.Device) (mem.Allocator, error){
				"planned":         func(dev driver.Device) (mem.Allocator, error) { return ofPlan(t, dev, p) },
				"planned of less": func(dev driver.Device) (mem.Allocator, error) { return ofPlan(t, dev, other) },
				"arena": func(dev driver.Device) (mem.Allocator, error) {
					return arena.New(dev, arena.Config{Size: p.LowerBound() + p.LowerBound()/4 + mib})
				},
			}
			for _, s := range subjects() {
				if strings.HasPrefix(s.name, "paged") || strings.HasPrefix(s.name, "arena") {
					all[s.name] = s.make
				}
			}
			for name, open := range all {
				checkContents(t, name, open, p)
				count.done.Add(int64(len(p.Ops)))
			}
		}
	})
}

// checkContents runs a program on host memory, where every block is filled, and read when it is freed.
func checkContents(t *testing.T, name string, open func(driver.Device) (mem.Allocator, error), p *trace.Program) {
	t.Helper()
	dev, err := driver.Open("host:total=512MiB")
	testkit.Must(t, err)
	a, err := open(dev)
	testkit.Must(t, err)
	r, err := replay.Run(p, replay.AtOnce(a), dev, replay.Options{Contents: replay.WholeContents, Drain: true})
	if err != nil || !r.Completed {
		t.Errorf("%s: %v, completed: %v", name, err, r.Completed)
	}
	closer, _ := mem.Find[interface{ Close() error }](a)
	testkit.Must(t, errors.Join(closer.Close(), dev.Close()))
}

// ofPlan returns an allocator with a plan of a program, and mem/caching for what the plan does not have.
func ofPlan(t *testing.T, dev driver.Device, p *trace.Program) (mem.Allocator, error) {
	plan, err := planned.Make(t.Context(), p, planned.Options{Steps: 1})
	if err != nil {
		return nil, err
	}
	below, err := caching.New(dev, caching.Default())
	if err != nil {
		return nil, err
	}
	a, err := planned.New(dev, plan, planned.Settings{Fallback: below})
	if err != nil {
		return nil, err
	}
	return closing{a, below}, nil
}

// closing closes the fallback of a plan with it.
type closing struct {
	*planned.Allocator
	below *caching.Allocator
}

func (c closing) Close() error { return errors.Join(c.Allocator.Close(), c.below.Close()) }
