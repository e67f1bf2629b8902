package magazine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/magazine"
)

// stream is a stream of which only the number matters.
type stream struct {
	driver.Stream
	id driver.StreamID
}

func (s stream) ID() driver.StreamID { return s.id }

var s0, s1 driver.Stream = stream{id: 0}, stream{id: 1}

// A ledger is a allocator below that knows what it allocated: blocks of exactly the size asked for, in ascending order,
// as long as they fit. It reports nothing.
type ledger struct {
	mu       sync.Mutex
	capacity int64
	next     driver.Pointer
	live     map[driver.Pointer]mem.Block
	streams  map[driver.Pointer]driver.Stream // of all blocks
	size     int64
	allocs   int
	refused  int
	freed    []mem.Block
	used     []driver.Stream // of the last Free
	fail     error           // of all calls, if set
}

func newLedger(capacity int64) *ledger {
	return &ledger{
		capacity: capacity, next: 1 << 30, live: map[driver.Pointer]mem.Block{}, streams: map[driver.Pointer]driver.Stream{},
	}
}

func (l *ledger) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return l.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator: a tentative refusal does not count.
func (l *ledger) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if size <= 0 {
		if size < 0 {
			panic("ledger: negative size")
		}
		return mem.Block{}, nil
	}
	l.allocs++
	if l.fail != nil {
		return mem.Block{}, l.fail
	}
	if l.size+size > l.capacity {
		if !o.Tentative {
			l.refused++
		}
		return mem.Block{}, fmt.Errorf("ledger: %w", mem.ErrNoMemory)
	}
	b := mem.Block{Ptr: l.next, Size: size, Tag: uint64(l.next) * 7}
	l.next += driver.Pointer(size+511) &^ 511
	l.live[b.Ptr], l.streams[b.Ptr] = b, s
	l.size += size
	return b, nil
}

func (l *ledger) Free(b mem.Block, used ...driver.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live[b.Ptr] != b {
		panic(fmt.Sprintf("ledger: Free of %+v", b))
	}
	delete(l.live, b.Ptr)
	l.size -= b.Size
	l.freed = append(l.freed, b)
	l.used = used
}

// newSingle makes a Cache with one processor cache, so that a goroutine finds what it freed wherever it runs.
func newSingle(below mem.Allocator, opts magazine.Options) *magazine.Cache {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return magazine.New(below, opts)
}

func mustAlloc(t testing.TB, a mem.Allocator, s driver.Stream, size int64) mem.Block {
	t.Helper()
	b, err := a.Alloc(s, size)
	if err != nil {
		t.Fatalf("Alloc of %d bytes: %v", size, err)
	}
	return b
}

func wantHeld(t testing.TB, c *magazine.Cache, n int, size int64) {
	t.Helper()
	if gotN, got := c.Held(); gotN != n || got != size {
		t.Errorf("%d blocks of %d bytes are held, want %d of %d", gotN, got, n, size)
	}
}

// What a warm call must not do: no call of the allocator below, no driver call, no heap allocation.
func TestWarmTouchesNothing(t *testing.T) {
	inner := sim.New(sim.Options{Total: 1 << 30, Unchecked: true})
	dev := fault.Wrap(inner)
	c, below := over(t, dev, "", magazine.Options{})
	s := dev.DefaultStream()
	c.Free(mustAlloc(t, c, s, 5000))
	before, calls := below.Stats().Allocation.All.Allocated, dev.Calls()
	if n := testing.AllocsPerRun(1000, func() { c.Free(mustAlloc(t, c, s, 5000)) }); n != 0 {
		t.Errorf("%v heap allocations a pair", n)
	}
	// The goroutine may have been moved: each processor's first pair calls the allocator below.
	if n := below.Stats().Allocation.All.Allocated - before; n > 64 {
		t.Errorf("1000 warm pairs made the allocator below allocate %d times", n)
	}
	if n := dev.Calls() - calls; n != 0 {
		t.Errorf("1000 warm pairs made %d driver calls", n)
	}
}

