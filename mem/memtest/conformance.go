package memtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// mustAlloc returns a filled block with the next number.
func (w *model) mustAlloc(t testing.TB, stream int, size int64) *block {
	t.Helper()
	w.next++
	b, err := w.alloc(w.next, stream, size)
	if err != nil {
		t.Fatalf("Alloc of %d bytes on s%d: %v", size, stream, err)
	}
	return b
}

// sizes are request sizes in bytes around every boundary of the allocators.
func sizes(cfg Config) []int64 {
	var out []int64
	add := func(around int64) {
		for n := around - 1; n <= around+1; n++ {
			if n > 0 && n <= cfg.MaxBlock {
				out = append(out, n)
			}
		}
	}
	for n := int64(1); n <= cfg.MaxBlock && n > 0; n *= 2 {
		add(n)
	}
	add(10 << 20)
	add(20 << 20)
	slices.Sort(out)
	return slices.Compact(out)
}

// checkSizes allocates a block of every size, all at once and then one after the other.
func checkSizes(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	for _, size := range sizes(cfg) {
		w.mustAlloc(t, 0, size)
		testkit.Must(t, w.checkReports(true))
	}
	testkit.Must(t, w.sync())
	testkit.Must(t, w.checkSlowSizes())
	for len(w.live) > 0 {
		freed := w.live[0].Ptr
		testkit.Must(t, w.free(w.live[0]))
		testkit.Must(t, w.checkReports(true))
		if _, _, ok := layer.SlowSizes(w.a, freed); ok {
			t.Fatalf("SlowSizes finds a block at %#x, where one was freed", uint64(freed))
		}
	}
	for _, size := range sizes(cfg) {
		testkit.Must(t, w.free(w.mustAlloc(t, 1, size)))
		testkit.Must(t, w.checkReports(false))
	}
	testkit.Must(t, w.finish())
}

// checkZero: a request of zero bytes returns the zero block, which may be freed any number of times, and changes
// nothing (behaviour 11).
func checkZero(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	keep := w.mustAlloc(t, 0, 512)
	var before mem.Stats
	stats, counts := mem.Find[mem.StatsReporter](w.a)
	if counts {
		before = stats.Stats()
	}
	free := w.available(t)
	for _, s := range w.streams {
		b, err := w.a.Alloc(s, 0)
		if err != nil || b != (mem.Block{}) {
			t.Fatalf("Alloc of 0 bytes: %+v, %v; want the zero block", b, err)
		}
		w.a.Free(b)
		w.a.Free(b, s)
	}
	if counts && stats.Stats() != before {
		t.Errorf("Alloc of 0 bytes changed the statistics from %+v to %+v", before, stats.Stats())
	}
	if now := w.available(t); now != free {
		t.Errorf("Alloc of 0 bytes took %d bytes of the device", free-now)
	}
	testkit.Must(t, w.free(keep))
	testkit.Must(t, w.finish())
}

// checkTooLarge: a request that exceeds every device fails, and later work is unaffected (behaviours 22, 24, 75, 90).
func checkTooLarge(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	keep := w.mustAlloc(t, 0, min(cfg.MaxBlock, 1<<20))
	total := w.dev.Info().TotalMemory
	most := total - 1
	if c, ok := mem.Find[interface{ Capacity() int64 }](w.a); ok {
		if most = c.Capacity(); most < keep.Size || most > total {
			t.Errorf("Capacity is %d, on a device of %d", most, total)
		}
	}
	for _, size := range []int64{
		most + 1, total, 2 * total, 1 << 50, 1<<60 - 1, 1 << 60, 1 << 62, math.MaxInt64 - 511, math.MaxInt64,
	} {
		if size <= most {
			continue
		}
		b, err := w.rawAlloc(0, size)
		if !errors.Is(err, mem.ErrNoMemory) {
			t.Fatalf("Alloc of %d bytes on a device of %d: %+v, %v; want an error that matches mem.ErrNoMemory",
				size, total, b, err)
		}
		if len(err.Error()) == 0 {
			t.Errorf("Alloc of %d bytes: the error has no text", size)
		}
		testkit.Must(t, w.checkReports(true))
		testkit.Must(t, w.check(keep, 1, "after a request that was refused"))
		testkit.Must(t, w.free(w.mustAlloc(t, 1, 513)))
	}
	testkit.Must(t, w.free(keep))
	testkit.Must(t, w.finish())
}

