package magazine_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/magazine"
)

// stacks are mem/caching alone and under a Cache, each on a device that never runs out.
func stacks(b *testing.B, run func(b *testing.B, dev *sim.Device, a mem.Allocator)) {
	for _, name := range []string{"caching", "magazine"} {
		b.Run(name, func(b *testing.B) {
			dev := sim.New(sim.Options{Total: 1 << 50, Unchecked: true})
			under, err := caching.New(dev, caching.Default())
			if err != nil {
				b.Fatal(err)
			}
			a := mem.Allocator(under)
			if name == "magazine" {
				a = magazine.New(under, magazine.Options{MaxSize: 8 << 20})
			}
			run(b, dev, a)
		})
	}
}

// pairs allocates and frees n times.
func pairs(b *testing.B, a mem.Allocator, s driver.Stream, size int64, n int) {
	for range n {
		block, err := a.Alloc(s, size)
		if err != nil {
			b.Error(err)
			return
		}
		a.Free(block)
	}
}

// One block of one size, allocated and freed again and again.
func BenchmarkWarm(b *testing.B) {
	for _, size := range []int64{512, 64 << 10, 1 << 20, 8 << 20} {
		b.Run("size="+bytesize.Exact(size), func(b *testing.B) {
			stacks(b, func(b *testing.B, dev *sim.Device, a mem.Allocator) {
				pairs(b, a, dev.DefaultStream(), size, 100)
				b.ReportAllocs()
				b.ResetTimer()
				pairs(b, a, dev.DefaultStream(), size, b.N)
			})
		})
	}
}

// Goroutines that all allocate and free 4 KiB on one stream, or each on its own: ns per pair, of all together.
func BenchmarkOneStream(b *testing.B)  { benchmarkGoroutines(b, false) }
func BenchmarkStreamEach(b *testing.B) { benchmarkGoroutines(b, true) }

func benchmarkGoroutines(b *testing.B, streamEach bool) {
	for _, goroutines := range []int{1, 2, 4, 16} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			stacks(b, func(b *testing.B, dev *sim.Device, a mem.Allocator) {
				streams := make([]driver.Stream, goroutines)
				for i := range streams {
					streams[i] = dev.DefaultStream()
					if streamEach {
						streams[i], _ = dev.NewStream(driver.StreamOptions{})
					}
					pairs(b, a, streams[i], 4096, 100)
				}
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for _, s := range streams {
					wg.Go(func() { pairs(b, a, s, 4096, b.N/goroutines+1) })
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/float64(b.Elapsed().Microseconds()+1), "pairs/us")
			})
		})
	}
}

// Goroutines in pairs, of which one allocates and the other frees, all on one stream.
func BenchmarkProducerConsumer(b *testing.B) {
	for _, couples := range []int{1, 8} {
		b.Run(fmt.Sprintf("couples=%d", couples), func(b *testing.B) {
			stacks(b, func(b *testing.B, dev *sim.Device, a mem.Allocator) {
				s := dev.DefaultStream()
				const batch = 64
				var wg sync.WaitGroup
				b.ReportAllocs()
				for range couples {
					full, empty := make(chan []mem.Block, 4), make(chan []mem.Block, 4)
					for range 4 {
						empty <- make([]mem.Block, batch)
					}
					wg.Go(func() {
						defer close(full)
						for n := 0; n < b.N/couples; n += batch {
							blocks := <-empty
							for i := range blocks {
								blocks[i], _ = a.Alloc(s, 4096)
							}
							full <- blocks
						}
					})
					wg.Go(func() {
						for blocks := range full {
							for _, block := range blocks {
								a.Free(block)
							}
							empty <- blocks
						}
					})
				}
				wg.Wait()
			})
		})
	}
}
