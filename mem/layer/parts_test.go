package layer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
)

func TestFallbackAsksTheOtherForWantOfMemoryAlone(t *testing.T) {
	first, then := fake.NewPile(512), fake.NewPile(512)
	then.Next = 1 << 40
	f := layer.NewFallback(layer.NewLimiter(first, 1024), then)
	a, b := fake.MustAlloc(t, f, 1024), fake.MustAlloc(t, f, 1024)
	if a.Ptr >= 1<<40 || b.Ptr < 1<<40 {
		t.Errorf("%+v, then %+v", a, b)
	}
	f.Free(b, fake.S1)
	if len(then.Used) != 1 || len(then.Used[0]) != 1 || len(first.Live) != 1 {
		t.Error("the block has not gone back to where it came from")
	}
	f.Free(a)
	if len(first.Live)+len(then.Live) != 0 {
		t.Error("blocks are left")
	}
	first.Fail = driver.ErrLost
	if _, err := f.Alloc(fake.S0, 512); !errors.Is(err, driver.ErrLost) || len(then.Live) != 0 {
		t.Errorf("a lost device gives %v", err)
	}
	then.Fail = mem.ErrNoMemory
	_, err := f.Alloc(fake.S0, 2048)
	var limited *mem.LimitError
	if !errors.As(err, &limited) || strings.Count(err.Error(), "out of memory") != 2 {
		t.Errorf("with room in neither: %v", err)
	}
	if err := f.EmptyCache(); err != nil || first.Trims != 1 || then.Trims != 1 {
		t.Errorf("%v; caches were emptied %d and %d times", err, first.Trims, then.Trims)
	}
}

func TestBinningBySize(t *testing.T) {
	piles := map[int64]*fake.Pile{}
	bin := func(size int64) layer.Bin {
		piles[size] = fake.NewPile(1)
		return layer.Bin{Size: size, Allocator: piles[size]}
	}
	rest := fake.NewPile(1)
	b := layer.NewBinning(rest, bin(4096), bin(256), bin(1024)) // in any order
	for _, tt := range []struct{ size, bin int64 }{{1, 256}, {256, 256}, {257, 1024}, {1024, 1024}, {1025, 4096}, {4096, 4096}} {
		blk := fake.MustAlloc(t, b, tt.size)
		if piles[tt.bin].Live[blk.Ptr] != tt.size {
			t.Errorf("%d bytes did not come from the bin of %d", tt.size, tt.bin)
		}
		b.Free(blk, fake.S1)
		if n := len(piles[tt.bin].Live); n != 0 {
			t.Errorf("%d blocks are left in the bin of %d", n, tt.bin)
		}
	}
	large := fake.MustAlloc(t, b, 4097)
	if len(rest.Live) != 1 {
		t.Error("4097 bytes did not come from the rest")
	}
	b.Free(large)
	piles[256].Fail = mem.ErrNoMemory
	if _, err := b.Alloc(fake.S0, 200); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("from a full bin: %v", err)
	}
	if err := b.EmptyCache(); err != nil || piles[256].Trims+piles[1024].Trims+piles[4096].Trims+rest.Trims != 4 {
		t.Errorf("%v; not all caches were emptied", err)
	}
	for _, bins := range [][]layer.Bin{{{Size: 0}}, {{Size: -1}}, {{Size: 4}, {Size: 5}, {Size: 4}}} {
		testkit.Contains(t, testkit.Panic(t, func() { layer.NewBinning(rest, bins...) }), "layer: Binning with a bin of")
	}
	none := layer.NewBinning(rest)
	none.Free(fake.MustAlloc(t, none, 1))
}

