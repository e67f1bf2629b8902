package mem_test

import (
	"errors"
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
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
		wantAll(t, panicOf(t, func() { mem.Align(newPile(256), to, mem.AlignOptions{}) }), "mem: Align to")
	}
	wantAll(t, panicOf(t, func() { mem.Align(newPile(256), 512, mem.AlignOptions{From: 3}) }), "3 is not a power of two")
	wantAll(t, panicOf(t, func() { mem.Align(newPile(256), 512, mem.AlignOptions{Above: -1}) }), "Above >= 0")
}

// 64 KiB at 4096 over 256 asks for 69,376 bytes.
func TestBehaviour87_AlignAsksForWhatItMayHaveToLeaveOut(t *testing.T) {
	base := newPile(256)
	below := &asked{Allocator: base}
	a := mem.Align(below, 4096, mem.AlignOptions{})
	base.next = 0x10100
	b := mustAlloc(t, a, 64<<10)
	if len(below.sizes) != 1 || below.sizes[0] != 69_376 {
		t.Errorf("it asked for %d", below.sizes)
	}
	if b.Ptr != 0x11000 || b.Size != 69_376-0xf00 {
		t.Errorf("it gave %+v", b)
	}
	a.Free(b, s1)
	if len(base.live) != 0 || len(base.used) != 1 || len(base.used[0]) != 1 {
		t.Errorf("below: %d live, frees with %v", len(base.live), base.used)
	}
	wantAll(t, panicOf(t, func() { a.Free(b) }), "mem: Align: Free", "not on loan")
}

func TestAlignLeavesSmallRequestsAlone(t *testing.T) {
	base := newPile(256)
	below := &asked{Allocator: base}
	a := mem.Align(below, 4096, mem.AlignOptions{Above: 1000})
	base.next = 0x10100
	small, large := mustAlloc(t, a, 999), mustAlloc(t, a, 1000)
	if small.Ptr != 0x10100 || large.Ptr%4096 != 0 || below.sizes[0] != 999 || below.sizes[1] != 1000+3840 {
		t.Errorf("%+v and %+v for requests of %d", small, large, below.sizes)
	}
}

func TestAlignEdges(t *testing.T) {
	base := newPile(256)
	a := mem.Align(base, 4096, mem.AlignOptions{})
	var oom *mem.OutOfMemory
	if _, err := a.Alloc(s0, math.MaxInt64-100); !errors.As(err, &oom) || oom.Requested != math.MaxInt64-100 {
		t.Errorf("a size that would pass 2^63 gives %v", err)
	}
	base.next = 0x10001 // the layer below does not keep its promise
	for range 16 {      // of which some blocks have room all the same
		if text := panics(func() { mustAlloc(t, a, 256); base.next += 4095 - 256 + 1 }); text != "" {
			wantAll(t, text, "mem: Align", "0x", "no multiple of 256")
			return
		}
	}
	t.Error("a layer below that aligns to a byte is not noticed")
}

// panics returns what f panics with, or nothing.
func panics(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text, _ = r.(string)
		}
	}()
	f()
	return ""
}

func (a *asked) Unwrap() mem.Allocator { return a.Allocator }
