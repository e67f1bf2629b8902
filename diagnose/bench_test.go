package diagnose_test

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// BenchmarkExplain explains a million events: the GPT-2 training eight times over, with 200 stacks of 20 frames. In one
// of the two recordings a request fails at the end for want of a hole, which takes more replays.
func BenchmarkExplain(b *testing.B) {
	for _, fails := range []bool{false, true} {
		b.Run(fmt.Sprintf("fails=%t", fails), func(b *testing.B) { benchmark(b, repeated(b, 8, fails)) })
	}
}

func benchmark(b *testing.B, s *snapshot.Snapshot) {
	for b.Loop() {
		works, err := replay.Works(s)
		if err != nil {
			b.Fatal(err)
		}
		h, err := holders.New(s, 0)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := diagnose.Explain(s, works[0], h, diagnose.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	events := float64(b.N) * float64(len(s.Traces[0].Events))
	b.ReportMetric(events/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

// repeated records the work of a GPT-2 training n times over. If it fails, the last request is larger than any hole but
// smaller than the free memory.
func repeated(t testing.TB, n int, fails bool) *snapshot.Snapshot {
	t.Helper()
	from, err := snapshot.ReadFile("../testdata/traces/gpt2.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	works, err := replay.Works(from)
	if err != nil {
		t.Fatal(err)
	}
	p := *works[0].Program
	one := p.Ops
	live := map[uint32]bool{}
	for i := range one {
		switch one[i].Kind {
		case trace.OpAlloc:
			live[one[i].Block] = true
		case trace.OpFree, trace.OpFreeDeferred:
			delete(live, one[i].Block)
		}
	}
	p.Ops, p.Entries = nil, nil
	for i := range n {
		for _, op := range one {
			op.Block += uint32(i * p.Blocks)
			p.Ops = append(p.Ops, op)
		}
		for block := range p.Blocks {
			if live[uint32(block)] {
				p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFree, Block: uint32(block + i*p.Blocks)})
			}
		}
	}
	p.Blocks *= n
	dev := sim.New(sim.Options{Unchecked: true})
	defer dev.Close()
	cfg := caching.Default()
	cfg.Limit = 26 << 30
	c, err := caching.New(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var now int64
	r := trace.NewRecorder(trace.RecorderOptions{Clock: func() int64 { now++; return now }})
	a := r.Attach(c)
	if _, err := replay.Run(&p, a, dev, replay.Options{}); err != nil {
		t.Fatal(err)
	}
	if fails {
		for i := range 40 {
			b, err := a.Alloc(dev.DefaultStream(), 1<<30)
			if err == nil && i%2 == 0 {
				defer a.Free(b)
			}
			if err != nil {
				break
			}
		}
	}
	s, err := snapshot.Of(a, snapshot.Live{Recorder: r})
	if err != nil {
		t.Fatal(err)
	}
	stacks := &trace.Stacks{}
	for i := range 200 {
		var frames []uint32
		for depth := range 20 {
			frames = append(frames, uint32(len(stacks.Frames)))
			stacks.Frames = append(stacks.Frames, trace.Frame{
				Name: "f", Filename: fmt.Sprintf("/home/me/m%d.py", depth), Line: int64(i),
			})
		}
		stacks.Add(frames)
	}
	for i := range s.Traces[0].Events {
		e := &s.Traces[0].Events[i]
		e.Stack = trace.StackID(1 + e.Size%200)
	}
	s.Stacks, s.Traces[0].Stacks = stacks, stacks
	return s
}
