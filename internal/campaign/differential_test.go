package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// modelled are settings that both models know, as text and as what the documentation says of them.
var modelled = []struct {
	text string
	set  documentedSettings
}{
	{"", documentedSettings{searchAgain: true}},
	{"pytorch-exact:True", documentedSettings{}},
	{"pytorch-exact:True,limit:96MiB", documentedSettings{limit: 96 * mib}},
	{"limit:96MiB,roundup_power2_divisions:4", documentedSettings{limit: 96 * mib, divisions: 4, searchAgain: true}},
	{
		"pytorch-exact:True,max_split_size_mb:22,max_non_split_rounding_mb:24,limit:112MiB",
		documentedSettings{maxSplit: 22 * mib, maxRounding: 24 * mib, limit: 112 * mib},
	},
	{
		"pytorch-exact:True,garbage_collection_threshold:0.4,limit:160MiB",
		documentedSettings{gcThreshold: 0.4, limit: 160 * mib},
	},
	{
		"garbage_collection_threshold:0.7,max_split_size_mb:40,max_non_split_rounding_mb:40,limit:200MiB,roundup_power2_divisions:2",
		documentedSettings{gcThreshold: 0.7, maxSplit: 40 * mib, maxRounding: 40 * mib, limit: 200 * mib, divisions: 2, searchAgain: true},
	},
}

// fresh is a device on which work completes only when it is waited for.
func fresh() *sim.Device {
	return sim.New(sim.Options{Total: 256 * mib, Completion: sim.OnDemand, Unchecked: true})
}

// diverges runs a history through mem/caching and through the documented model, and describes the first difference: in an
// address, or after every so many commands in what is reserved, in the retries, or in a block of a snapshot. It returns
// "" if there is none, and the number of commands done.
func diverges(settings string, set documentedSettings, history []trace.Command, every int) (difference string, n int64) {
	dev, twin := fresh(), fresh()
	a, err := cached(dev, settings)
	if err != nil {
		return err.Error(), 0
	}
	m := &documented{
		dev: twin, set: set, queued: map[uint32]int{}, done: map[uint32]int{}, byName: map[string]*docBlock{},
	}
	run := allocatorRun{dev: dev, a: a, live: map[string]mem.Block{}}
	if err := run.open(); err != nil {
		return err.Error(), 0
	}
	if _, err := twin.Alloc(scratchSize); err != nil {
		return err.Error(), 0
	}
	defer func() {
		if err := errors.Join(run.close(), dev.Close()); err != nil && difference == "" {
			difference = err.Error()
		}
		twin.Close()
	}()
	for i := range history {
		c := &history[i]
		if c.Verb == trace.VerbFree && m.byName[c.Name] == nil {
			continue // its request found no room, or was left out
		}
		want := m.do(c)
		got, err := run.do(c)
		n++
		if err != nil {
			return fmt.Sprintf("line %d: %v", i+1, err), n
		}
		if got != want {
			return fmt.Sprintf("line %d, %s: the block is at %#x, the model's at %#x", i+1, c, uint64(got), uint64(want)), n
		}
		if n%int64(every) == 0 {
			if d := run.differs(m); d != "" {
				return fmt.Sprintf("line %d, %s: %s", i+1, c, d), n
			}
		}
	}
	return run.differs(m), n
}

// differs compares what is reserved, the retries and every block with the model's.
func (r *allocatorRun) differs(m *documented) string {
	stats := r.stats.Stats()
	if got := stats.ReservedBytes.All.Current; got != m.reserved {
		return fmt.Sprintf("%d bytes are reserved, by the model %d", got, m.reserved)
	}
	if stats.NumAllocRetries != m.retries {
		return fmt.Sprintf("%d retries, by the model %d", stats.NumAllocRetries, m.retries)
	}
	if got, want := blocksOf(r.a), m.blocks(); !slices.Equal(got, want) {
		return fmt.Sprintf("the blocks are\n%+v\nby the model\n%+v", got, want)
	}
	return ""
}

// A blockState is what is compared of a block.
type blockState struct {
	at     driver.Pointer
	size   int64
	stream uint32
	small  bool
	state  mem.BlockState
}

func byAddress(a, b blockState) int { return cmp.Compare(a.at, b.at) }

// blocks describes every block, by address.
func (m *documented) blocks() (all []blockState) {
	for _, g := range m.segs {
		for _, b := range g.blocks {
			state := mem.Inactive
			switch {
			case b.live:
				state = mem.ActiveAllocated
			case b.waits > 0:
				state = mem.ActivePendingFree
			}
			all = append(all, blockState{b.at, b.size, g.stream, g.small, state})
		}
	}
	slices.SortFunc(all, byAddress)
	return all
}

func blocksOf(a mem.Allocator) (all []blockState) {
	s, _ := mem.Find[mem.Snapshotter](a)
	for _, g := range s.Snapshot() {
		for _, b := range g.Blocks {
			all = append(all, blockState{b.Ptr, b.Size, uint32(g.Stream), !g.Large, b.State})
		}
	}
	slices.SortFunc(all, byAddress)
	return all
}

const (
	scratchSize = 1 << 20
	numStreams  = 4
)

// An allocatorRun runs commands of scripts on an allocator.
type allocatorRun struct {
	dev     driver.Device
	a       mem.Allocator
	stats   mem.StatsReporter
	streams []driver.Stream
	scratch driver.Pointer // work of streams writes it
	live    map[string]mem.Block
	done    int64 // commands that did something
}

