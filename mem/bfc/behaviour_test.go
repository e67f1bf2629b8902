package bfc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

// The assertions of TensorFlow's own tests of its allocator, by the numbers of docs/behaviours.md.

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// A bench is an allocator on a simulated device, and its default stream.
type bench struct {
	*bfc.Allocator
	t   testing.TB
	dev *sim.Device
	s   driver.Stream
}

func newBench(t testing.TB, cfg bfc.Config) *bench {
	t.Helper()
	dev := sim.New(sim.Options{Total: 4 * gib, Unchecked: true})
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{newAllocator(t, dev, cfg), t, dev, dev.DefaultStream()}
}

func (b *bench) alloc(size int64) mem.Block {
	b.t.Helper()
	block, err := b.Alloc(b.s, size)
	if err != nil {
		b.t.Fatalf("Alloc of %d bytes: %v", size, err)
	}
	return block
}

func TestBehaviour73_EverySizeUpTo1023(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: gib})
	var blocks []mem.Block
	ends := map[driver.Pointer]driver.Pointer{}
	for size := int64(1); size < 1024; size++ {
		block := b.alloc(size)
		if block.Size < size || block.Ptr%256 != 0 {
			t.Fatalf("%d bytes: %+v", size, block)
		}
		blocks = append(blocks, block)
		if _, taken := ends[block.Ptr]; taken {
			t.Fatalf("two blocks are at %#x", uint64(block.Ptr))
		}
		ends[block.Ptr] = block.Ptr + driver.Pointer(block.Size)
	}
	for p, end := range ends {
		for q := p + 256; q < end; q += 256 {
			if _, taken := ends[q]; taken {
				t.Fatalf("the blocks at %#x and %#x overlap", uint64(p), uint64(q))
			}
		}
	}
	if f := b.FrameworkStats(); f.NumAllocs != 1023 || f.BytesInUse != 654_336 || f.PeakBytesInUse != 654_336 ||
		f.LargestAllocSize != 1024 {
		t.Errorf("all live: %v", f)
	}
	for _, block := range blocks {
		b.Free(block)
	}
	if f := b.FrameworkStats(); f.NumAllocs != 1023 || f.BytesInUse != 0 || f.PeakBytesInUse != 654_336 ||
		f.LargestAllocSize != 1024 {
		t.Errorf("all free: %v", f)
	}
}

// The peak is one round exactly because blocks are cut from the whole limit: a segment of 64 MiB would not be cut for
// 40.
func TestBehaviour74_Coalescing(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: gib, NoGrowth: true})
	first := b.alloc(4 * kib)
	b.Free(first)
	sizes := []int64{4 * kib, 8 * mib, 16 * kib, 40 * mib}
	var round int64
	for range 1024 {
		var blocks []mem.Block
		round = 0
		for _, size := range sizes {
			blocks = append(blocks, b.alloc(size))
			round += size
		}
		for _, block := range blocks {
			b.Free(block)
		}
	}
	if f := b.FrameworkStats(); f.NumAllocs != 4097 || f.BytesInUse != 0 || f.PeakBytesInUse != round ||
		f.LargestAllocSize != 40*mib {
		t.Errorf("%v: want 4097 blocks and a peak of %d", f, round)
	}
	if again := b.alloc(4 * kib); again.Ptr != first.Ptr {
		t.Errorf("at %#x, the first was at %#x", uint64(again.Ptr), uint64(first.Ptr))
	}
}

func TestBehaviour75_SizesOfRequests(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: gib})
	block := b.alloc(4)
	if s := b.Stats(); block.Size != 256 || s.RequestedBytes.All.Current != 4 || s.AllocatedBytes.All.Current != 256 {
		t.Errorf("4 bytes: %+v, requested %d, allocated %d", block, s.RequestedBytes.All.Current, s.AllocatedBytes.All.Current)
	}
	if zero, err := b.Alloc(b.s, 0); zero != (mem.Block{}) || err != nil {
		t.Errorf("0 bytes: %+v, %v", zero, err)
	}
	if _, err := b.Alloc(b.s, 2*gib); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("over the limit: %v", err)
	}
	b.Free(b.alloc(512 * mib))
}