// A block that was freed comes back on its own stream, for requests of its class, and for no others.
func TestReuse(t *testing.T) {
	below := newLedger(1 << 40)
	c := newSingle(below, magazine.Options{})
	b := mustAlloc(t, c, s0, 1000)
	c.Free(b)
	wantHeld(t, c, 1, 1000)
	for _, other := range []struct {
		s    driver.Stream
		size int64
		why  string
	}{
		{s1, 1000, "another stream"},
		{s0, 512, "a smaller class"},
		{s0, 1025, "a larger class"},
		{s0, 1010, "more bytes than the block has"},
	} {
		if got := mustAlloc(t, c, other.s, other.size); got.Ptr == b.Ptr || got.Size < other.size {
			t.Errorf("%s: got %+v, the held block is %+v", other.why, got, b)
		}
	}
	again := mustAlloc(t, c, s0, 513)
	if again.Ptr != b.Ptr || again.Size != b.Size || again.Tag == b.Tag {
		t.Errorf("the same class: got %+v, want %+v with another tag", again, b)
	}
	wantHeld(t, c, 0, 0)
}

// Free of a freed block panics and changes nothing, wherever the block is held.
func TestMisuse(t *testing.T) {
	below := newLedger(1 << 40)
	c := newSingle(below, magazine.Options{})
	b := mustAlloc(t, c, s0, 4096)
	for what, bad := range map[string]mem.Block{
		"another address":      {Ptr: b.Ptr + 512, Size: b.Size, Tag: b.Tag},
		"another size":         {Ptr: b.Ptr, Size: b.Size - 1, Tag: b.Tag},
		"no tag":               {Ptr: b.Ptr, Size: b.Size},
		"an unused generation": {Ptr: b.Ptr, Size: b.Size, Tag: b.Tag + 1},
		"no such record":       {Ptr: b.Ptr, Size: b.Size, Tag: 1<<64 - 1},
		"a later allocation":   {Ptr: b.Ptr, Size: b.Size, Tag: b.Tag + 2<<32},
		"of no allocation":     {Ptr: b.Ptr, Size: b.Size, Tag: b.Tag + 1<<32},
		"only an address":      {Ptr: b.Ptr},
		"an unused record":     {Size: 1, Tag: b.Tag + 1},
		"the unused entry":     {Tag: 1 << 32},
	} {
		testkit.WantPanic(t, what, "magazine: Free", func() { c.Free(bad) })
	}
	testkit.WantPanic(t, "a large block that is not live", "ledger: Free", func() {
		c.Free(mem.Block{Ptr: 1, Size: 2 << 20})
	})
	testkit.WantPanic(t, "a nil stream", "magazine: Free with a nil stream", func() { c.Free(b, nil) })
	testkit.WantPanic(t, "a negative size", "ledger: negative", func() { c.Alloc(s0, -1) })
	wantHeld(t, c, 0, 0)

	c.Free(b)
	testkit.WantPanic(t, "held", "magazine: Free", func() { c.Free(b) })
	testkit.WantPanic(t, "held, and never allocated like that", "magazine: Free", func() {
		c.Free(mem.Block{Ptr: b.Ptr, Size: b.Size, Tag: b.Tag + 1<<32})
	})
	testkit.WantPanic(t, "held, with a stream", "magazine: Free", func() { c.Free(b, s1) })
	again := mustAlloc(t, c, s0, 4096)
	if again.Ptr != b.Ptr {
		t.Fatal("the block did not come back")
	}
	testkit.WantPanic(t, "with its next borrower", "magazine: Free", func() { c.Free(b) })
	c.Free(again, s1)
	testkit.WantPanic(t, "given to the allocator below", "magazine: Free", func() { c.Free(again) })
	if len(below.live) != 0 {
		t.Errorf("%d blocks are live below", len(below.live))
	}
}

// Of goroutines that free one block at the same time, one succeeds.
func TestConcurrentDoubleFree(t *testing.T) {
	c := magazine.New(newLedger(1<<40), magazine.Options{})
	for range 200 {
		b := mustAlloc(t, c, s0, 4096)
		var freed sync.Map
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				defer func() { _ = recover() }()
				c.Free(b)
				freed.Store(i, true)
			})
		}
		wg.Wait()
		n := 0
		freed.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Fatalf("%d of 4 frees of one block succeeded", n)
		}
	}
	n, _ := c.Held()
	if n == 0 {
		t.Error("nothing is held")
	}
}

