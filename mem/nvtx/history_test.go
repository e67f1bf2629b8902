//go:build linux && (amd64 || arm64) && !nocuda

package nvtx

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// After every operation of a random history, the tool's heaps are the memory that the allocator has from its device,
// and its regions are the requested bytes of the blocks in use.
func TestToolKnowsWhatTheAllocatorHas(t *testing.T) {
	for name, settings := range map[string]string{
		"native": "", "split": "max_split_size_mb:20", "expandable": "expandable_segments:True",
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				f := &fakeTool{}
				tool, err := f.play(t)
				testkit.Must(t, err)
				runHistory(t, f, tool, settings, rand.New(rand.NewPCG(seed, 0)))
			})
		}
	}
}

func runHistory(t *testing.T, f *fakeTool, tool *Tool, settings string, random *rand.Rand) {
	cfg, _, err := caching.ParseConfig(settings)
	testkit.Must(t, err)
	dev := drivertest.OpenSim(t, 256<<20)
	a, err := caching.New(dev, cfg)
	testkit.Must(t, err)
	a.Observe(f.watch(tool.Observer()))
	streams := []driver.Stream{dev.DefaultStream()}
	s := drivertest.NewStream(t, dev)
	streams = append(streams, s)

	var live []mem.Block
	drop := func(i int, used ...driver.Stream) {
		a.Free(live[i], used...)
		live[i] = live[len(live)-1]
		live = live[:len(live)-1]
	}
	var most int
	for step := range 1500 {
		switch n := random.IntN(100); {
		case n < 50:
			b, err := a.Alloc(streams[n%2], 1+random.Int64N(1<<(4+random.IntN(23))))
			if err == nil {
				live = append(live, b)
			} else if !errors.Is(err, mem.ErrNoMemory) {
				t.Fatal(err)
			}
		case n < 95 && len(live) > 0:
			i := random.IntN(len(live))
			var used []driver.Stream
			if n%4 == 0 {
				used = streams
			}
			drop(i, used...)
		case n >= 98:
			testkit.Must(t, a.EmptyCache())
		}
		segments, blocks := held(a)
		if !slices.Equal(segments, joined(f.heapRanges())) || !slices.Equal(blocks, joined(f.regionRanges())) {
			t.Fatalf("step %d: the allocator has %v and blocks %v,\nthe tool knows %v and %v", step,
				segments, blocks, f.heapRanges(), f.regionRanges())
		}
		most = max(most, len(f.regions))
	}
	if most < 10 {
		t.Errorf("there were never more than %d regions: the history shows little", most)
	}
	for len(live) > 0 {
		drop(0)
	}
	testkit.Must(t, a.EmptyCache())
	if len(f.heaps)+len(f.regions) != 0 || tool.Refused() != 0 {
		t.Errorf("left over: heaps %v, regions %v, %d refused", f.heaps, f.regions, tool.Refused())
	}
}

// held returns the address ranges that the allocator has from its device, and those that users requested.
func held(a *caching.Allocator) (segments, blocks []region) {
	for _, s := range a.Snapshot() {
		segments = append(segments, region{Ptr: s.Ptr, Size: s.TotalSize})
		for _, b := range s.Blocks {
			if b.State != mem.Inactive {
				blocks = append(blocks, region{Ptr: b.Ptr, Size: b.RequestedSize})
			}
		}
	}
	return joined(segments), joined(blocks)
}

func (f *fakeTool) heapRanges() []region {
	var all []region
	for _, h := range f.heaps {
		all = append(all, h)
	}
	return all
}

func (f *fakeTool) regionRanges() []region {
	var all []region
	for _, r := range f.regions {
		all = append(all, r.region)
	}
	return all
}

// joined merges adjacent ranges: a block may be divided where one run of pages ends and another begins.
func joined(all []region) []region {
	slices.SortFunc(all, func(a, b region) int { return cmp.Compare(a.Ptr, b.Ptr) })
	var out []region
	for _, r := range all {
		if n := len(out); n > 0 && end(out[n-1]) == r.Ptr {
			out[n-1].Size += r.Size
		} else {
			out = append(out, r)
		}
	}
	return out
}
