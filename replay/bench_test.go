package replay_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// nothing is an allocator that takes no time: the remainder is the replay's own time.
type nothing struct{}

func (nothing) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	return mem.Block{Ptr: 1, Size: size, Tag: 1}, nil
}
func (nothing) Free(mem.Block, ...driver.Stream) {}

func BenchmarkRun(b *testing.B) {
	const live, n = 1000, 1 << 20
	p := &trace.Program{Streams: 1, Blocks: n}
	for i := range uint32(n) {
		p.Ops = append(p.Ops, trace.Op{Kind: trace.OpAlloc, Block: i, Size: 512})
		switch {
		case i < live:
		case i%64 == 0:
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFreeDeferred, Block: i - live}, trace.Op{Kind: trace.OpComplete, Block: i - live})
		default:
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFree, Block: i - live})
		}
	}
	d := newDevice(1)
	b.ReportAllocs()
	for b.Loop() {
		if r, err := replay.Run(p, nothing{}, d, replay.Options{}); err != nil || !r.Completed {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(p.Ops)), "ns/op-of-program")
}
