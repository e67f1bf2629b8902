package layer_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
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
	tenant, err := layer.NewQuotas(&line{}, 1<<40).Tenant("one", 1<<20, 1<<40)
	if err != nil {
		panic(err)
	}
	slab := layer.NewSlabs(&line{}, 1024, 128)
	slab.Alloc(idle{}, 1) // so that a slab always stays
	return []benchAdaptor{
		{"align", layer.NewAligner(&line{}, 4096, layer.AlignerOptions{From: 512})},
		{"zero", layer.NewZeroer(&line{})},
		{"guard", layer.NewGuard(&line{}, layer.GuardOptions{})},
		{"log", layer.NewLogger(&line{}, io.Discard, nil)},
		{"retry", layer.NewRetry(&line{}, layer.RetryOptions{
			Steps: []layer.Step{func(driver.Stream, int64) error { return nil }}, Wait: layer.WaitTimeout(time.Second),
		})},
		{"fallback", layer.NewFallback(&line{}, &line{})},
		{"binning", layer.NewBinning(&line{}, layer.Bin{Size: 256, Allocator: &line{}}, layer.Bin{Size: 1 << 20, Allocator: &line{}})},
		{"slab", slab},
		{"prefetch", layer.NewPrefetcher(&line{}, nil)},
		{"quota", tenant},
		{"measure", layer.NewCounter(&line{})},
		{"tracked", layer.NewSizeTracker(&line{}, layer.SizeTrackerOptions{})},
	}
}

// BenchmarkMoreAdaptors measures what each adaptor adds to a pair of Alloc and Free, on a stream whose work takes no
// time.
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