// Blocks that other streams use, and those that are too large, go straight to the allocator below, with the streams.
func TestStraightBelow(t *testing.T) {
	below := newLedger(1 << 40)
	c := magazine.New(below, magazine.Options{MaxSize: 1 << 20})
	b := mustAlloc(t, c, s0, 4096)
	c.Free(b, s1, s0)
	if len(below.live) != 0 || len(below.used) != 2 || below.used[0] != s1 || below.used[1] != s0 {
		t.Errorf("%d live below, freed with %v", len(below.live), below.used)
	}
	large := mustAlloc(t, c, s0, 1<<20+1)
	if below.live[large.Ptr] != large {
		t.Errorf("a large block is %+v, below it is %+v", large, below.live[large.Ptr])
	}
	c.Free(large)
	wantHeld(t, c, 0, 0)
	if len(below.live) != 0 {
		t.Error("the large block is live below")
	}
}

// If the allocator below has no room, what is held goes back and it is asked once more, for good: a request that
// succeeds then does not count as refused, and one that fails counts once. Any other error is the caller's.
func TestNoRoom(t *testing.T) {
	below := newLedger(10 << 20)
	c := magazine.New(below, magazine.Options{})
	for _, s := range []driver.Stream{s0, s1} {
		for _, size := range []int64{1 << 20, 1 << 19, 512} {
			c.Free(mustAlloc(t, c, s, size))
		}
	}
	below.fail = errors.New("lost")
	if _, err := c.Alloc(s0, 100<<10); !errors.Is(err, below.fail) {
		t.Errorf("got %v", err)
	}
	below.fail = nil
	if n, _ := c.Held(); n != 6 {
		t.Fatalf("%d blocks are held after an error that has nothing to do with room", n)
	}
	b := mustAlloc(t, c, s0, 10<<20)
	if below.refused != 0 {
		t.Errorf("the allocator below refused %d times", below.refused)
	}
	wantHeld(t, c, 0, 0)
	if _, err := c.Alloc(s0, 512); !errors.Is(err, mem.ErrNoMemory) || below.refused != 1 {
		t.Errorf("with nothing held: %v after %d refusals, want one", err, below.refused)
	}
	c.Free(b)
	mustAlloc(t, c, s0, 512)
}