func (r *allocatorRun) open() (err error) {
	r.stats, _ = mem.Find[mem.StatsReporter](r.a)
	r.streams = []driver.Stream{r.dev.DefaultStream()}
	for len(r.streams) < numStreams {
		s, err := r.dev.NewStream(driver.StreamOptions{})
		if err != nil {
			return err
		}
		r.streams = append(r.streams, s)
	}
	r.scratch, err = r.dev.Alloc(scratchSize)
	return err
}

func (r *allocatorRun) do(c *trace.Command) (driver.Pointer, error) {
	if _, live := r.live[c.Name]; c.Verb == trace.VerbFree && !live {
		return 0, nil
	}
	r.done++
	switch c.Verb {
	case trace.VerbAlloc:
		b, err := r.a.Alloc(r.streams[c.Stream], c.Size)
		if errors.Is(err, mem.ErrNoMemory) {
			return 0, nil
		}
		r.live[c.Name] = b
		return b.Ptr, err
	case trace.VerbFree:
		b := r.live[c.Name]
		delete(r.live, c.Name)
		var used []driver.Stream
		for _, s := range c.Used {
			used = append(used, r.streams[s])
		}
		r.a.Free(b, used...)
	case trace.VerbWork:
		return 0, r.streams[c.Stream].Fill(r.scratch, 1, 1)
	case trace.VerbSync:
		return 0, r.streams[c.Stream].Sync(context.Background())
	case trace.VerbEmptyCache:
		if t, ok := mem.Find[mem.Trimmer](r.a); ok {
			return 0, t.EmptyCache()
		}
	}
	return 0, nil
}

// close frees what is live, and closes the allocator if it can be closed.
func (r *allocatorRun) close() error {
	for _, b := range r.live {
		r.a.Free(b)
	}
	if c, ok := mem.Find[interface{ Close() error }](r.a); ok {
		return c.Close()
	}
	return nil
}

// compose makes a history of requests, frees that name other streams, work, waits and empty caches. Every part of it that
// is left out leaves a history.
func compose(rng *rand.Rand, n int) (history []trace.Command) {
	var live []string
	target := 0
	for i := range n {
		if i%50 == 0 {
			target = rng.IntN(30)
		}
		switch p := rng.IntN(100); {
		case p < 70 && (len(live) == 0 || rng.IntN(100) < 50+30*min(1, max(-1, target-len(live)))):
			name := fmt.Sprintf("b%d", i)
			live = append(live, name)
			history = append(history, trace.Command{Verb: trace.VerbAlloc, Name: name, Size: someSize(rng), Stream: uint32(min(rng.IntN(numStreams), rng.IntN(numStreams)))})
		case p < 70:
			at := rng.IntN(len(live))
			var used []uint32
			for rng.IntN(3) == 0 {
				if s := uint32(rng.IntN(numStreams)); !slices.Contains(used, s) {
					used = append(used, s)
				}
			}
			history = append(history, trace.Command{Verb: trace.VerbFree, Name: live[at], Used: used})
			live = slices.Delete(live, at, at+1)
		case p < 88:
			history = append(history, trace.Command{Verb: trace.VerbWork, Stream: uint32(rng.IntN(numStreams))})
		case p < 99:
			history = append(history, trace.Command{Verb: trace.VerbSync, Stream: uint32(rng.IntN(numStreams))})
		default:
			history = append(history, trace.Command{Verb: trace.VerbEmptyCache})
		}
	}
	return history
}

// someSize returns a size of one of the classes of requests, or next to the boundary between two.
func someSize(rng *rand.Rand) int64 {
	switch rng.IntN(8) {
	case 6, 7: // that recur, and differ by what the settings allow an unsplit block to be larger
		return []int64{22, 22, 46, 24, 44, 64, 84}[rng.IntN(7)] * mib
	case 0:
		return 1 + rng.Int64N(4096)
	case 1:
		return 1 + rng.Int64N(mib)
	case 2:
		return []int64{512, mib, 2 * mib, 10 * mib, 20 * mib, 21 * mib, 24 * mib}[rng.IntN(7)] + rng.Int64N(3) - 1
	case 3:
		return 1 + rng.Int64N(40*mib)
	default:
		return mib + rng.Int64N(10*mib)
	}
}

// script is a history as the text of a script.
func script(history []trace.Command) string { return (&trace.Script{Commands: history}).String() }

// mem/caching puts every block where the model from PyTorch's documentation puts it. A history that differs is shrunk;
// saved in testdata it is run each time.
func TestCachingIsAsDocumented(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, p *part) {
		for i, c := range modelled {
			for rng, n := range histories(seed, uint64(i), 20**ops) {
				history := compose(rng, n)
				difference, did := diverges(c.text, c.set, history, 16)
				p.done.Add(did)
				if difference == "" {
					continue
				}
				history = testkit.Shrink(history, func(h []trace.Command) bool {
					difference, _ := diverges(c.text, c.set, h, 1)
					return difference != ""
				})
				difference, _ = diverges(c.text, c.set, history, 1)
				t.Fatalf("caching %s: %s\n%s", c.text, difference, script(history))
			}
		}
	})
}

// The scripts in testdata are histories on which mem/caching or the model was wrong.
func TestKeptScripts(t *testing.T) {
	kept, err := filepath.Glob("testdata/*.script")
	testkit.Must(t, err)
	for _, file := range kept {
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		s, err := trace.ParseScript(string(text))
		testkit.Must(t, err)
		for _, c := range modelled {
			if d, _ := diverges(c.text, c.set, s.Commands, 1); d != "" {
				t.Errorf("%s, caching %s: %s", file, c.text, d)
			}
		}
	}
}
