package caching_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

// benchAllocator is an allocator on a device that never runs out, and its default stream.
func benchAllocator(b *testing.B) (mem.Allocator, *sim.Device) {
	dev := sim.New(sim.Options{Total: 1 << 50, Unchecked: true})
	return newAllocator(b, dev, ""), dev
}

// One block of one size, allocated and freed again and again. PyTorch's C++ takes 276 to 502 ns.
func BenchmarkWarm(b *testing.B) {
	for _, size := range []int64{512, 64 << 10, 1 << 20, 8 << 20, 64 << 20} {
		b.Run("size="+bytesize.Exact(size), func(b *testing.B) {
			a, dev := benchAllocator(b)
			s := dev.DefaultStream()
			b.ReportAllocs()
			for b.Loop() {
				block, err := a.Alloc(s, size)
				if err != nil {
					b.Fatal(err)
				}
				a.Free(block)
			}
		})
	}
}

// Live blocks of sizes log-uniform from 512 B to 64 MiB, replaced at random: in each round every block is replaced once,
// and between rounds they are shuffled while the clock stands still, so that the caller's own cache misses are not
// counted. PyTorch's C++ takes 989 ns with 4,096.
func BenchmarkReplace(b *testing.B) {
	for _, live := range []int{1_000, 4_096, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			a, dev := benchAllocator(b)
			s := dev.DefaultStream()
			r := rand.New(rand.NewPCG(1, 2))
			sizes := make([]int64, 1<<16+1) // a number of sizes that has no divisor in common with live
			for i := range sizes {
				sizes[i] = int64(512 * math.Pow(64<<20/512, r.Float64()))
			}
			blocks := make([]mem.Block, live)
			n := 0
			for i := range blocks {
				blocks[i], _ = a.Alloc(s, sizes[n%len(sizes)])
				n++
			}
			shuffle := func() { r.Shuffle(live, func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] }) }
			i := live
			replace := func() {
				a.Free(blocks[i])
				blocks[i], _ = a.Alloc(s, sizes[n%len(sizes)])
				i++
				n++
			}
			for range 3 {
				shuffle()
				for i = 0; i < live; {
					replace()
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if i == live {
					b.StopTimer()
					shuffle()
					i = 0
					b.StartTimer()
				}
				replace()
			}
		})
	}
}
