package layer_test

import (
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// line allocates every address once and again, doing next to nothing itself.
type line struct{ next driver.Pointer }

func (l *line) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	l.next = (l.next + 512) & (1<<34 - 1)
	return mem.Block{Ptr: l.next + 1<<40, Size: size}, nil
}

func (l *line) Free(mem.Block, ...driver.Stream) {}

// bump allocates the next address. It is safe for concurrent use.
type bump struct{ next atomic.Uint64 }

func (l *bump) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	return mem.Block{Ptr: driver.Pointer(1<<40 + l.next.Add(512)), Size: size}, nil
}

func (l *bump) Free(mem.Block, ...driver.Stream) {}

// BenchmarkAdaptors measures what each adaptor adds to a pair of Alloc and Free.
func BenchmarkAdaptors(b *testing.B) {
	stacks := []struct {
		name string
		a    mem.Allocator
	}{
		{"none", &line{}},
		{"limit", layer.NewLimiter(&line{}, 1<<40)},
		{"scope", layer.NewScope(&line{})},
		{"track", layer.NewLeakTracker(&line{}, layer.LeakTrackerOptions{})},
		{"track,every=100", layer.NewLeakTracker(&line{}, layer.LeakTrackerOptions{Every: 100})},
		{"track,nostacks", layer.NewLeakTracker(&line{}, layer.LeakTrackerOptions{Depth: -1, Freed: -1})},
	}
	for _, s := range stacks {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				blk, _ := s.a.Alloc(fake.S0, 512)
				s.a.Free(blk)
			}
		})
	}
}

// BenchmarkByAddress replaces one of 4096 live blocks at a time, alone and from all processors.
func BenchmarkByAddress(b *testing.B) {
	run := func(b *testing.B, x *raw.Addressed, again func() bool) {
		var live [4096]driver.Pointer
		for i := range live {
			live[i], _ = x.Alloc(fake.S0, 512)
		}
		for i := 0; again(); i++ {
			at := &live[i*2654435761%4096]
			x.Free(*at)
			*at, _ = x.Alloc(fake.S0, 512)
		}
		for _, p := range live {
			x.Free(p)
		}
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		run(b, raw.NewAddressed(&line{}), b.Loop)
	})
	b.Run("parallel", func(b *testing.B) {
		x := raw.NewAddressed(&bump{})
		b.RunParallel(func(pb *testing.PB) { run(b, x, pb.Next) })
	})
}
