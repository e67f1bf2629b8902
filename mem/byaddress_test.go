package mem_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

func TestByAddress(t *testing.T) {
	base := newPile(512)
	x := mem.ByAddress(base)
	p, err := x.Alloc(s0, 1000)
	if err != nil || p == 0 {
		t.Fatalf("Alloc: %#x, %v", p, err)
	}
	if b, ok := x.Block(p); !ok || b != (mem.Block{Ptr: p, Size: 1024}) || x.Len() != 1 {
		t.Errorf("the block is %v, %v, of %d", b, ok, x.Len())
	}
	if b, ok := x.Below(p + 5000); !ok || b.Ptr != p {
		t.Errorf("below: %v, %v", b, ok)
	}
	x.Free(p, s1)
	if _, ok := x.Block(p); ok || x.Len() != 0 || len(base.live) != 0 {
		t.Error("the block is still known after Free")
	}
	if base.used[0][0] != s1 {
		t.Error("Free lost its streams")
	}
	if a, ok := x.Unwrap().(*pile); !ok || a != base {
		t.Error("Unwrap does not give what is below")
	}
}

func TestByAddressZero(t *testing.T) {
	base := newPile(512)
	x := mem.ByAddress(base)
	if p, err := x.Alloc(s0, 0); p != 0 || err != nil {
		t.Errorf("zero bytes gave %#x, %v", p, err)
	}
	x.Free(0)
	base.fail = mem.ErrNoMemory
	if p, err := x.Alloc(s0, 1); p != 0 || !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a failure below gave %#x, %v", p, err)
	}
	if x.Len() != 0 {
		t.Errorf("%d blocks", x.Len())
	}
}

func TestByAddressUnknown(t *testing.T) {
	x := mem.ByAddress(newPile(512))
	p, _ := x.Alloc(s0, 512) // 0x1000
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
			wantAll(t, panicOf(t, func() { x.Free(tt.free) }), append(tt.want, "mem: ByAddress: Free of")...)
		})
	}
	x.Free(p)
	panicOf(t, func() { x.Free(p) })
}

// The allocator below may hand the address out again before its Free has returned.
func TestBehaviour86ByAddressForgetsBeforeFreeing(t *testing.T) {
	base := newPile(512)
	x := mem.ByAddress(base)
	p, _ := x.Alloc(s0, 512)
	var again driver.Pointer
	base.onFree = func(mem.Block) {
		base.onFree = nil
		again, _ = x.Alloc(s1, 512)
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
	x := mem.ByAddress(newPile(512))
	handed := make(chan driver.Pointer, 64)
	var producers, consumers sync.WaitGroup
	for i := range 2 {
		producers.Go(func() {
			for n := range 2000 {
				p, err := x.Alloc(s0, int64(1+(n*(i+7))%3000))
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
