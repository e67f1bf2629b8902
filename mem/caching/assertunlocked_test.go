package caching

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// assertUnlocked fails the test if a call has returned with a lock. The next call would wait for it for ever, which only
// the time limit would end. The file's name puts its test first.
func assertUnlocked(t *testing.T, a *Allocator, call string) {
	t.Helper()
	free := a.mu.TryLock()
	if free {
		a.mu.Unlock()
	}
	if a.returning.TryLock() {
		a.returning.Unlock()
	} else {
		free = false
	}
	for _, sh := range *a.shards.Load() {
		switch {
		case sh == nil:
		case sh.mu.TryLock():
			sh.mu.Unlock()
		default:
			free = false
		}
	}
	if !free {
		t.Fatalf("%s has kept a lock", call)
	}
}

// No call keeps a lock, whether it succeeds, finds no memory, or a driver call fails in it.
func TestNoCallKeepsALock(t *testing.T) {
	for seed, settings := range []string{
		"", "expandable_segments:True", "limit:24MiB,garbage_collection_threshold:0.4", "max_split_size_mb:21",
		"throw_on_cudamalloc_oom:True",
	} {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		inner := sim.New(sim.Options{Total: 32 << 20, Completion: sim.AtRandom, Seed: uint64(seed)})
		dev := fault.Wrap(inner)
		cfg, _, err := ParseConfig(settings)
		testkit.Must(t, err)
		a, err := New(dev, cfg)
		testkit.Must(t, err)
		streams := []driver.Stream{dev.DefaultStream()}
		for range 3 {
			s, err := dev.NewStream(driver.StreamOptions{})
			testkit.Must(t, err)
			streams = append(streams, s)
		}
		l := &locked{t: t, a: a, rng: rng, streams: streams}
		for range 1500 {
			dev.SetRules()
			if rng.IntN(3) == 0 {
				dev.SetRules(fault.Rule{Nth: 1 + rng.Int64N(3), Onwards: rng.IntN(2) == 0})
			}
			assertUnlocked(t, a, l.call())
		}
		dev.SetRules()
		for _, b := range l.live {
			a.Free(b)
		}
		testkit.Must(t, a.Close())
		assertUnlocked(t, a, "Close")
		testkit.Must(t, errors.Join(inner.Reports()...))
	}
}

// locked makes calls of an allocator.
type locked struct {
	t       *testing.T
	a       *Allocator
	rng     *rand.Rand
	streams []driver.Stream
	live    []mem.Block
}

// call makes a random call and returns its name. Errors do not matter.
func (l *locked) call() string {
	a, s := l.a, l.streams[l.rng.IntN(len(l.streams))]
	switch l.rng.IntN(24) {
	case 0:
		_ = a.EmptyCache()
		return "EmptyCache"
	case 1:
		a.Stats()
		return "Stats"
	case 2:
		a.Snapshot()
		return "Snapshot"
	case 3:
		a.ResetPeakStats()
		a.ResetAccumulatedStats()
		return "a reset"
	case 4:
		a.ProcessPending()
		return "ProcessPending"
	case 5:
		a.CacheInfo()
		a.LargestFree()
		return "CacheInfo"
	case 6:
		a.Observe([]mem.Observer{nil, func(mem.Event) {}}[l.rng.IntN(2)])
		return "Observe"
	case 7:
		_ = a.Configure(a.Config())
		return "Configure"
	case 8:
		if len(l.live) > 0 {
			_, _, _ = a.BaseAllocation(l.live[0])
		}
		return "BaseAllocation"
	case 9:
		if len(l.live) > 0 { // or it would close
			_ = a.Close()
		}
		return "Close"
	default:
		if l.rng.IntN(2) == 0 || len(l.live) == 0 {
			if b, err := a.Alloc(s, 1+l.rng.Int64N(1<<l.rng.IntN(25))); err == nil {
				l.live = append(l.live, b)
			}
			return "Alloc"
		}
		i := l.rng.IntN(len(l.live))
		b := l.live[i]
		l.live = append(l.live[:i], l.live[i+1:]...)
		a.Free(b, l.streams[:l.rng.IntN(3)]...)
		return "Free"
	}
}
