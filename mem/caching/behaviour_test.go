package caching_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// The numbered behaviours are those of docs/behaviours.md.

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// bench is an allocator on a simulated device, and its default stream.
type bench struct {
	*caching.Allocator
	t   *testing.T
	dev *sim.Device
	s   driver.Stream
}

func newBench(t *testing.T, total int64, settings string) *bench {
	dev := drivertest.OpenSim(t, total)
	return &bench{Allocator: newAllocator(t, dev, settings), t: t, dev: dev, s: dev.DefaultStream()}
}

// alloc allocates on the default stream, and must succeed.
func (b *bench) alloc(size int64) mem.Block { return b.allocOn(b.s, size) }

func (b *bench) allocOn(s driver.Stream, size int64) mem.Block {
	b.t.Helper()
	block, err := b.Alloc(s, size)
	if err != nil {
		b.t.Fatal(err)
	}
	return block
}

// fails asserts that a request finds no room, and returns why.
func (b *bench) fails(size int64) *mem.OutOfMemory {
	b.t.Helper()
	_, err := b.Alloc(b.s, size)
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) || !errors.Is(err, mem.ErrNoMemory) {
		b.t.Fatalf("Alloc(%d) = %v, want an *OutOfMemory", size, err)
	}
	return oom
}

func (b *bench) emptyCache() {
	b.t.Helper()
	if err := b.EmptyCache(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) configure(settings string) {
	b.t.Helper()
	if _, err := b.ParseConfigure(settings); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) stream() driver.Stream {
	b.t.Helper()
	s, err := b.dev.NewStream(driver.StreamOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func TestBehaviour01_OneByte(t *testing.T) {
	b := newBench(t, gib, "")
	block := b.alloc(1)
	s := b.Stats()
	testkit.Equal(t, "allocated", s.AllocatedBytes.All.Current, 512)
	testkit.Equal(t, "reserved", s.ReservedBytes.All.Current, 2*mib)
	testkit.Equal(t, "requested", s.RequestedBytes.All.Current, 1)
	b.Free(block)
	s = b.Stats()
	testkit.Equal(t, "allocated after Free", s.AllocatedBytes.All.Current, 0)
	testkit.Equal(t, "requested after Free", s.RequestedBytes.All.Current, 0)
	testkit.Equal(t, "reserved after Free", s.ReservedBytes.All.Current, 2*mib)
}

func TestBehaviour02_StatsRiseAndFall(t *testing.T) {
	b := newBench(t, gib, "")
	keep := b.alloc(4 * kib)
	before := b.Stats()
	block := b.alloc(1024)
	s := b.Stats()
	testkit.Equal(t, "active", s.ActiveBytes.All.Current-before.ActiveBytes.All.Current, 1024)
	testkit.Equal(t, "freed", s.ActiveBytes.All.Freed-before.ActiveBytes.All.Freed, 0)
	b.Free(block)
	s = b.Stats()
	testkit.Equal(t, "active after Free", s.ActiveBytes.All.Current, before.ActiveBytes.All.Current)
	testkit.Equal(t, "freed after Free", s.ActiveBytes.All.Freed-before.ActiveBytes.All.Freed, 1024)
	b.ResetPeakStats()
	s = b.Stats()
	testkit.Equal(t, "peak after ResetPeakStats", s.ActiveBytes.All.Peak, s.ActiveBytes.All.Current)
	b.ResetAccumulatedStats()
	s = b.Stats()
	testkit.Equal(t, "allocated after ResetAccumulatedStats", s.ActiveBytes.All.Allocated, 0)
	testkit.Equal(t, "freed after ResetAccumulatedStats", s.ActiveBytes.All.Freed, 0)
	b.Free(keep)
	testkit.Equal(t, "freed since", b.Stats().ActiveBytes.All.Freed, 4*kib)
}

// graphMemory allocates three blocks in a private pool, as a captured graph does, ends the graph, frees two of them and
// empties the cache. It returns segments and bytes at the peak and at the end.
func graphMemory(t *testing.T, b *bench, size int64) (segments, bytes, segmentsAfter, bytesAfter int64) {
	t.Helper()
	pool := mem.PoolID{1, 0}
	b.BeginAllocateToPool(pool, func(driver.Stream) bool { return true })
	blocks := []mem.Block{b.alloc(size), b.alloc(size), b.alloc(size)}
	b.EndAllocateToPool(pool)
	s := b.Stats()
	segments, bytes = s.Segment.All.Current, s.ReservedBytes.All.Current
	last := blocks[2]
	if err := b.s.Fill(last.Ptr, 7, 512); err != nil {
		t.Fatal(err)
	}
	b.ReleasePool(pool)
	b.Free(blocks[0])
	b.Free(blocks[1])
	b.emptyCache()
	s = b.Stats()
	segmentsAfter, bytesAfter = s.Segment.All.Current, s.ReservedBytes.All.Current
	testkit.Equal(t, "active blocks at the end", s.Active.All.Current, 1)
	got := make([]byte, 512)
	if err := b.s.CopyOut(got, last.Ptr); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the survivor's contents", strings.Count(string(got), "\x07"), 512)
	b.Free(last)
	b.emptyCache()
	testkit.Equal(t, "reserved when all is gone", b.Stats().ReservedBytes.All.Current, 0)
	return segments, bytes, segmentsAfter, bytesAfter
}

func testGraphMemory(t *testing.T, settings string, size, segments, bytes, segmentsAfter, bytesAfter int64) {
	t.Helper()
	s, r, sa, ra := graphMemory(t, newBench(t, gib, settings), size)
	testkit.Equal(t, "segments at the peak", s, segments)
	testkit.Equal(t, "bytes at the peak", r, bytes)
	testkit.Equal(t, "segments at the end", sa, segmentsAfter)
	testkit.Equal(t, "bytes at the end", ra, bytesAfter)
}

func TestBehaviour03_GraphOf512Bytes(t *testing.T) {
	testGraphMemory(t, "", 512, 1, 2*mib, 1, 2*mib)
}

func TestBehaviour04_GraphOf1MiB(t *testing.T) {
	testGraphMemory(t, "", mib, 2, 4*mib, 1, 2*mib)
}

func TestBehaviour05_GraphJustOver1MiB(t *testing.T) {
	testGraphMemory(t, "", mib+512, 1, 20*mib, 1, 20*mib)
}

func TestBehaviour06_GraphJustUnder10MiB(t *testing.T) {
	testGraphMemory(t, "", 10*mib-512, 2, 40*mib, 1, 20*mib)
}

func TestBehaviour07_GraphJustOver10MiB(t *testing.T) {
	testGraphMemory(t, "", 10*mib+512, 3, 36*mib, 1, 12*mib)
}

func TestBehaviour08_GraphsWithExpandableSegments(t *testing.T) {
	for _, c := range []struct{ size, bytes, bytesAfter int64 }{
		{10*mib - 512, 40 * mib, 40 * mib}, // the survivor straddles both pages
		{10*mib + 512, 40 * mib, 20 * mib},
	} {
		testGraphMemory(t, "expandable_segments:True", c.size, 0, c.bytes, 0, c.bytesAfter)
	}
}

func TestBehaviour09_SnapshotSumsAreTheStats(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		b := newBench(t, gib, settings)
		r := rand.New(rand.NewPCG(9, 0))
		streams := []driver.Stream{b.s, b.stream()}
		var live []mem.Block
		for range 400 {
			if len(live) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(live))
				b.Free(live[i])
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			} else {
				live = append(live, b.allocOn(streams[r.IntN(2)], 1+r.Int64N(3*mib)))
			}
			var want, got mem.Stats
			for _, seg := range b.Snapshot() {
				pool := func(a *mem.StatArray) []*mem.Stat {
					if seg.Large {
						return []*mem.Stat{&a.All, &a.LargePool}
					}
					return []*mem.Stat{&a.All, &a.SmallPool}
				}
				add := func(a *mem.StatArray, n int64) {
					for _, st := range pool(a) {
						st.Current += n
					}
				}
				if !seg.Expandable {
					add(&want.Segment, 1)
				}
				add(&want.ReservedBytes, seg.TotalSize)
				add(&want.AllocatedBytes, seg.AllocatedSize)
				add(&want.ActiveBytes, seg.ActiveSize)
				add(&want.RequestedBytes, seg.RequestedSize)
				for _, block := range seg.Blocks {
					switch {
					case block.State == mem.ActiveAllocated:
						add(&want.Allocation, 1)
						add(&want.Active, 1)
					case block.State == mem.Inactive && len(seg.Blocks) > 1 && !seg.Expandable:
						add(&want.InactiveSplit, 1)
						add(&want.InactiveSplitBytes, block.Size)
					}
				}
			}
			got = b.Stats()
			for i, a := range got.Arrays() {
				w := want.Arrays()[i].Array
				testkit.Equal(t, a.Name+" of all", a.Array.All.Current, w.All.Current)
				testkit.Equal(t, a.Name+" of the small pool", a.Array.SmallPool.Current, w.SmallPool.Current)
				testkit.Equal(t, a.Name+" of the large pool", a.Array.LargePool.Current, w.LargePool.Current)
			}
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

func TestBehaviour10_OrderOfFreesChangesNothing(t *testing.T) {
	for seed := range uint64(20) {
		b := newBench(t, gib, "")
		r := rand.New(rand.NewPCG(seed, 10))
		base := b.Stats().AllocatedBytes.All.Current
		var blocks []mem.Block
		last := base
		for i := range int64(35) {
			blocks = append(blocks, b.alloc(i*i*kib+1))
			now := b.Stats().AllocatedBytes.All
			if now.Current <= last || now.Current > now.Peak {
				t.Fatalf("after allocation %d: %+v", i, now)
			}
			last = now.Current
		}
		peak := last
		for _, i := range r.Perm(len(blocks)) {
			b.Free(blocks[i])
			now := b.Stats().AllocatedBytes.All
			if now.Current >= last || now.Peak != peak {
				t.Fatalf("seed %d: after a free: %+v", seed, now)
			}
			last = now.Current
		}
		testkit.Equal(t, "allocated in the end", last, base)
	}
}

func TestBehaviour11_ZeroBytesChangeNothing(t *testing.T) {
	b := newBench(t, gib, "")
	before := b.Stats()
	block := b.alloc(0)
	testkit.Equal(t, "the block", block, mem.Block{})
	b.Free(block)
	testkit.Equal(t, "the statistics", b.Stats(), before)
}

func TestBehaviour12_EmptyCache(t *testing.T) {
	b := newBench(t, gib, "")
	var live []mem.Block
	for i := range int64(30) {
		live = append(live, b.alloc(i*700*kib+1))
	}
	for i, block := range live {
		b.Free(block)
		before := b.Stats()
		b.emptyCache()
		after := b.Stats()
		testkit.Equal(t, "waits for all streams", after.NumSyncAllStreams, before.NumSyncAllStreams+1)
		testkit.Equal(t, "peak", after.ReservedBytes.All.Peak, before.ReservedBytes.All.Peak)
		if after.ReservedBytes.All.Current > before.ReservedBytes.All.Current {
			t.Fatalf("emptying the cache after free %d reserved more", i)
		}
	}
	testkit.Equal(t, "reserved in the end", b.Stats().ReservedBytes.All.Current, 0)
}

func TestBehaviour13_TwoDevicesDoNotDisturbEachOther(t *testing.T) {
	run := func(b *bench, r *rand.Rand, live *[]mem.Block) {
		if len(*live) > 0 && r.IntN(2) == 0 {
			b.Free((*live)[0])
			*live = (*live)[1:]
		} else {
			*live = append(*live, b.alloc(1+r.Int64N(4*mib)))
		}
	}
	var alone [2]mem.Stats
	for i := range alone {
		b, r, live := newBench(t, gib, ""), rand.New(rand.NewPCG(13, uint64(i))), []mem.Block(nil)
		for range 300 {
			run(b, r, &live)
		}
		alone[i] = b.Stats()
	}
	both := [2]*bench{newBench(t, gib, ""), newBench(t, gib, "")}
	rands := [2]*rand.Rand{rand.New(rand.NewPCG(13, 0)), rand.New(rand.NewPCG(13, 1))}
	var live [2][]mem.Block
	pick := rand.New(rand.NewPCG(13, 2))
	for steps := [2]int{300, 300}; steps != [2]int{}; {
		if i := pick.IntN(2); steps[i] > 0 {
			run(both[i], rands[i], &live[i])
			steps[i]--
		}
	}
	for i := range both {
		testkit.Equal(t, "the statistics of a device beside another", both[i].Stats(), alone[i])
	}
}

func TestBehaviour22_ImpossibleSizes(t *testing.T) {
	b := newBench(t, gib, "")
	keep := b.alloc(mib)
	oom := b.fails(800_000_000 * gib)
	if want := "Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of 1024.00 MiB of which "; !strings.Contains(oom.Error(), want) {
		t.Errorf("the message lacks %q:\n%v", want, oom)
	}
	oom = b.fails(8_000_000_000 * gib)
	if want := "Tried to allocate more than 1EB memory"; !strings.Contains(oom.Error(), want) {
		t.Errorf("the message lacks %q:\n%v", want, oom)
	}
	b.Free(b.alloc(100 * mib))
	b.Free(keep)
}

func TestBehaviour23_RetryAfterAFree(t *testing.T) {
	b := newBench(t, gib, "")
	half := b.alloc(gib / 2)
	small := b.alloc(mib)
	b.fails(gib / 2)
	b.Free(half)
	b.Free(b.alloc(gib / 2))
	b.Free(small)
}

func TestBehaviour24_TooLargeWithAndWithoutASplitLimit(t *testing.T) {
	for _, settings := range []string{"", "max_split_size_mb:1024"} {
		b := newBench(t, gib, settings)
		b.fails(4 << 40)
		testkit.Equal(t, "out-of-memory errors", b.Stats().NumOOMs, 1)
	}
}

func TestBehaviour25_ObserversHearBeforeTheCaller(t *testing.T) {
	b := newBench(t, gib, "")
	var heard *mem.OutOfMemory
	b.OnOutOfMemory(func(e *mem.OutOfMemory) {
		heard = e
		b.Free(b.alloc(512)) // no lock is held
	})
	oom := b.fails(2 * gib)
	testkit.Equal(t, "what the observer heard", heard, oom)
}

func TestBehaviour26_PlainAndExpandableBlocksUnderASplitLimit(t *testing.T) {
	const plain, expandable = "max_split_size_mb:40,expandable_segments:False", "max_split_size_mb:40,expandable_segments:True"
	b := newBench(t, gib, plain+",limit:120MiB")
	first := b.alloc(40 * mib)
	b.configure(expandable)
	second := b.alloc(40 * mib)
	b.configure(plain)
	third := b.alloc(40 * mib)
	b.fails(40 * mib)
	b.Free(first)
	b.Free(second)
	b.Free(third)
	b.Free(b.alloc(120 * mib))
}

func TestBehaviour27_GarbageCollectionPassesOverExpandableBlocks(t *testing.T) {
	const plain, expandable = "garbage_collection_threshold:0.5,expandable_segments:False", "garbage_collection_threshold:0.5,expandable_segments:True"
	b := newBench(t, gib, plain+",limit:120MiB")
	first := b.alloc(40 * mib)
	b.configure(expandable)
	second := b.alloc(40 * mib)
	b.configure(plain)
	b.Free(first)
	b.Free(second)
	b.Free(b.alloc(80 * mib))
}

func TestBehaviour28_BlocksRecordedOnASideStreamDoNotRunOutOfMemory(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True", "pytorch-exact:True"} {
		b := newBench(t, gib, settings)
		side := b.stream()
		b.dev.Hold(side.ID())
		for range 100 {
			block := b.alloc(160 * mib)
			if err := side.Fill(block.Ptr, 1, block.Size); err != nil {
				t.Fatal(err)
			}
			b.Free(block, side)
		}
		if b.Stats().NumSyncAllStreams == 0 {
			t.Error("nothing was ever waited for: the blocks were not pending")
		}
	}
}

func TestBehaviour29_Fuzz(t *testing.T) {
	b := newBench(t, 4*gib, "")
	r := rand.New(rand.NewPCG(123, 0))
	type owned struct {
		mem.Block
		pattern byte
	}
	var live []owned
	var bytes int64
	for step := range 10_000 {
		switch x := r.Float64() * 2.1; {
		case x < 1 && bytes < 2*gib:
			size := 2*mib + r.Int64N(18*mib)
			o := owned{b.alloc(size), byte(step)}
			if err := b.s.Fill(o.Ptr, o.pattern, o.Size); err != nil {
				t.Fatal(err)
			}
			live, bytes = append(live, o), bytes+o.Size
		case x < 2 && len(live) > 0:
			i := r.IntN(len(live))
			o := live[i]
			for _, at := range []int64{0, r.Int64N(o.Size - 16), o.Size - 16} {
				var got [16]byte
				if err := b.s.CopyOut(got[:], o.Ptr+driver.Pointer(at)); err != nil {
					t.Fatal(err)
				}
				for _, c := range got {
					if c != o.pattern {
						t.Fatalf("step %d: a block's contents changed", step)
					}
				}
			}
			b.Free(o.Block)
			bytes -= o.Size
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		case x >= 2:
			b.emptyCache()
		}
	}
}