// checkMisuse: a caller's bug panics, and the allocator keeps working.
func checkMisuse(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	small, large := w.mustAlloc(t, 0, 512), w.mustAlloc(t, 0, cfg.MaxBlock)
	w.wantPanic(t, "Alloc of -1 bytes", func() { w.a.Alloc(w.streams[0], -1) })
	w.wantPanic(t, "Alloc of the least int64", func() { w.a.Alloc(w.streams[0], math.MinInt64) })
	for _, b := range []*block{small, large} {
		w.wantPanic(t, "Free inside a block", func() {
			w.a.Free(mem.Block{Ptr: b.Ptr + 1, Size: b.Size - 1, Tag: b.Tag})
		})
		w.wantPanic(t, "Free of an address that is not a block", func() { w.a.Free(mem.Block{Ptr: 4096, Size: 512}) })
		w.wantPanic(t, "Free of an address that is not a block, with a block's tag", func() {
			w.a.Free(mem.Block{Ptr: 4096, Size: b.Size, Tag: b.Tag})
		})
		w.wantPanic(t, "Free with a tag of no block", func() {
			w.a.Free(mem.Block{Ptr: 4096, Size: 512, Tag: math.MaxUint64})
		})
	}
	for _, b := range []*block{small, large} {
		testkit.Must(t, w.free(b))
		w.wantPanic(t, "Free of a freed block", func() { w.a.Free(b.Block) })
		testkit.Must(t, w.checkReports(true))
	}
	again := w.mustAlloc(t, 1, 512)
	testkit.Must(t, w.check(again, 1, "after misuse"))
	testkit.Must(t, w.finish())
}

// checkNilStreams: a nil stream panics for every size and source of memory, and changes nothing: the block of a failed
// Free is still live.
func checkNilStreams(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	for _, size := range []int64{1, 512, 4096, cfg.MaxBlock} {
		size = min(size, cfg.MaxBlock)
		for _, cached := range []bool{false, true} {
			if cached {
				testkit.Must(t, w.free(w.mustAlloc(t, 0, size)))
			}
			w.wantPanic(t, fmt.Sprintf("Alloc of %d bytes on a nil stream", size), func() { w.a.Alloc(nil, size) })
			w.wantPanic(t, fmt.Sprintf("AllocWith of %d bytes on a nil stream", size), func() {
				mem.AllocWith(w.a, nil, size, mem.AllocOptions{NoRetry: true})
			})
		}
		b := w.mustAlloc(t, 0, size)
		w.wantPanic(t, "Free with a nil stream", func() { w.a.Free(b.Block, nil) })
		w.wantPanic(t, "Free with a stream and a nil stream", func() { w.a.Free(b.Block, w.streams[0], nil) })
		testkit.Must(t, w.check(b, 0, "after a Free with a nil stream"))
		testkit.Must(t, w.free(b))
	}
	testkit.Must(t, w.finish())
}

// checkRoundUp: AllocOptions.RoundUp rounds each request up, by the function mem.AllocWith and by the allocator's own
// method.
func checkRoundUp(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	ways := []func(size, unit int64) (mem.Block, error){func(size, unit int64) (mem.Block, error) {
		return mem.AllocWith(w.a, w.streams[0], size, mem.AllocOptions{RoundUp: unit})
	}}
	if a, ok := w.a.(mem.OptionsAllocator); ok {
		ways = append(ways, func(size, unit int64) (mem.Block, error) {
			return a.AllocWith(w.streams[0], size, mem.AllocOptions{RoundUp: unit})
		})
	}
	for i, alloc := range ways {
		for _, c := range [][3]int64{
			{1, 1, 1},
			{1000, 3 << 10, 3 << 10},
			{3 << 10, 3 << 10, 3 << 10},
			{1, cfg.MaxBlock, cfg.MaxBlock},
		} {
			for range 2 { // the second may be served from a cache
				b, err := alloc(c[0], c[1])
				testkit.Must(t, err)
				if b.Size < c[2] {
					t.Errorf("way %d: %d bytes rounded up to a multiple of %d: a block of %d", i, c[0], c[1], b.Size)
				}
				w.a.Free(b)
			}
		}
		if b, err := alloc(0, 512); err != nil || b != (mem.Block{}) {
			t.Errorf("way %d: no bytes rounded up: %+v, %v", i, b, err)
		}
		w.wantPanic(t, "RoundUp of -1", func() { alloc(1, -1) })
		if _, err := alloc(math.MaxInt64, 512); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("way %d: %d bytes: %v", i, int64(math.MaxInt64), err)
		}
	}
	testkit.Must(t, w.finish())
}

// wantPanic fails the test unless f panics with a prefix.
func (w *model) wantPanic(t testing.TB, what string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		switch r := recover(); {
		case r == nil:
			t.Fatalf("%s did not panic", what)
		case !strings.Contains(fmt.Sprint(r), ": ") || strings.HasPrefix(fmt.Sprint(r), "runtime error"):
			t.Errorf("%s panicked with %q: want the name of a package, a colon and the fact", what, r)
		}
		testkit.Must(t, w.checkReports(true))
	}()
	f()
}

// checkManySmall keeps many small blocks live, on all streams.
func checkManySmall(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	rng := rand.New(rand.NewPCG(cfg.Seed, 3))
	for round := range 3 {
		for i := range 300 {
			w.mustAlloc(t, i%cfg.Streams, 1+rng.Int64N(min(4096, cfg.MaxBlock)))
			testkit.Must(t, w.checkReports(false))
		}
		for i := 0; len(w.live) > 0 && (round == 2 || i < 250); i++ {
			testkit.Must(t, w.free(w.live[rng.IntN(len(w.live))]))
			testkit.Must(t, w.checkReports(false))
		}
	}
	testkit.Must(t, w.finish())
}

