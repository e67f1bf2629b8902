package bfc_test

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

// crowded returns an allocator with n live blocks of a KiB, and as many free ones of 256 bytes to 64 KiB between them.
func crowded(b *testing.B, n int) (*bench, []mem.Block) {
	b.Helper()
	dev := sim.New(sim.Options{Unchecked: true, Cost: &sim.CostModel{}})
	b.Cleanup(func() {
		if err := dev.Close(); err != nil {
			b.Error(err)
		}
	})
	a, err := bfc.New(dev, bfc.Config{})
	if err != nil {
		b.Fatal(err)
	}
	w := &bench{a, b, dev, dev.DefaultStream()}
	holes, blocks := make([]mem.Block, n), make([]mem.Block, n)
	for i := range blocks {
		holes[i], blocks[i] = w.alloc(int64(1+i*7919%256)*256), w.alloc(1024)
	}
	for _, h := range holes {
		a.Free(h)
	}
	return w, blocks
}

// BenchmarkPair is a warm Alloc and Free among many live blocks and as many free ones.
func BenchmarkPair(b *testing.B) {
	for n := 100; n <= 100_000; n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w, _ := crowded(b, n)
			b.ReportAllocs()
			for b.Loop() {
				block, err := w.Alloc(w.s, 20_000)
				if err != nil {
					b.Fatal(err)
				}
				w.Free(block)
			}
		})
	}
}

// BenchmarkReplace frees a live block somewhere, which merges with its neighbours, and takes another for it.
func BenchmarkReplace(b *testing.B) {
	for n := 100; n <= 100_000; n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w, blocks := crowded(b, n)
			i := uint64(0)
			for b.Loop() {
				i = i*6364136223846793005 + 1442695040888963407
				k := i >> 33 % uint64(n)
				w.Free(blocks[k])
				var err error
				if blocks[k], err = w.Alloc(w.s, 1024); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