func TestSlabCutsPieces(t *testing.T) {
	base := fake.NewPile(1)
	below := &asked{Allocator: base}
	a := layer.NewSlabs(below, 512, 4)
	var blocks []mem.Block
	for i := range 9 {
		b := fake.MustAlloc(t, a, int64(1+i*60))
		if b.Size != 512 || b.Ptr != 0x1000+driver.Pointer(i)*512 {
			t.Errorf("piece %d is %+v", i, b)
		}
		blocks = append(blocks, b)
	}
	large := fake.MustAlloc(t, a, 513)
	if len(below.sizes) != 4 || below.sizes[0] != 2048 || below.sizes[3] != 513 || large.Size != 513 {
		t.Errorf("asked below for %v", below.sizes)
	}
	a.Free(large)
	a.Free(blocks[5])
	if b := fake.MustAlloc(t, a, 512); b.Ptr != blocks[5].Ptr || b.Tag == blocks[5].Tag {
		t.Errorf("%+v in place of %+v", b, blocks[5])
	} else {
		blocks[5] = b
	}
	other, err := a.Alloc(fake.S1, 1)
	testkit.Must(t, err)
	if len(base.Live) != 4 {
		t.Errorf("%d slabs for two streams", len(base.Live))
	}
	a.Free(other)
	for _, b := range blocks {
		a.Free(b)
	}
	testkit.Must(t, a.EmptyCache())
	if len(base.Live) != 0 || base.Trims != 1 {
		t.Errorf("%d slabs are left, %d calls of EmptyCache below", len(base.Live), base.Trims)
	}
	for _, bad := range [][2]int64{{0, 1}, {1, 0}, {-1, 1}, {1 << 40, 1 << 24}} {
		testkit.Contains(t, testkit.Panic(t, func() { layer.NewSlabs(base, bad[0], bad[1]) }), "layer: Slabs of")
	}
}

// A piece that another stream uses is not reused before its entire slab has gone back, and the allocator below receives
// all such streams.
func TestSlabOfPiecesThatOthersUse(t *testing.T) {
	base := fake.NewPile(1)
	a := layer.NewSlabs(base, 512, 3)
	x, y, z := fake.MustAlloc(t, a, 1), fake.MustAlloc(t, a, 1), fake.MustAlloc(t, a, 1)
	a.Free(x, fake.S1)
	a.Free(y, fake.S0, fake.S1) // its own among them
	if b := fake.MustAlloc(t, a, 1); b.Ptr == x.Ptr || b.Ptr == y.Ptr {
		t.Errorf("%+v is allocated while another stream uses it", b)
	}
	a.Free(z)
	if len(base.Live) != 1 || len(base.Used) != 1 || len(base.Used[0]) != 1 || base.Used[0][0] != fake.S1 {
		t.Errorf("%d slabs below, and frees that named %v", len(base.Live), base.Used)
	}
}

// Idle slabs of one stream do not block other requests.
func TestSlabGivesBackForWantOfMemory(t *testing.T) {
	base := fake.NewPile(1)
	a := layer.NewSlabs(layer.NewLimiter(base, 4096), 512, 8)
	a.Free(fake.MustAlloc(t, a, 1))
	b, err := a.Alloc(fake.S1, 1)
	if err != nil || len(base.Live) != 1 {
		t.Fatalf("on the other stream: %v, %d slabs", err, len(base.Live))
	}
	if _, err := a.Alloc(fake.S0, 1); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("with a piece of the only slab live: %v", err)
	}
	a.Free(b)
	a.Free(fake.MustAlloc(t, a, 4000)) // larger than a piece
}