// checkFreeOrders frees five neighbouring blocks in every order.
func checkFreeOrders(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	size := min(300_000, cfg.MaxBlock)
	var free func(order []int)
	free = func(order []int) {
		if len(order) < 5 {
			for i := range 5 {
				if !slices.Contains(order, i) {
					free(append(order, i))
				}
			}
			return
		}
		var blocks []*block
		for range order {
			blocks = append(blocks, w.mustAlloc(t, 0, size))
		}
		for _, i := range order {
			testkit.Must(t, w.free(blocks[i]))
			testkit.Must(t, w.checkReports(true))
		}
	}
	free(nil)
	testkit.Must(t, w.finish())
}

// checkExhaustion: a device with little memory runs out. Once blocks are freed, requests succeed again, if necessary
// after waiting for pending frees (behaviours 23, 28).
func checkExhaustion(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	w.reserveMemory(t, 4*cfg.MaxBlock)
	if w.available(t) > 4*cfg.MaxBlock {
		return // a device that cannot be filled cannot be exhausted
	}
	for round := range 3 {
		for _, size := range []int64{max(1, cfg.MaxBlock/8), max(1, cfg.MaxBlock/16), max(1, cfg.MaxBlock/64)} {
			for n := 0; ; n++ {
				w.next++
				_, err := w.alloc(w.next, (round+n)%cfg.Streams, size)
				if failed := (*allocError)(nil); errors.As(err, &failed) {
					if !errors.Is(err, mem.ErrNoMemory) {
						t.Fatalf("Alloc of %d bytes of a full device: %v; want an error that matches mem.ErrNoMemory",
							size, err)
					}
					w.checkTentative(t, (round+n)%cfg.Streams, size)
					break
				}
				testkit.Must(t, err)
				if w.sums.bytes > 4*cfg.MaxBlock {
					t.Fatalf("%d bytes are live, but the device has only %d", w.sums.bytes, 4*cfg.MaxBlock)
				}
			}
			testkit.Must(t, w.checkReports(true))
		}
		if len(w.live) == 0 {
			t.Fatalf("a device with %d bytes has no room for a block of %d", 4*cfg.MaxBlock, max(1, cfg.MaxBlock/64))
		}
		testkit.Must(t, w.sync())
		for s := range cfg.Streams {
			w.hold(s, true)
		}
		for i := 0; len(w.live) > 0; i++ {
			if i%2 < round {
				reader := (w.live[0].owner + 1) % cfg.Streams
				testkit.Must(t, w.check(w.live[0], reader, "by a reader that takes its time"))
			}
			testkit.Must(t, w.free(w.live[0]))
		}
		// All memory is free, but in pieces, on other streams, and partly only once a stream is done: the allocator
		// must find and await it by itself.
		testkit.Must(t, w.free(w.mustAlloc(t, round%cfg.Streams, cfg.MaxBlock)))
		for s := range cfg.Streams {
			w.hold(s, false)
		}
	}
	testkit.Must(t, w.finish())
}

// checkTentative: a tentative request that fails is neither counted nor observed.
func (w *model) checkTentative(t testing.TB, stream int, size int64) {
	t.Helper()
	if _, knows := w.a.(mem.OptionsAllocator); !knows {
		return
	}
	var before mem.Stats
	stats, counts := mem.Find[mem.StatsReporter](w.a)
	if counts {
		before = stats.Stats()
	}
	told := 0
	if o, ok := mem.Find[mem.Observable](w.a); ok {
		o.Observe(func(e mem.Event) {
			if e.Action == mem.ActionOOM {
				told++
			}
		})
		defer o.Observe(nil)
	}
	b, err := mem.AllocWith(w.a, w.streams[stream], size, mem.AllocOptions{Tentative: true})
	switch {
	case err == nil: // from another place of a plan
		w.a.Free(b)
	case !errors.Is(err, mem.ErrNoMemory):
		t.Errorf("a tentative Alloc of %d bytes of a full device: %+v, %v; want an error that matches mem.ErrNoMemory",
			size, b, err)
	case told > 0:
		t.Errorf("observers received %d events for a tentative request that failed", told)
	case counts && stats.Stats().NumOOMs != before.NumOOMs:
		t.Errorf("a tentative request that failed counts as out of memory: %d, before %d",
			stats.Stats().NumOOMs, before.NumOOMs)
	}
}

// checkLayers: mem.Find finds layers of this allocator only, and Layers ends.
func checkLayers(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	n := 0
	for layer := range mem.Layers(w.a) {
		if n++; layer == nil || n > 100 {
			t.Fatalf("layer %d of the allocator is %v", n, layer)
		}
	}
	testkit.Must(t, w.empty()) // before anything was allocated
	testkit.Must(t, w.finish())
}
