package caching_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
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

// A slot keeps a block on one cache line, so that the caller's misses are as few as they can be.
type slot struct {
	mem.Block
	_ uint64
}

// Live blocks of sizes log-uniform from 512 B to 64 MiB, replaced at random. PyTorch's C++ takes 989 ns with 4,096.
func BenchmarkReplace(b *testing.B) {
	for _, live := range []int{1_000, 4_096, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			a, dev := benchAllocator(b)
			s := dev.DefaultStream()
			r := rand.New(rand.NewPCG(1, 2))
			const n = 1 << 20 // sizes and victims are drawn beforehand
			sizes, victims := make([]int64, n), make([]int32, n)
			for i := range n {
				sizes[i] = int64(512 * math.Pow(64<<20/512, r.Float64()))
				victims[i] = int32(r.IntN(live))
			}
			blocks := make([]slot, live)
			for i := range blocks {
				blocks[i].Block, _ = a.Alloc(s, sizes[i%n])
			}
			step := 0
			var ahead uint64
			replace := func() {
				i := victims[step%n]
				ahead ^= blocks[victims[(step+8)%n]].Tag // the caller's own cache misses are not the allocator's
				a.Free(blocks[i].Block)
				blocks[i].Block, _ = a.Alloc(s, sizes[(7*step+3)%n])
				step++
			}
			for range 3 * live {
				replace()
			}
			b.ReportAllocs()
			for b.Loop() {
				replace()
			}
			runtime.KeepAlive(ahead)
		})
	}
}
