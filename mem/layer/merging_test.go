package layer_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	_ "github.com/ashlar-go/ashlar/mem/bfc" // registers itself
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// What RMM's tests of its arenas assert, by the numbers of docs/behaviours.md, of the allocators that have size
// classes, merge or give memory back.

const kib = mib >> 10

// An opening makes an allocator of a device.
type opening func(t *testing.T, dev driver.Device) mem.Allocator

func opened(spec string) opening {
	return func(t *testing.T, dev driver.Device) mem.Allocator {
		t.Helper()
		a, err := mem.Open(spec, dev)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

// rounding is PyTorch's, with so many steps to a power of two.
func rounding(settings string) opening {
	return func(t *testing.T, dev driver.Device) mem.Allocator {
		t.Helper()
		cfg, _, err := caching.ParseConfig(settings)
		if err != nil {
			t.Fatal(err)
		}
		a, err := caching.New(dev, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

// binned has a slab for each of some sizes.
func binned(rest string, sizes ...int64) opening {
	return func(t *testing.T, dev driver.Device) mem.Allocator {
		t.Helper()
		below := opened(rest)(t, dev)
		var bins []layer.Bin
		for _, size := range sizes {
			bins = append(bins, layer.Bin{Size: size, Allocator: layer.NewSlabs(below, size, 4)})
		}
		return layer.NewBinning(below, bins...)
	}
}

// The sizes of RMM's test, in the order of its classes: small, medium and large, and 1 PiB, which no device has.
func TestBehaviour88_SizeClasses(t *testing.T) {
	sizes := []int64{8, 264, 17 * kib, 13 * mib}
	for name, c := range map[string]struct {
		open    opening
		classes []int64
	}{
		"caching": {rounding("roundup_power2_divisions:4"), []int64{512, 512, 20 * kib, 14 * mib}},
		"bfc":     {opened("bfc:limit=1GiB,growth=off"), []int64{256, 512, 17 * kib, 13 * mib}},
		"arena":   {opened("arena:size=1GiB,round=1KiB"), []int64{kib, kib, 17 * kib, 13 * mib}},
		"Binning": {binned("bfc:limit=1GiB,growth=off", 256, 512, 20*kib, 14*mib), []int64{256, 512, 20 * kib, 14 * mib}},
	} {
		t.Run(name, func(t *testing.T) {
			dev := sim.New(sim.Options{Total: 4 << 30, Unchecked: true})
			a := c.open(t, dev)
			s := dev.DefaultStream()
			blockOf := func(size int64) int64 {
				t.Helper()
				b, err := a.Alloc(s, size)
				if err != nil {
					t.Fatalf("%d bytes: %v", size, err)
				}
				a.Free(b)
				return b.Size
			}
			for i, size := range sizes {
				class := c.classes[i]
				if got := blockOf(size); got != class {
					t.Errorf("%d bytes get a block of %d, want %d", size, got, class)
				}
				if got := blockOf(class); got != class {
					t.Errorf("%d bytes, a class, get a block of %d", class, got)
				}
				if got := blockOf(class + 1); got <= class {
					t.Errorf("%d bytes get a block of %d", class+1, got)
				}
			}
			for _, size := range []int64{1 << 50, 1 << 62} {
				if b, err := a.Alloc(s, size); !errors.Is(err, mem.ErrNoMemory) {
					t.Errorf("%d bytes: %+v, %v", size, b, err)
				}
			}
			blockOf(mib) // and life goes on
			shut(t, a, dev)
		})
	}
}

// shut empties and closes an allocator, and its device.
func shut(t *testing.T, a mem.Allocator, dev driver.Device) {
	t.Helper()
	trimmer, _ := mem.Find[mem.Trimmer](a)
	closer, _ := mem.Find[interface{ Close() error }](a)
	if err := errors.Join(trimmer.EmptyCache(), closer.Close()); err != nil {
		t.Error(err)
	}
	if free, total, err := dev.Available(); err != nil || free != total {
		t.Errorf("%d bytes are left behind: %v", total-free, err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// merging are the allocators whose free neighbours become one.
func merging() map[string]opening {
	return map[string]opening{
		"bfc":                 opened("bfc:limit=64MiB,growth=off"),
		"bfc, initial":        opened("bfc:limit=64MiB,initial=16MiB"),
		"bfc, virtual":        opened("bfc:limit=64MiB,virtual=on"),
		"arena":               opened("arena:size=64MiB"),
		"arena, pages":        opened("arena:size=64MiB,page=2MiB"),
		"caching":             rounding(""),
		"caching, expandable": rounding("expandable_segments:True"),
	}
}

// Of five neighbours some are freed, the last of them between or beside the others: what was free merges with it, and
// serves a request of its whole size.
func TestBehaviour88_MergesInEveryDirection(t *testing.T) {
	const size = 64 * kib
	for name, open := range merging() {
		for way, freed := range map[string][]int{ // in order; the block before them and the one after stay
			"previous": {1, 2}, "next": {2, 1}, "both": {1, 3, 2}, "both, other way": {3, 1, 2},
			"previous and all before": {1, 2, 3}, "next and all after": {3, 2, 1},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				dev := drivertest.OpenSim(t, 128*mib)
				a := open(t, dev)
				s := dev.DefaultStream()
				var blocks []mem.Block
				for i := range 5 {
					b := mustAllocOn(t, a, s, size)
					if i > 0 && b.Ptr != blocks[i-1].Ptr+driver.Pointer(size) {
						t.Fatalf("block %d is at %#x, the one before at %#x: want neighbours", i, uint64(b.Ptr), uint64(blocks[i-1].Ptr))
					}
					blocks = append(blocks, b)
				}
				for _, i := range freed {
					a.Free(blocks[i])
				}
				first, n := slices.Min(freed), int64(len(freed))
				want := mem.BlockInfo{Ptr: blocks[first].Ptr, Size: n * size}
				snapshotter, _ := mem.Find[mem.Snapshotter](a)
				found := false
				for _, seg := range snapshotter.Snapshot() {
					for _, b := range seg.Blocks {
						if b.RequestedSize = 0; b == want {
							found = true
						} else if b.State == mem.Inactive && b.Ptr < want.Ptr+driver.Pointer(want.Size) && b.Ptr+driver.Pointer(b.Size) > want.Ptr {
							t.Errorf("%d free bytes at %#x have not merged", b.Size, uint64(b.Ptr))
						}
					}
				}
				if !found {
					t.Errorf("no free block of %d bytes at %#x", want.Size, uint64(want.Ptr))
				}
				if b := mustAllocOn(t, a, s, n*size); b.Ptr != want.Ptr {
					t.Errorf("%d bytes get %#x, want the hole at %#x", n*size, uint64(b.Ptr), uint64(want.Ptr))
				} else {
					a.Free(b)
				}
				for i, b := range blocks {
					if !slices.Contains(freed, i) {
						a.Free(b)
					}
				}
				shut(t, a, dev)
			})
		}
	}
}

func mustAllocOn(t *testing.T, a mem.Allocator, s driver.Stream, size int64) mem.Block {
	t.Helper()
	b, err := a.Alloc(s, size)
	if err != nil {
		t.Fatalf("%d bytes: %v", size, err)
	}
	return b
}

// After any history, when all is free, emptying the cache leaves the device as it was before.
func TestBehaviour88_DefragmentationReturnsEverything(t *testing.T) {
	all := map[string]opening{
		"Binning":        binned("bfc:limit=64MiB", 256, kib, 64*kib),
		"bfc, stepwise":  opened("bfc:limit=64MiB"),
		"arena, page":    opened("arena:size=64MiB,page=64KiB"),
		"caching, steps": rounding("roundup_power2_divisions:4,max_split_size_mb:20"),
	}
	for name, open := range merging() {
		if name != "arena" && name != "bfc, initial" { // they keep their region until Close
			all[name] = open
		}
	}
	for name, open := range all {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				rng := rand.New(rand.NewPCG(seed, 88))
				dev := sim.New(sim.Options{Total: 128 * mib, Granularity: 64 * kib})
				a := open(t, dev)
				streams := []driver.Stream{dev.DefaultStream(), drivertest.NewStream(t, dev), drivertest.NewStream(t, dev)}
				var live []mem.Block
				for op := range 400 {
					if s := streams[rng.IntN(3)]; rng.IntN(5) < 3 || len(live) == 0 {
						b, err := a.Alloc(s, 1+rng.Int64N(1<<rng.IntN(22)))
						if errors.Is(err, mem.ErrNoMemory) {
							continue
						}
						if err == nil {
							err = s.Fill(b.Ptr, byte(op), b.Size)
						}
						if err != nil {
							t.Fatalf("seed %d: %v", seed, err)
						}
						live = append(live, b)
					} else {
						i := rng.IntN(len(live))
						a.Free(live[i])
						live = slices.Delete(live, i, i+1)
					}
				}
				for _, b := range live {
					a.Free(b, streams[rng.IntN(3)])
				}
				trimmer, _ := mem.Find[mem.Trimmer](a)
				if err := trimmer.EmptyCache(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if free, total, err := dev.Available(); err != nil || free != total {
					t.Errorf("seed %d: %d bytes are still held: %v", seed, total-free, err)
				}
				shut(t, a, dev)
			}
		})
	}
}

// Once the movable blocks are together, only the memory that the remaining blocks need is left.
func TestBehaviour88_CompactionReturnsWhatIsFree(t *testing.T) {
	const page = 64 * kib
	dev := sim.New(sim.Options{Total: 128 * mib, Granularity: page})
	a, err := arena.New(dev, arena.Config{Size: 64 * mib, Page: page})
	if err != nil {
		t.Fatal(err)
	}
	s := dev.DefaultStream()
	var owners []*owner
	for i := range 64 {
		o := &owner{block: mustAllocOn(t, a, s, 48*kib)}
		if !mem.Movable(a, o.block, o) {
			t.Fatal("nothing moves")
		}
		if err := s.Fill(o.block.Ptr, byte(i), o.block.Size); err != nil {
			t.Fatal(err)
		}
		owners = append(owners, o)
	}
	for i, o := range owners {
		if i%4 != 3 {
			a.Free(o.block)
		}
	}
	if err := errors.Join(a.Compact(s), a.EmptyCache()); err != nil {
		t.Fatal(err)
	}
	if n := a.Stats().ReservedBytes.All.Current; n != 16*48*kib {
		t.Errorf("%d bytes are reserved for 16 blocks of 48 KiB, which are whole pages", n)
	}
	for i, o := range owners {
		if i%4 == 3 {
			got := make([]byte, o.block.Size)
			if err := s.CopyOut(got, o.block.Ptr); err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(got, func(c byte) bool { return c != byte(i) }) {
				t.Errorf("block %d has other contents", i)
			}
			a.Free(o.block)
		}
	}
	shut(t, a, dev)
}

// handingOver are the allocators that give one stream's memory to another at once, having that wait.
func handingOver() map[string]opening {
	all := merging()
	delete(all, "caching")
	delete(all, "caching, expandable")
	return all
}

// Of a stream's two neighbours one is taken over by another stream before the other is freed, as RMM's superblocks
// change their owner. The memory merges all the same, and a third stream that gets the whole waits for both: the
// device's race detector says if it does not.
func TestBehaviour88_FreedAfterItsNeighbourChangedOwner(t *testing.T) {
	const size = 64 * kib
	for name, open := range handingOver() {
		for order := range 2 { // which of the two is freed last
			dev := drivertest.OpenSim(t, 128*mib)
			a := open(t, dev)
			one, two, three := dev.DefaultStream(), drivertest.NewStream(t, dev), drivertest.NewStream(t, dev)
			for _, s := range []driver.Stream{one, two} {
				dev.Hold(s.ID())
			}
			fill := func(s driver.Stream, b mem.Block, c byte) {
				t.Helper()
				if err := s.Fill(b.Ptr, c, b.Size); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			x, y := mustAllocOn(t, a, one, size), mustAllocOn(t, a, one, size)
			guard := mustAllocOn(t, a, one, size)
			fill(one, x, 1)
			fill(one, y, 1)
			a.Free(y)
			taken := mustAllocOn(t, a, two, size)
			if taken.Ptr != y.Ptr {
				t.Fatalf("%s: the other stream got %#x, want %#x", name, uint64(taken.Ptr), uint64(y.Ptr))
			}
			fill(two, taken, 2)
			last := []mem.Block{x, taken}
			if order == 1 {
				slices.Reverse(last)
			}
			done := make(chan struct{})
			go func() { // frees come from anywhere
				defer close(done)
				for _, b := range last {
					a.Free(b)
				}
			}()
			<-done
			whole := mustAllocOn(t, a, three, 2*size)
			if whole.Ptr != x.Ptr {
				t.Errorf("%s: the whole is at %#x, want %#x", name, uint64(whole.Ptr), uint64(x.Ptr))
			}
			fill(three, whole, 3)
			if dev.Pending(three.ID()) == 0 {
				t.Errorf("%s: the third stream has not waited", name)
			}
			dev.Resume(two.ID())
			if dev.Pending(three.ID()) == 0 {
				t.Errorf("%s: the third stream has waited for the second alone", name)
			}
			dev.Resume(one.ID())
			got := make([]byte, whole.Size)
			if err := three.CopyOut(got, whole.Ptr); err != nil {
				t.Fatal(err)
			}
			if n := len(got) - len(slices.DeleteFunc(got, func(c byte) bool { return c != 3 })); n > 0 {
				t.Errorf("%s: %d bytes are not the last owner's", name, n)
			}
			a.Free(whole)
			a.Free(guard)
			shut(t, a, dev)
		}
	}
}

// A block that was moved belongs to the stream that moved it as well; one whose memory went to a child arena and came
// back to those that used it there. Either is freed late.
func TestBehaviour88_FreedAfterItsMemoryWasMoved(t *testing.T) {
	const size = 64 * kib
	dev := drivertest.OpenSim(t, 16*mib)
	a, err := arena.New(dev, arena.Config{Size: 4 * size})
	if err != nil {
		t.Fatal(err)
	}
	one, two, three := dev.DefaultStream(), drivertest.NewStream(t, dev), drivertest.NewStream(t, dev)
	low := mustAllocOn(t, a, one, size)
	o := &owner{block: mustAllocOn(t, a, one, size)}
	if !mem.Movable(a, o.block, o) {
		t.Fatal("nothing moves")
	}
	before := o.block
	for _, s := range []driver.Stream{one, two} {
		dev.Hold(s.ID())
	}
	fill := func(s driver.Stream, b mem.Block) {
		t.Helper()
		if err := s.Fill(b.Ptr, 1, b.Size); err != nil {
			t.Error(err)
		}
	}
	use := func(a mem.Allocator, s driver.Stream) {
		t.Helper()
		b := mustAllocOn(t, a, s, 4*size)
		fill(s, b)
		a.Free(b)
	}
	fill(one, low)
	fill(one, o.block)
	a.Free(low)
	if err := a.Compact(two); err != nil {
		t.Fatal(err)
	}
	if o.block.Ptr != low.Ptr {
		t.Fatalf("the block is at %#x, want %#x", uint64(o.block.Ptr), uint64(low.Ptr))
	}
	if testkit.Panic(t, func() { a.Free(before) }) == "" {
		t.Error("a block was freed where it no longer is")
	}
	a.Free(o.block)
	use(a, three)

	c, err := a.Child(4 * size)
	if err != nil {
		t.Fatal(err)
	}
	use(c, two)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	use(a, one)
	shut(t, a, dev)
}
