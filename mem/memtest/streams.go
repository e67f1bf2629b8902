package memtest

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// checkUsedStreams: a block that other streams use when it is freed keeps its contents until they are done. Free may
// name a stream twice, the block's own stream, and streams that never used it (behaviours 28, 30, 34).
func checkUsedStreams(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	for round := range 12 {
		size := sizes(cfg)[(round*7)%len(sizes(cfg))]
		owner, user := round%2, 1-round%2
		b := w.mustAlloc(t, owner, size)
		w.hold(user, true)
		for range 20 { // enough to keep a stream busy that cannot be held
			testkit.Must(t, w.rewrite(b, user))
			testkit.Must(t, w.check(b, user, "by the stream that uses it"))
		}
		w.remove(b)
		all := []driver.Stream{w.streams[user], w.streams[owner], w.streams[user], w.streams[cfg.Streams-1]}
		w.a.Free(b.Block, all[:1+round%4]...)
		testkit.Must(t, w.checkReports(true))
		for _, s := range []int{owner, user, cfg.Streams - 1} {
			for range 3 {
				c := w.mustAlloc(t, s, size) // filled at once: the samples of b show it if that is too soon
				if round%2 == 0 {
					testkit.Must(t, w.free(c))
				}
			}
		}
		w.hold(user, false)
		testkit.Must(t, w.sync())
		testkit.Must(t, w.checkReports(true))
		testkit.Must(t, w.free(w.mustAlloc(t, owner, size)))
	}
	testkit.Must(t, w.finish())
}

// checkUsedByMany: a block that several streams read is not reused before the last of them is done, in whatever order
// they finish (behaviour 35).
func checkUsedByMany(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	for last := 1; last < cfg.Streams; last++ {
		b := w.mustAlloc(t, 0, 1<<min(19, log2(cfg.MaxBlock)))
		for s := 1; s < cfg.Streams; s++ {
			w.hold(s, true)
			testkit.Must(t, w.check(b, s, "by one of many readers"))
		}
		testkit.Must(t, w.free(b))
		for s := 1; s < cfg.Streams; s++ {
			if s != last {
				w.hold(s, false)
			}
			c := w.mustAlloc(t, 0, b.requested)
			if w.sim != nil && !cfg.Waits && c.Ptr < b.end() && b.Ptr < c.end() &&
				w.sim.Pending(w.streams[last].ID()) > 0 {
				t.Fatalf("%v was handed out in place of %v, which s%d still reads", c, b, last)
			}
			testkit.Must(t, w.checkReports(true))
		}
		w.hold(last, false)
		testkit.Must(t, w.sync())
		for len(w.live) > 0 {
			testkit.Must(t, w.free(w.live[0]))
		}
	}
	testkit.Must(t, w.finish())
}

// checkReuseWhileHeld: the block's own stream may reuse it at once, while its work is still queued; another stream only
// once that work is done.
func checkReuseWhileHeld(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	for s := range cfg.Streams {
		w.hold(s, true)
	}
	for round := range 8 {
		for s := range cfg.Streams {
			b := w.mustAlloc(t, s, min(cfg.MaxBlock, 100_000<<(round%4)))
			testkit.Must(t, w.check(b, s, "by its own stream"))
			testkit.Must(t, w.free(b))
			c := w.mustAlloc(t, s, b.requested)
			testkit.Must(t, w.check(c, s, "by its own stream"))
			if round%2 == 0 {
				testkit.Must(t, w.free(c))
			}
		}
		testkit.Must(t, w.checkReports(true))
		if round == 5 {
			testkit.Must(t, w.empty()) // waits by itself for what is queued
		}
	}
	for s := range cfg.Streams {
		w.hold(s, false)
	}
	testkit.Must(t, w.sync())
	testkit.Must(t, w.finish())
}

