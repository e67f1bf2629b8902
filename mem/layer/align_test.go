package layer_test

import (
	"errors"
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// asked notes the sizes that it is asked for.
type asked struct {
	mem.Allocator
	sizes []int64
}

func (a *asked) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	a.sizes = append(a.sizes, size)
	return a.Allocator.Alloc(s, size)
}

func TestBehaviour87_AlignRejectsWhatIsNoPowerOfTwo(t *testing.T) {
	for _, to := range []int64{255, 768, 0, -4096, 128} {
		testkit.Contains(t, testkit.Panic(t, func() { layer.NewAligner(fake.NewPile(256), to, layer.AlignerOptions{}) }), "layer: Aligner to")
	}
	testkit.Contains(t, testkit.Panic(t, func() { layer.NewAligner(fake.NewPile(256), 512, layer.AlignerOptions{From: 3}) }), "3 is not a power of two")
	testkit.Contains(t, testkit.Panic(t, func() { layer.NewAligner(fake.NewPile(256), 512, layer.AlignerOptions{Above: -1}) }), "Above >= 0")
}

// 64 KiB at 4096 over 256 asks for 69,376 bytes.
func TestBehaviour87_AlignAsksForWhatItMayHaveToLeaveOut(t *testing.T) {
	base := fake.NewPile(256)
	below := &asked{Allocator: base}
	a := layer.NewAligner(below, 4096, layer.AlignerOptions{})
	base.Next = 0x10100
	b := fake.MustAlloc(t, a, 64<<10)
	if len(below.sizes) != 1 || below.sizes[0] != 69_376 {
		t.Errorf("it asked for %d", below.sizes)
	}
	if b.Ptr != 0x11000 || b.Size != 69_376-0xf00 {
		t.Errorf("it gave %+v", b)
	}
	a.Free(b, fake.S1)
	if len(base.Live) != 0 || len(base.Used) != 1 || len(base.Used[0]) != 1 {
		t.Errorf("below: %d live, frees with %v", len(base.Live), base.Used)
	}
	testkit.Contains(t, testkit.Panic(t, func() { a.Free(b) }), "layer: Aligner: Free", "not live")
}

func TestAlignLeavesSmallRequestsAlone(t *testing.T) {
	base := fake.NewPile(256)
	below := &asked{Allocator: base}
	a := layer.NewAligner(below, 4096, layer.AlignerOptions{Above: 1000})
	base.Next = 0x10100
	small, large := fake.MustAlloc(t, a, 999), fake.MustAlloc(t, a, 1000)
	if small.Ptr != 0x10100 || large.Ptr%4096 != 0 || below.sizes[0] != 999 || below.sizes[1] != 1000+3840 {
		t.Errorf("%+v and %+v for requests of %d", small, large, below.sizes)
	}
}

func TestAlignEdges(t *testing.T) {
	base := fake.NewPile(256)
	a := layer.NewAligner(base, 4096, layer.AlignerOptions{})
	var oom *mem.OutOfMemory
	if _, err := a.Alloc(fake.S0, math.MaxInt64-100); !errors.As(err, &oom) || oom.Requested != math.MaxInt64-100 {
		t.Errorf("a size that would pass 2^63 gives %v", err)
	}
	base.Next = 0x10001 // the allocator below does not keep its promise
	for range 16 {      // of which some blocks have room all the same
		if text := testkit.PanicText(func() { fake.MustAlloc(t, a, 256); base.Next += 4095 - 256 + 1 }); text != "" {
			testkit.Contains(t, text, "layer: Aligner", "0x", "no multiple of 256")
			return
		}
	}
	t.Error("a allocator below that aligns to a byte is not noticed")
}

func (a *asked) Unwrap() mem.Allocator { return a.Allocator }
