package raw_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// A warm pair allocates nothing on Go's heap.
func TestWarmPairsAllocateNothing(t *testing.T) {
	dev := newSim(t)
	pair := func() { raw.Delete(alloc(t, dev, 512)) }
	for range 1000 {
		pair()
	}
	if n := testing.AllocsPerRun(1000, pair); n != 0 {
		t.Errorf("%v allocations a pair", n)
	}
}

// BenchmarkPair measures Alloc and Delete, the same through raw.NewAddressed, which knows its allocator, and through
// the allocator itself.
func BenchmarkPair(b *testing.B) {
	const size = 512
	b.Run("raw", func(b *testing.B) {
		dev := newSim(b)
		b.ReportAllocs()
		for b.Loop() {
			p, _ := raw.Alloc(dev, size)
			raw.Delete(p)
		}
	})
	b.Run("ByAddress", func(b *testing.B) {
		dev := newSim(b)
		a, err := raw.Current(dev)
		testkit.Must(b, err)
		x := raw.NewAddressed(a)
		b.ReportAllocs()
		for b.Loop() {
			p, _ := x.Alloc(dev.DefaultStream(), size)
			x.Free(p)
		}
	})
	b.Run("caching", func(b *testing.B) {
		dev := newSim(b)
		a, err := raw.Current(dev)
		testkit.Must(b, err)
		b.ReportAllocs()
		for b.Loop() {
			block, _ := a.Alloc(dev.DefaultStream(), size)
			a.Free(block)
		}
	})
	b.Run("raw of 8 devices", func(b *testing.B) {
		for range 7 {
			testkit.Must(b, raw.Init(newSim(b)))
		}
		dev := newSim(b)
		b.ReportAllocs()
		for b.Loop() {
			p, _ := raw.Alloc(dev, size)
			raw.Delete(p)
		}
	})
	b.Run("raw from all processors", func(b *testing.B) {
		dev := newSim(b)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			s, _ := dev.NewStream(driver.StreamOptions{})
			for pb.Next() {
				p, _ := raw.AllocOn(dev, s, size)
				raw.Delete(p)
			}
		})
	})
}
