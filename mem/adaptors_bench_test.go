package mem_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// idle is a stream that does nothing, at no cost, and reads as a red zone.
type idle struct{ driver.Stream }

func (idle) ID() driver.StreamID                    { return 0 }
func (idle) Fill(driver.Pointer, byte, int64) error { return nil }
func (idle) CopyIn(driver.Pointer, []byte) error    { return nil }
func (idle) Sync(context.Context) error             { return nil }
func (idle) CopyOut(dst []byte, _ driver.Pointer) error {
	for i := range dst {
		dst[i] = 0xA5
	}
	return nil
}

type benchAdaptor struct {
	name string
	a    mem.Allocator
}

func benchAdaptors() []benchAdaptor {
	tenant, err := mem.NewQuotas(&line{}, 1<<40).Tenant("one", 1<<20, 1<<40)
	if err != nil {
		panic(err)
	}
	slab := mem.Slab(&line{}, 1024, 128)
	slab.Alloc(idle{}, 1) // so that a slab always stays
	return []benchAdaptor{
		{"align", mem.Align(&line{}, 4096, mem.AlignOptions{From: 512})},
		{"zero", mem.Zero(&line{})},
		{"guard", mem.Guard(&line{}, mem.GuardOptions{})},
		{"log", mem.Log(&line{}, io.Discard, nil)},
		{"retry", mem.NewRetry(&line{}, mem.RetryOptions{
			Steps: []mem.Step{func(driver.Stream, int64) error { return nil }}, Wait: mem.Within(time.Second),
		})},
		{"fallback", mem.Fallback(&line{}, &line{})},
		{"binning", mem.Binning(&line{}, mem.Bin{Size: 256, Allocator: &line{}}, mem.Bin{Size: 1 << 20, Allocator: &line{}})},
		{"slab", slab},
		{"prefetch", mem.Prefetch(&line{}, nil)},
		{"quota", tenant},
		{"measure", mem.Measure(&line{})},
		{"tracked", mem.NewTracked(&line{}, mem.TrackedOptions{})},
	}
}

// BenchmarkMoreAdaptors measures what each adaptor adds to a pair of Alloc and Free, on a stream whose work takes no time.
func BenchmarkMoreAdaptors(b *testing.B) {
	for _, ad := range benchAdaptors() {
		b.Run(ad.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				blk, _ := ad.a.Alloc(idle{}, 512)
				ad.a.Free(blk)
			}
		})
	}
}
