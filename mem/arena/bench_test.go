package arena_test

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// fragmented returns an arena with n live blocks of a KiB, a hole of 512 bytes before each, and one of a KiB at the
// end.
func fragmented(b *testing.B, n int) (*arena.Arena, driver.Stream, []mem.Block) {
	b.Helper()
	dev := closeDevice(b, sim.New(sim.Options{Total: 4 << 30, Unchecked: true, Cost: &sim.CostModel{}}))
	a, err := arena.New(dev, arena.Config{Size: int64(n)*1536 + 1024})
	if err != nil {
		b.Fatal(err)
	}
	s := dev.DefaultStream()
	holes, blocks := make([]mem.Block, n), make([]mem.Block, n)
	for i := range blocks {
		holes[i], _ = a.Alloc(s, 512)
		if blocks[i], err = a.Alloc(s, 1024); err != nil {
			b.Fatal(err)
		}
	}
	for _, h := range holes {
		a.Free(h)
	}
	return a, s, blocks
}

// BenchmarkPair is a warm Alloc and Free among many live blocks with a hole before each: a list of holes would be
// walked to its end.
func BenchmarkPair(b *testing.B) {
	for n := 100; n <= 1_000_000; n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a, s, _ := fragmented(b, n)
			b.ReportAllocs()
			for b.Loop() {
				block, err := a.Alloc(s, 1024)
				if err != nil {
					b.Fatal(err)
				}
				a.Free(block)
			}
		})
	}
}

// BenchmarkReplace frees a live block somewhere and takes the lowest place that fits.
func BenchmarkReplace(b *testing.B) {
	for n := 100; n <= 1_000_000; n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a, s, blocks := fragmented(b, n)
			i := uint64(0)
			for b.Loop() {
				i = i*6364136223846793005 + 1442695040888963407
				k := i >> 33 % uint64(n)
				a.Free(blocks[k])
				var err error
				if blocks[k], err = a.Alloc(s, 1024); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type willing struct{}

func (willing) BeginMove() ([]driver.Stream, bool)   { return nil, true }
func (willing) EndMove(b mem.Block, s driver.Stream) {}

// BenchmarkCompact measures the time of the host, and of the simulator, to move many blocks together.
func BenchmarkCompact(b *testing.B) {
	for n := 100; n <= 10_000; n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				a, s, blocks := fragmented(b, n)
				for _, bl := range blocks {
					a.Movable(bl, willing{})
				}
				b.StartTimer()
				if err := a.Compact(s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/block")
		})
	}
}
