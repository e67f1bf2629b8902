package paged_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// benchAllocator is an allocator on a device that never runs out, and its default stream.
func benchAllocator(b *testing.B) (mem.Allocator, *sim.Device) {
	dev := sim.New(sim.Options{Total: 1 << 38, Unchecked: true})
	a, err := paged.New(dev, paged.Config{Page: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	return a, dev
}

func mustAlloc(b *testing.B, a mem.Allocator, s driver.Stream, size int64) mem.Block {
	block, err := a.Alloc(s, size)
	if err != nil {
		b.Fatal(err)
	}
	return block
}

// One block, allocated and freed repeatedly while other blocks are live. PyTorch's C++ takes 276 to 502 ns.
func BenchmarkWarm(b *testing.B) {
	for _, live := range []int{0, 1_000, 1_000_000} {
		for _, size := range []int64{512, 64 << 10, 8 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("live=%d/size=%s", live, bytesize.Exact(size)), func(b *testing.B) {
				a, dev := benchAllocator(b)
				s := dev.DefaultStream()
				for i := range live {
					mustAlloc(b, a, s, int64(512+i%64*512))
				}
				b.ReportAllocs()
				for b.Loop() {
					a.Free(mustAlloc(b, a, s, size))
				}
			})
		}
	}
}

// Live blocks of sizes log-uniform from 512 B to 64 MiB, replaced at random: in each round every block is replaced
// once, and between rounds they are shuffled while the clock stands still, so that the caller's own cache misses are
// not counted. PyTorch's C++ takes 989 ns with 4,096.
func BenchmarkReplace(b *testing.B) {
	for _, live := range []int{1_000, 4_096, 100_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			dev := sim.New(sim.Options{Total: 1 << 44, Unchecked: true})
			a, err := paged.New(dev, paged.Config{Page: 1 << 30})
			if err != nil {
				b.Fatal(err)
			}
			s := dev.DefaultStream()
			r := rand.New(rand.NewPCG(1, 2))
			sizes := make([]int64, 1<<16+1) // a number of sizes that has no divisor in common with live
			for i := range sizes {
				sizes[i] = int64(512 * math.Pow(64<<20/512, r.Float64()))
			}
			blocks := make([]mem.Block, live)
			n := 0
			for i := range blocks {
				blocks[i] = mustAlloc(b, a, s, sizes[n%len(sizes)])
				n++
			}
			shuffle := func() { r.Shuffle(live, func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] }) }
			i := live
			replace := func() {
				if i == live {
					b.StopTimer()
					shuffle()
					i = 0
					b.StartTimer()
				}
				a.Free(blocks[i])
				blocks[i] = mustAlloc(b, a, s, sizes[n%len(sizes)])
				n++
				i++
			}
			for range 64 * live {
				replace()
			}
			b.ReportAllocs()
			for b.Loop() {
				replace()
			}
		})
	}
}

// Goroutines allocate and free, each on a separate stream or all on one.
func BenchmarkParallel(b *testing.B) {
	for _, shared := range []bool{false, true} {
		b.Run(fmt.Sprintf("shared=%v", shared), func(b *testing.B) {
			a, dev := benchAllocator(b)
			b.RunParallel(func(pb *testing.PB) {
				s := dev.DefaultStream()
				if !shared {
					s, _ = dev.NewStream(driver.StreamOptions{})
				}
				for pb.Next() {
					a.Free(mustAlloc(b, a, s, 4<<10))
				}
			})
		})
	}
}