func TestPrefetchIsAdvice(t *testing.T) {
	base := fake.NewPile(512)
	var got []mem.Block
	fail := error(nil)
	p := layer.NewPrefetcher(base, func(s driver.Stream, at driver.Pointer, size int64) error {
		got = append(got, mem.Block{Ptr: at, Size: size, Tag: uint64(s.ID())})
		return fail
	})
	fake.MustAlloc(t, p, 0)
	a := fake.MustAlloc(t, p, 700)
	fail = driver.ErrUnsupported
	b := fake.MustAlloc(t, p, 100)
	if len(got) != 2 || got[0] != a || got[1] != b || a.Size != 1024 {
		t.Errorf("fetched %+v of %+v and %+v", got, a, b)
	}
	if n, err := p.Failed(); n != 1 || !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("%d have failed: %v", n, err)
	}
	dev := drivertest.OpenSim(t, 0)
	touching := layer.NewPrefetcher(direct.New(dev, direct.Config{}), nil)
	blk, err := touching.Alloc(dev.DefaultStream(), 4096)
	testkit.Must(t, err)
	if got := contents(t, dev.DefaultStream(), blk); got[0] != 0 || got[4095] != 0 {
		t.Error("the pages have not been touched")
	}
	touching.Free(blk)
}

func TestQuotasReserveAndShare(t *testing.T) {
	base := fake.NewPile(512)
	q := layer.NewQuotas(base, 10*mib)
	a, err := q.Tenant("a", 4*mib, 8*mib)
	testkit.Must(t, err)
	b, err := q.Tenant("b", 2*mib, 10*mib)
	testkit.Must(t, err)
	var refused *layer.QuotaError
	if _, err := q.Tenant("c", 5*mib, 5*mib); !errors.As(err, &refused) || refused.Left != 4*mib {
		t.Errorf("more reserved than there is: %v", err)
	}
	x, y := fake.MustAlloc(t, b, 4*mib), fake.MustAlloc(t, b, 2*mib) // its own 2, and all that is shared
	if _, err := b.Alloc(fake.S0, 512); !errors.As(err, &refused) || refused.Tenant != "b" || refused.Live != 6*mib || refused.Left != 0 {
		t.Errorf("what is reserved for a is taken: %v", err)
	}
	testkit.Contains(t, refused.Error(), "tenant b", "512", "6.00MiB", "10.00MiB")
	z := fake.MustAlloc(t, a, 4*mib)
	if _, err := a.Alloc(fake.S0, 512); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("past its reservation, with nothing left: %v", err)
	}
	b.Free(x)
	w := fake.MustAlloc(t, a, 4*mib)
	if _, err := a.Alloc(fake.S0, 512); !errors.As(err, &refused) || refused.Limit != 8*mib || refused.Live != 8*mib {
		t.Errorf("past its limit: %v", err)
	}
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(w) }), "layer: Tenant b: Free", "not live")
	if err := a.Leave(); err == nil || !strings.Contains(err.Error(), "8.00MiB") {
		t.Errorf("leaving with blocks: %v", err)
	}
	for _, blk := range []mem.Block{z, w} {
		a.Free(blk)
	}
	b.Free(y)
	testkit.Must(t, a.Leave())
	testkit.Must(t, a.Leave())
	testkit.Contains(t, testkit.Panic(t, func() { a.Alloc(fake.S0, 1) }), "layer: Tenant a", "after Leave")
	all := fake.MustAlloc(t, b, 10*mib) // what was reserved for a is free
	b.Free(all)
	if a.Live() != 0 || b.Live() != 0 || len(base.Live) != 0 {
		t.Errorf("%d and %d bytes, %d blocks are left", a.Live(), b.Live(), len(base.Live))
	}
}

func TestQuotasCountWholeBlocks(t *testing.T) {
	base := fake.NewPile(mib)
	tenant, err := layer.NewQuotas(base, 8*mib).Tenant("a", 0, mib+512)
	testkit.Must(t, err)
	b := fake.MustAlloc(t, tenant, 1)
	_, err = tenant.Alloc(fake.S0, 1)
	var refused *layer.QuotaError
	if !errors.As(err, &refused) || refused.Want != 1 || refused.Block != mib || len(base.Live) != 1 || tenant.Live() != mib {
		t.Errorf("%v with %d blocks and %d bytes", err, len(base.Live), tenant.Live())
	}
	base.Fail = driver.ErrLost
	if _, err := tenant.Alloc(fake.S0, 1); !errors.Is(err, driver.ErrLost) || tenant.Live() != mib {
		t.Errorf("%v, and %d bytes", err, tenant.Live())
	}
	tenant.Free(b)
	testkit.Contains(t, testkit.Panic(t, func() { layer.NewQuotas(base, -1) }), "layer: NewQuotas")
	testkit.Contains(t, testkit.Panic(t, func() { layer.NewQuotas(base, 1).Tenant("x", 2, 1) }), "layer: Tenant \"x\"")
}