func TestBehaviour76_Bins(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: gib, NoGrowth: true})
	for i := range 5 {
		b.alloc(256 << i)
		b.alloc(256 << i)
	}
	bins := b.Bins()
	if len(bins) != 21 {
		t.Fatalf("%d bins", len(bins))
	}
	var used int64
	for i, bin := range bins {
		want := bfc.BinInfo{Size: 256 << i}
		switch {
		case i < 5:
			n := int64(512 << i)
			want = bfc.BinInfo{Size: 256 << i, Blocks: 2, Bytes: n, Live: 2, LiveBytes: n, RequestedBytes: n}
			used += n
		case i == 20:
			want.Blocks, want.Bytes = 1, gib-used
		}
		if bin != want {
			t.Errorf("bin %d is %+v: want %+v", i, bin, want)
		}
	}
	var dump strings.Builder
	if err := b.WriteDump(&dump); err != nil {
		t.Fatal(err)
	}
	if live, free := strings.Count(dump.String(), "\n  live "), strings.Count(dump.String(), "\n  free "); live != 10 || free != 1 {
		t.Errorf("the dump lists %d live blocks and %d free: want 10 and 1\n%s", live, free, &dump)
	}
}

// fragmented takes 128 blocks of 4 MiB and frees all but the first.
func fragmented(t *testing.T, cfg bfc.Config) (*bench, mem.Block) {
	cfg.Limit = 512 * mib
	b := newBench(t, cfg)
	var blocks []mem.Block
	for range 128 {
		blocks = append(blocks, b.alloc(4*mib))
	}
	for _, block := range blocks[1:] {
		b.Free(block)
	}
	return b, blocks[0]
}

func TestBehaviour77_VirtualMemoryDoesNotFragment(t *testing.T) {
	physical, _ := fragmented(t, bfc.Config{NoCollect: true})
	if block, err := physical.Alloc(physical.s, 508*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("several segments: %+v, %v", block, err)
	}
	virtual, _ := fragmented(t, bfc.Config{NoCollect: true, Virtual: true})
	virtual.alloc(508 * mib)
}

func TestBehaviour78_UnusedSegments(t *testing.T) {
	physical, kept := fragmented(t, bfc.Config{})
	if n := len(physical.Snapshot()); n < 2 {
		t.Errorf("%d segments: want several", n)
	}
	if err := physical.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	if s := physical.Snapshot(); len(s) != 1 || s[0].Ptr != kept.Ptr {
		t.Errorf("what is left: %+v, want the segment of %#x", s, uint64(kept.Ptr))
	}

	virtual, _ := fragmented(t, bfc.Config{Virtual: true})
	before := virtual.Snapshot()
	if err := virtual.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	if after := virtual.Snapshot(); len(before) != 1 || len(after) != 1 || after[0].TotalSize != 512*mib {
		t.Errorf("one range of addresses: %d segments before, then %+v", len(before), after)
	}
}

// TensorFlow takes a value of its variable that it cannot read for the default; settings here are refused with an
// error.
func TestBehaviour79_Growth(t *testing.T) {
	dev := drivertest.OpenSim(t, 4*gib)
	if a, err := mem.Open("bfc:growth=perhaps", dev); err == nil || !strings.Contains(err.Error(), "growth") || !strings.Contains(err.Error(), "perhaps") {
		t.Errorf("growth=perhaps: %v, %v", a, err)
	}
	for spec, want := range map[string]int64{
		"bfc:limit=1GiB":            2 * mib,
		"bfc:limit=1GiB,growth=on":  2 * mib,
		"bfc:limit=1GiB,growth=off": gib,
	} {
		a, err := mem.Open(spec, dev)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Alloc(dev.DefaultStream(), 512)
		if err != nil {
			t.Fatal(err)
		}
		if n := a.(mem.StatsReporter).Stats().ReservedBytes.All.Current; n != want {
			t.Errorf("%s: %d bytes reserved, want %d", spec, n, want)
		}
		a.Free(b)
		if err := a.(*bfc.Allocator).Close(); err != nil {
			t.Error(err)
		}
	}
}
