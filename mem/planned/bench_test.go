package planned_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/trace"
)

// rounds is a program of a few weights and then the same n requests again and again.
func rounds(n, times int) *trace.Program {
	p := &trace.Program{Streams: 1}
	alloc := func(size int64) uint32 {
		b := uint32(p.Blocks)
		p.Blocks++
		p.Ops = append(p.Ops, trace.Op{Kind: trace.OpAlloc, Block: b, Size: size})
		return b
	}
	for i := range 8 {
		alloc(int64(10_000 + i))
	}
	for range times {
		for i := range n {
			b := alloc(int64(512 + i*1000))
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFree, Block: b})
		}
	}
	return p
}

// A request and its free, both as planned.
func BenchmarkPair(b *testing.B) {
	const n = 1000
	dev := sim.New(sim.Options{Total: 1 << 30})
	p := rounds(n, 3)
	var a mem.Allocator = open(b, dev, plan(b, p, planned.Options{}))
	s := dev.DefaultStream()
	for i := range 8 {
		_, err := a.Alloc(s, int64(10_000+i))
		testkit.Must(b, err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		block, err := a.Alloc(s, int64(512+i*1000))
		if err != nil {
			b.Fatal(err)
		}
		a.Free(block)
		if i++; i == n {
			i = 0
		}
	}
	c := a.(*planned.Allocator).Counts()
	if c.Missed > 0 {
		b.Errorf("%+v", c)
	}
}

// A recorded training, from beginning to end, as planned: requests and frees in the order in which they came.
func BenchmarkRecorded(b *testing.B) {
	p := work(b, "gpt2")
	made := plan(b, p, planned.Options{})
	blocks := make([]mem.Block, p.Blocks)
	pairs := 0
	for b.Loop() {
		b.StopTimer()
		dev := sim.New(sim.Options{})
		fallback, err := caching.New(dev, caching.Default())
		testkit.Must(b, err)
		var a mem.Allocator
		a, err = planned.New(dev, made, planned.Settings{Fallback: fallback}) // open would keep it until the end
		testkit.Must(b, err)
		s := dev.DefaultStream()
		b.StartTimer()
		for i := range p.Ops {
			op := &p.Ops[i]
			if op.Kind == trace.OpAlloc {
				block, err := a.Alloc(s, op.Size)
				if err != nil {
					b.Fatal(err)
				}
				blocks[op.Block] = block
				pairs++
			} else {
				a.Free(blocks[op.Block])
			}
		}
		b.StopTimer()
		testkit.Must(b, dev.Close())
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(pairs), "ns/pair")
}