// A stream that has the number of a closed one gets none of its pieces, which are the closed one's for the allocator
// below. If it only uses one, that layer is told.
func TestSlabOfAStreamWithTheNumberOfAnother(t *testing.T) {
	for _, onlyUsed := range []bool{false, true} {
		dev := drivertest.OpenSim(t, arenaSize+arenaBounce+1<<20)
		a := layer.NewSlabs(newArena(t, dev), 4096, 4)
		s := drivertest.NewStream(t, dev)
		b, err := a.Alloc(s, 4096)
		testkit.Must(t, err)
		testkit.Must(t, s.Close())
		u := drivertest.NewStream(t, dev)
		if u.ID() != s.ID() {
			t.Fatal("the number is not given again")
		}
		if !onlyUsed {
			a.Free(b)
			b, err = a.Alloc(u, 4096)
			testkit.Must(t, err)
		}
		dev.Hold(u.ID())
		testkit.Must(t, u.Fill(b.Ptr, 1, b.Size))
		if onlyUsed {
			a.Free(b, u)
		} else {
			a.Free(b)
		}
		testkit.Must(t, a.EmptyCache())
		other := dev.DefaultStream()
		for { // all there is, so the slab's memory among it
			c, err := a.Alloc(other, 4*4096)
			if err != nil {
				break
			}
			testkit.Must(t, other.Fill(c.Ptr, 2, c.Size))
		}
		dev.Resume(u.ID())
	}
	old, now := fake.Stream{Number: 1}, &fake.Stream{Number: 1}
	base := fake.NewPile(1)
	a := layer.NewSlabs(base, 512, 2)
	b, err := a.Alloc(old, 1)
	testkit.Must(t, err)
	a.Free(b, now)
	if len(base.Used) != 1 || len(base.Used[0]) != 1 || base.Used[0][0] != now {
		t.Errorf("frees below named %v", base.Used)
	}
	x, err := a.Alloc(old, 1)
	testkit.Must(t, err)
	y, err := a.Alloc(old, 1)
	testkit.Must(t, err)
	a.Free(x)
	z, err := a.Alloc(now, 1)
	testkit.Must(t, err)
	a.Free(y)
	if len(base.Live) != 1 || len(base.Used) != 2 {
		t.Errorf("%d slabs, of which one is the closed stream's", len(base.Live))
	}
	a.Free(z)
	if w, err := a.Alloc(old, 1); err != nil || len(base.Live) != 1 { // the other's idle slab goes back
		t.Errorf("%+v, %v with %d slabs", w, err, len(base.Live))
	}
}

// buggy is an allocator that panics.
type buggy struct{ mem.Allocator }

func (buggy) Alloc(driver.Stream, int64) (mem.Block, error) { panic("below: a bug") }

// A panic below leaves nothing counted, neither of the tenant's quota nor of the total.
func TestQuotasAfterAPanicBelow(t *testing.T) {
	q := layer.NewQuotas(buggy{}, mib)
	tenant, err := q.Tenant("a", 0, mib)
	testkit.Must(t, err)
	testkit.Panic(t, func() { tenant.Alloc(fake.S0, 1000) })
	if n := tenant.Live(); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
	testkit.Must(t, tenant.Leave())
	_, err = q.Tenant("b", mib, mib)
	testkit.Must(t, err)
}