// checkManyStreams: random histories pass with more streams than a word has bits. An allocator that makes streams wait
// makes no stream wait for memory that only this stream has used.
func checkManyStreams(t testing.TB, cfg Config) {
	many := 200
	if cfg.pieces { // an allocator may have fresh memory for each
		many = 72
	}
	cfg.Streams = max(cfg.Streams, many)
	w := newModel(t, cfg, nil)
	size := min(cfg.MaxBlock, 8<<10)
	for _, busy := range []int{1, many - 2} {
		own := many - 1
		kept := w.mustAlloc(t, busy, size)
		testkit.Must(t, w.free(w.mustAlloc(t, own, size)))
		testkit.Must(t, w.sync())
		w.hold(busy, true)
		testkit.Must(t, w.rewrite(kept, busy))
		testkit.Must(t, w.free(w.mustAlloc(t, own, size)))
		testkit.Must(t, w.syncOne(own))
		if w.sim != nil && cfg.Waits && w.sim.Pending(w.streams[busy].ID()) == 0 {
			t.Fatalf("s%d was given memory that it alone has used, and waited for s%d", own, busy)
		}
		w.hold(busy, false)
		testkit.Must(t, w.sync())
	}
	w.tight = true
	rng := rand.New(rand.NewPCG(cfg.Seed, 4))
	for range 400 { // any three streams use each block
		if len(w.live) > 40 {
			testkit.Must(t, w.free(w.live[rng.IntN(len(w.live))]))
		}
		w.next++
		b, err := w.alloc(w.next, rng.IntN(many), 1+rng.Int64N(size))
		if errors.Is(err, mem.ErrNoMemory) { // it may keep a segment for each stream
			continue
		}
		testkit.Must(t, err)
		for range 2 {
			testkit.Must(t, w.check(b, rng.IntN(many), "by one of many streams"))
		}
	}
	for len(w.live) > 0 {
		testkit.Must(t, w.free(w.live[0]))
	}
	testkit.Must(t, w.finish())
	cfg.Seeds, cfg.Ops, cfg.scarce = 1, min(cfg.Ops, 300), true
	checkRandom(t, cfg)
}

func log2(n int64) int {
	e := 0
	for n > 1 {
		n, e = n/2, e+1
	}
	return e
}

// checkStatistics: alloc and free change the counters, which end at the baseline; peaks and accumulated counters can be
// reset (behaviours 1, 2, 10, 12).
func checkStatistics(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	r, ok := mem.Find[mem.StatsReporter](w.a)
	if !ok {
		testkit.Must(t, w.finish())
		return
	}
	stats := r.Stats
	var asked, got, largest int64
	for i, size := range sizes(cfg) {
		b := w.mustAlloc(t, i%cfg.Streams, size)
		asked, got = asked+size, got+b.Size
		now := stats()
		if n := now.AllocatedBytes.All; n.Current != got || n.Peak != got || n.Allocated != got {
			t.Fatalf("allocated_bytes is %+v after %d bytes", n, got)
		}
		if largest = max(largest, b.Size); now.LargestAlloc != largest {
			t.Fatalf("the largest block is said to be of %d bytes, and is of %d", now.LargestAlloc, largest)
		}
		if n := now.RequestedBytes.All; n.Current != asked || n.Peak != asked {
			t.Fatalf("requested_bytes is %+v after requests of %d bytes", n, asked)
		}
	}
	n := int64(len(w.live))
	for len(w.live) > 0 {
		testkit.Must(t, w.free(w.live[len(w.live)/2]))
	}
	end := stats()
	for _, c := range []struct {
		name string
		now  mem.Stat
		sum  int64
	}{
		{"allocation", end.Allocation.All, n},
		{"allocated_bytes", end.AllocatedBytes.All, got},
		{"active", end.Active.All, n},
		{"active_bytes", end.ActiveBytes.All, got},
		{"requested_bytes", end.RequestedBytes.All, asked},
	} {
		if c.now.Current != 0 || c.now.Peak != c.sum || c.now.Allocated != c.sum || c.now.Freed != c.sum {
			t.Errorf("%s is %+v after %d came and went", c.name, c.now, c.sum)
		}
	}
	reserved := end.ReservedBytes.All
	testkit.Must(t, w.empty())
	if now := stats().ReservedBytes.All; now.Current > reserved.Current || now.Peak != reserved.Peak {
		t.Errorf("emptying the cache changed reserved_bytes from %+v to %+v", reserved, now)
	}
	keep := w.mustAlloc(t, 0, 512)
	w.resetPeaks()
	r.ResetAccumulatedStats()
	w.reset = true
	now := stats()
	for _, a := range now.Arrays() {
		for _, st := range []mem.Stat{a.Array.All, a.Array.SmallPool, a.Array.LargePool} {
			if st.Peak != st.Current || st.Allocated != 0 || st.Freed != 0 {
				t.Errorf("after both resets %s has %+v", a.Name, st)
			}
		}
	}
	if now.NumAllocRetries != 0 || now.NumOOMs != 0 || now.NumDeviceAlloc != 0 || now.NumDeviceFree != 0 {
		t.Errorf("after a reset the counters are %+v", now)
	}
	if now.LargestAlloc != 0 {
		t.Errorf("after a reset the largest block is of %d bytes", now.LargestAlloc)
	}
	other := w.mustAlloc(t, 0, min(3000, cfg.MaxBlock))
	less := w.mustAlloc(t, 0, 1)
	if n := stats().LargestAlloc; n != other.Size {
		t.Errorf("after a reset and blocks of %d and %d bytes the largest is of %d", other.Size, less.Size, n)
	}
	testkit.Must(t, w.free(less))
	testkit.Must(t, w.free(other))
	testkit.Must(t, w.free(keep))
	testkit.Must(t, w.finish())
}