// A request that is not to be retried takes what is held for it, and leaves alone what is held for others.
func TestNoRetry(t *testing.T) {
	below := newLedger(1 << 20)
	c := newSingle(below, magazine.Options{})
	held := mustAlloc(t, c, s0, 1<<19)
	c.Free(held)
	hasty := mem.AllocOptions{NoRetry: true}
	for _, size := range []int64{1 << 20, 1<<20 + 1} {
		if _, err := c.AllocWith(s0, size, hasty); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	wantHeld(t, c, 1, 1<<19)
	b, err := c.AllocWith(s0, 1<<19, hasty)
	if err != nil || b.Ptr != held.Ptr || below.refused != 2 {
		t.Errorf("%+v, %v, want the block at %#x; the allocator below refused %d times", b, err, uint64(held.Ptr), below.refused)
	}
	c.Free(b)
	c.Free(mustAlloc(t, c, s0, 1<<20))
}

// The Cache does not know when held blocks were freed: a request with FreedBefore gets other blocks, which are held
// like all when they are freed. If there is no room, the held blocks go to the allocator below, which then decides.
func TestFreedBefore(t *testing.T) {
	below := newLedger(8192)
	c := newSingle(below, magazine.Options{})
	held := mustAlloc(t, c, s0, 4096)
	c.Free(held)
	early := mem.AllocOptions{FreedBefore: func() uint64 { return 1 }}
	b, err := c.AllocWith(s0, 4096, early)
	if err != nil || b.Ptr == held.Ptr {
		t.Fatalf("%+v, %v; %#x is held", b, err, uint64(held.Ptr))
	}
	wantHeld(t, c, 1, 4096)
	other, err := c.AllocWith(s0, 4096, early)
	if err != nil || other.Ptr == held.Ptr || len(below.freed) != 1 {
		t.Errorf("%+v, %v, and %d blocks went back", other, err, len(below.freed))
	}
	c.Free(b)
	c.Free(other)
	wantHeld(t, c, 2, 8192)
	if again := mustAlloc(t, c, s0, 4096); again.Ptr != other.Ptr {
		t.Errorf("%+v, want the block that came back last", again)
	}
}

// A suspended Cache passes calls through: blocks of a private pool reach no other request.
func TestSuspend(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	c, below := over(t, dev, "", magazine.Options{})
	s := dev.DefaultStream()
	c.Free(mustAlloc(t, c, s, 4096))
	c.Suspend()
	c.Suspend()
	below.BeginAllocateToPool(mem.PoolID{0, 1}, func(driver.Stream) bool { return true })
	private := mustAlloc(t, c, s, 4096)
	below.EndAllocateToPool(mem.PoolID{0, 1})
	c.Resume()
	if outside := mustAlloc(t, c, s, 4096); outside.Ptr == private.Ptr {
		t.Fatalf("%+v is allocated twice", private)
	}
	c.Resume()
	c.Free(private)
	for range 10 {
		if b := mustAlloc(t, c, s, 4096); b.Ptr == private.Ptr {
			t.Errorf("%+v of a private pool serves a request of the default pool", b)
		}
	}
	testkit.WantPanic(t, "one Resume too many", "magazine: Resume", c.Resume)
	c.Free(mustAlloc(t, c, s, 4096))
	if n, _ := c.Held(); n == 0 {
		t.Error("after Resume nothing is held")
	}
}

// Flush names streams; EmptyCache goes on to the allocator below; Close closes it.
func TestFlush(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	c, below := over(t, dev, "", magazine.Options{})
	other := drivertest.NewStream(t, dev)
	for range 100 { // more than a magazine or two
		var blocks []mem.Block
		for _, s := range []driver.Stream{dev.DefaultStream(), other} {
			for range 100 {
				blocks = append(blocks, mustAlloc(t, c, s, 512))
			}
		}
		for _, b := range blocks {
			c.Free(b)
		}
	}
	c.Flush(other)
	n, _ := c.Held()
	if live := below.Stats().Allocation.All.Current; int64(n) != live || n == 0 || n > 100*64 {
		t.Errorf("%d blocks are held, %d live below", n, live)
	}
	for _, seg := range below.Snapshot() {
		if seg.Stream == other.ID() && seg.ActiveSize != 0 {
			t.Errorf("%d bytes of the flushed stream are live below", seg.ActiveSize)
		}
	}
	if err := c.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, c, 0, 0)
	if n := below.Stats().ReservedBytes.All.Current; n != 0 {
		t.Errorf("EmptyCache left %d bytes reserved", n)
	}
	c.Free(mustAlloc(t, c, other, 512))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Alloc(other, 512); !errors.Is(err, caching.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
}

// A allocator below that cannot be closed, trimmed or asked is still a allocator below.
func TestPlainLayerBelow(t *testing.T) {
	below := newLedger(1 << 30)
	c := magazine.New(below, magazine.Options{})
	c.Free(mustAlloc(t, c, s0, 512))
	if err := errors.Join(c.EmptyCache(), c.Close()); err != nil || len(below.live) != 0 {
		t.Errorf("%v, %d blocks live", err, len(below.live))
	}
	if _, ok := mem.Find[mem.StatsReporter](c); ok {
		t.Error("there are statistics from nowhere")
	}
	if _, ok := mem.Find[mem.Snapshotter](c); ok {
		t.Error("there is a snapshot from nowhere")
	}
	if l, ok := mem.Find[*ledger](c); !ok || l != below {
		t.Error("the allocator below is not found")
	}
}

// A stream that is closed gives its number, and what is held for it, to the next.
func TestBehaviour81ClosedStream(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	c, _ := over(t, dev, "", magazine.Options{})
	for range 20 {
		s := drivertest.NewStream(t, dev)
		b, kept := mustAlloc(t, c, s, 4096), mustAlloc(t, c, s, 4096)
		if err := s.Fill(b.Ptr, 1, b.Size); err != nil {
			t.Fatal(err)
		}
		c.Free(b)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		c.Free(kept, s) // its own stream, closed
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestNewPanics(t *testing.T) {
	for _, opts := range []magazine.Options{{MaxSize: -1}, {Stream: -1}, {Total: -1}, {MaxSize: 8<<20 + 1}} {
		testkit.WantPanic(t, fmt.Sprintf("%+v", opts), "magazine: New", func() { magazine.New(newLedger(0), opts) })
	}
}

// Random calls of one goroutine against a model: who has which block, what is held, and its bounds.
func TestModel(t *testing.T) {
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, tt := range []struct {
		opts  magazine.Options
		sizes int // powers of two up to which sizes go
	}{
		{magazine.Options{}, 20},
		{magazine.Options{MaxSize: 8 << 20}, 22},
		{magazine.Options{Stream: 1 << 20, Total: 1 << 20}, 21},
		{magazine.Options{MaxSize: 100 << 10, Stream: 8 << 20, Total: 2 << 20}, 18},
		{magazine.Options{Stream: 100 << 10, Total: 150 << 10}, 10},
		{magazine.Options{Stream: 150 << 10, Total: 100 << 10}, 10},
		{magazine.Options{Stream: 1, Total: 1}, 12},
	} {
		below := newLedger(64 << 20)
		opts := tt.opts
		c := newSingle(below, opts)
		if opts.Stream == 0 {
			opts.Stream, opts.Total = 256<<20, 1<<30
		}
		streams := []driver.Stream{s0, s1, stream{id: 7}}
		sizes := make([]int64, 12)
		for i := range sizes {
			sizes[i] = 1 + rng.Int64N(1<<(4+rng.IntN(tt.sizes-3)))
		}
		loans := map[driver.Pointer]bool{}
		var blocks []mem.Block
		var live int64
		for step := range 20_000 {
			allocs := []int{800, 200, 500}[step/1000%3] // phases in which blocks pile up, live and then held
			switch k := rng.IntN(1000); {
			case k < allocs:
				size := sizes[rng.IntN(len(sizes))] - rng.Int64N(2)
				s := streams[rng.IntN(len(streams))]
				b, err := c.Alloc(s, size)
				if err != nil {
					n, held := c.Held()
					if below.size+size <= below.capacity || n > 0 {
						t.Fatalf("step %d: Alloc of %d bytes: %v, with %d live below and %d held", step, size, err, below.size, held)
					}
					continue
				}
				if size == 0 {
					continue
				}
				if b.Size < size || b.Size >= size+512 || loans[b.Ptr] || below.live[b.Ptr].Size != b.Size {
					t.Fatalf("step %d: Alloc of %d bytes gave %+v: live %v, live below as %+v", step, size, b, loans[b.Ptr], below.live[b.Ptr])
				}
				if of := below.streams[b.Ptr]; of != s {
					t.Fatalf("step %d: stream %d gets a block of stream %d", step, s.ID(), of.ID())
				}
				loans[b.Ptr] = true
				blocks = append(blocks, b)
				live += b.Size
			case k < 995 && len(blocks) > 0:
				i := rng.IntN(len(blocks))
				b := blocks[i]
				blocks[i] = blocks[len(blocks)-1]
				blocks = blocks[:len(blocks)-1]
				delete(loans, b.Ptr)
				live -= b.Size
				if k%8 == 0 {
					c.Free(b, s1)
				} else {
					c.Free(b)
				}
			case k == 995:
				c.Flush(streams[rng.IntN(len(streams))])
			case k == 996:
				if err := c.EmptyCache(); err != nil {
					t.Fatal(err)
				}
				wantHeld(t, c, 0, 0)
			}
			if step%25 == 0 {
				if err := c.Check(); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
			if n, held := c.Held(); n != len(below.live)-len(blocks) || held != below.size-live || held > opts.Total ||
				held > opts.Stream*int64(len(streams)) {
				t.Fatalf("step %d: %d blocks of %d bytes held, %d of %d live below, %d of %d live; bounds %+v", step,
					n, held, len(below.live), below.size, len(blocks), live, opts)
			}
		}
	}
}

// Blocks without requests for a long time make room: for another size in a cache, for another stream in the depots.
func TestRoomIsForWhatIsUsed(t *testing.T) {
	type use struct {
		s           driver.Stream
		size, bytes int64
	}
	for _, tt := range []struct {
		opts magazine.Options
		uses []use
	}{
		{
			magazine.Options{Stream: 128 << 10, Total: 192 << 10},
			[]use{{s0, 512, 48 << 10}, {s0, 1024, 48 << 10}, {s1, 512, 48 << 10}, {s0, 2048, 48 << 10}, {s1, 4096, 48 << 10}},
		},
		{
			magazine.Options{Stream: 1 << 20, Total: 128 << 10}, // the depots' share is all that counts
			[]use{{s0, 512, 96 << 10}, {s1, 512, 48 << 10}, {s0, 1024, 64 << 10}},
		},
	} {
		below := newLedger(1 << 40)
		c := newSingle(below, tt.opts)
		for _, now := range tt.uses {
			var before int
			for range 3 {
				before = below.allocs
				var blocks []mem.Block
				for range now.bytes / now.size {
					blocks = append(blocks, mustAlloc(t, c, now.s, now.size))
				}
				for _, b := range blocks {
					c.Free(b)
				}
				if err := c.Check(); err != nil {
					t.Fatal(err)
				}
			}
			if n := below.allocs - before; n > 0 {
				t.Errorf("%+v: %+v, for the third time: %d blocks came from below", tt.opts, now, n)
			}
		}
	}
}

// A magazine that is too large for what a processor cache may still hold stays in the depot.
func TestDepotGivesWhatFits(t *testing.T) {
	c := newSingle(newLedger(1<<40), magazine.Options{Stream: 64 << 10})
	var blocks []mem.Block
	for range 128 { // 64 for the cell, 64 for the depot
		blocks = append(blocks, mustAlloc(t, c, s0, 512))
	}
	large := mustAlloc(t, c, s0, 20<<10)
	for _, b := range blocks {
		c.Free(b)
	}
	wantHeld(t, c, 128, 64<<10)
	for range 64 {
		mustAlloc(t, c, s0, 512)
	}
	c.Free(large)
	mustAlloc(t, c, s0, 512)
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	wantHeld(t, c, 65, 52<<10)
}

// One goroutine allocates and another frees: magazines travel, and the allocator below is asked for no more than is in
// flight and held.
func TestProducerConsumer(t *testing.T) {
	below := newLedger(1 << 40)
	c := magazine.New(below, magazine.Options{})
	const inFlight, n = 256, 100_000
	handed := make(chan mem.Block, inFlight)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(handed)
		for range n {
			b, err := c.Alloc(s0, 4096)
			if err != nil {
				t.Error(err)
				return
			}
			handed <- b
		}
	})
	wg.Go(func() {
		for b := range handed {
			c.Free(b)
		}
	})
	wg.Wait()
	// Each processor keeps two magazines of 32 at most; one more is on its way.
	if most := inFlight + 2 + 65*64; below.allocs > most || len(below.freed) > 0 {
		t.Errorf("%d blocks handed over took %d from the allocator below, want at most %d; %d went back there",
			n, below.allocs, most, len(below.freed))
	}
}

// Goroutines allocate, hand over and free on two streams, while others flush, look and suspend. No block has two
// borrowers, none is lost.
func TestConcurrent(t *testing.T) {
	dev := sim.New(sim.Options{Total: 1 << 30, Unchecked: true})
	c, below := over(t, dev, "", magazine.Options{MaxSize: 2 << 20, Stream: 8 << 20, Total: 12 << 20})
	other := drivertest.NewStream(t, dev)
	streams := []driver.Stream{dev.DefaultStream(), other}
	seed := testkit.Seed(t)
	var owners sync.Map
	handed := make(chan mem.Block, 100)
	free := func(b mem.Block, used ...driver.Stream) {
		owners.Delete(b.Ptr)
		c.Free(b, used...)
	}
	var workers sync.WaitGroup
	for worker := range 6 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(worker)))
			for i := range 6000 {
				b, err := c.Alloc(streams[rng.IntN(2)], 1+rng.Int64N(8)<<(9+worker%3*4))
				if err != nil {
					t.Error(err)
					return
				}
				if _, taken := owners.LoadOrStore(b.Ptr, worker); taken {
					t.Errorf("%+v has two borrowers", b)
					return
				}
				switch {
				case rng.IntN(4) > 0:
					handed <- b
				case rng.IntN(20) == 0:
					free(b, streams[rng.IntN(2)])
				default:
					free(b)
				}
				for len(handed) > 50 {
					free(<-handed)
				}
				if i%500 == 0 {
					switch worker {
					case 0:
						c.Flush()
					case 1:
						stats, _ := mem.Find[mem.StatsReporter](c)
						if n := stats.Stats().Allocation.All.Current; n < 0 || n > 200 {
							t.Errorf("%d live blocks", n)
						}
					case 2:
						c.Suspend()
						c.Free(mustAlloc(t, c, other, 512))
						c.Resume()
					case 3:
						snapshot, _ := mem.Find[mem.Snapshotter](c)
						snapshot.Snapshot()
					}
				}
			}
		})
	}
	workers.Wait()
	for len(handed) > 0 {
		free(<-handed)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if n, size := c.Held(); int64(n) != below.Stats().Allocation.All.Current || size > 12<<20 {
		t.Errorf("%d blocks of %d bytes are held, %d are live below", n, size, below.Stats().Allocation.All.Current)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
