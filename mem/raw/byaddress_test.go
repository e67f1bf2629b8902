package raw_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/raw"
)

func TestByAddress(t *testing.T) {
	base := fake.NewPile(512)
	x := raw.NewAddressed(base)
	p, err := x.Alloc(fake.S0, 1000)
	if err != nil || p == 0 {
		t.Fatalf("Alloc: %#x, %v", p, err)
	}
	if b, ok := x.Block(p); !ok || b != (mem.Block{Ptr: p, Size: 1024}) || x.Len() != 1 {
		t.Errorf("the block is %v, %v, of %d", b, ok, x.Len())
	}
	if b, ok := x.Below(p + 5000); !ok || b.Ptr != p {
		t.Errorf("below: %v, %v", b, ok)
	}
	testkit.WantPanic(t, "a nil stream", "raw: Addressed: Free with a nil stream", func() { x.Free(p, driver.Stream(nil)) })
	if _, ok := x.Block(p); !ok || len(base.Live) != 1 {
		t.Error("a Free that panicked has taken the block")
	}
	x.Free(p, fake.S1)
	if _, ok := x.Block(p); ok || x.Len() != 0 || len(base.Live) != 0 {
		t.Error("the block is still known after Free")
	}
	if base.Used[0][0] != fake.S1 {
		t.Error("Free lost its streams")
	}
	if a, ok := x.Unwrap().(*fake.Pile); !ok || a != base {
		t.Error("Unwrap does not give what is below")
	}
}

func TestByAddressZero(t *testing.T) {
	base := fake.NewPile(512)
	x := raw.NewAddressed(base)
	if p, err := x.Alloc(fake.S0, 0); p != 0 || err != nil {
		t.Errorf("zero bytes gave %#x, %v", p, err)
	}
	x.Free(0)
	base.Fail = mem.ErrNoMemory
	if p, err := x.Alloc(fake.S0, 1); p != 0 || !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a failure below gave %#x, %v", p, err)
	}
	if x.Len() != 0 {
		t.Errorf("%d blocks", x.Len())
	}
}

func TestByAddressUnknown(t *testing.T) {
	x := raw.NewAddressed(fake.NewPile(512))
	p, _ := x.Alloc(fake.S0, 512) // 0x1000
	tests := []struct {
		free driver.Pointer
		want []string
	}{
		{0xfff, []string{"0xfff", "none at or below"}},
		{p + 16, []string{"0x1010", "inside the block of 512 bytes at 0x1000", "16 bytes in"}},
		{p + 512, []string{"0x1200", "512 bytes at 0x1000", "0 bytes short of it"}},
		{1<<64 - 1, []string{"0xffffffffffffffff", "512 bytes at 0x1000"}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%#x", uint64(tt.free)), func(t *testing.T) {
			testkit.Contains(t, testkit.Panic(t, func() { x.Free(tt.free) }), append(tt.want, "raw: Addressed: Free of")...)
		})
	}
	x.Free(p)
	testkit.Panic(t, func() { x.Free(p) })
}

// The allocator below may return the same address again before its Free has returned.
func TestBehaviour86ByAddressForgetsBeforeFreeing(t *testing.T) {
	base := fake.NewPile(512)
	x := raw.NewAddressed(base)
	p, _ := x.Alloc(fake.S0, 512)
	var again driver.Pointer
	base.OnFree = func(mem.Block) {
		base.OnFree = nil
		again, _ = x.Alloc(fake.S1, 512)
	}
	x.Free(p)
	if again != p {
		t.Fatalf("the address came back as %#x, not %#x", again, p)
	}
	x.Free(again)
	if x.Len() != 0 {
		t.Errorf("%d blocks left", x.Len())
	}
}

func TestByAddressConcurrent(t *testing.T) {
	x := raw.NewAddressed(fake.NewPile(512))
	handed := make(chan driver.Pointer, 64)
	var producers, consumers sync.WaitGroup
	for i := range 2 {
		producers.Go(func() {
			for n := range 2000 {
				p, err := x.Alloc(fake.S0, int64(1+(n*(i+7))%3000))
				if err != nil {
					t.Error(err)
				}
				handed <- p
			}
		})
		consumers.Go(func() {
			for p := range handed {
				x.Free(p)
			}
		})
	}
	producers.Wait()
	close(handed)
	consumers.Wait()
	if x.Len() != 0 {
		t.Errorf("%d blocks left", x.Len())
	}
}

// PyTorch's allocator protects the whole block when a stream is named for a view that begins inside it.
func TestBehaviour31AnAddressInsideABlockNamesTheBlock(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	x := raw.NewAddressed(a)
	s := dev.DefaultStream()
	side := drivertest.NewStream(t, dev)
	const size = 3000
	alloc := func() driver.Pointer {
		t.Helper()
		p, err := x.Alloc(s, size)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, view := range []driver.Pointer{0, 1, 512, size, 3071} { // the rounding at the end is the block's too
		p := alloc()
		if err := s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		dev.Hold(side.ID())
		if err := side.Fill(p, 1, size); err != nil { // also what lies before the view
			t.Fatal(err)
		}
		x.RecordStream(p+view, side)
		x.Free(p)
		other := alloc()
		if other == p {
			t.Errorf("view at %d: the block was allocated again while the other stream used it", view)
		}
		if err := s.Fill(other, 2, size); err != nil {
			t.Error(err)
		}
		dev.Resume(side.ID())
		again := alloc()
		if again != p {
			t.Errorf("view at %d: the block did not come back when the other stream was done", view)
		}
		if err := s.Fill(again, 3, size); err != nil {
			t.Error(err)
		}
		x.Free(again)
		x.Free(other)
		a.ProcessPending()
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// The streams of RecordStream and Free are passed on once each, and not for a later block with the same address.
func TestRecordStreamAddsToFree(t *testing.T) {
	base := fake.NewPile(512)
	x := raw.NewAddressed(base)
	p, _ := x.Alloc(fake.S0, 1000)
	x.RecordStream(p, fake.S1)
	x.RecordStream(p+1023, fake.S1)
	x.RecordStream(p+512, fake.Stream{Number: 2})
	x.Free(p, fake.S0)
	again, _ := x.Alloc(fake.S0, 1000)
	x.Free(again)
	if again != p || !slices.Equal(base.Used[0], []driver.Stream{fake.S1, fake.Stream{Number: 2}, fake.S0}) || len(base.Used[1]) != 0 {
		t.Errorf("freed with %v, at the same address %v", base.Used, again == p)
	}
}

func TestRecordStreamUnknown(t *testing.T) {
	x := raw.NewAddressed(fake.NewPile(512))
	x.RecordStream(0, fake.S1)
	p, _ := x.Alloc(fake.S0, 512)
	for _, at := range []driver.Pointer{p - 1, p + 512, 1<<64 - 1} {
		testkit.Contains(t, testkit.Panic(t, func() { x.RecordStream(at, fake.S1) }), "raw: Addressed: RecordStream of")
	}
	testkit.Panic(t, func() { x.RecordStream(p, nil) })
	x.Free(p)
	testkit.Panic(t, func() { x.RecordStream(p, fake.S1) })
}
