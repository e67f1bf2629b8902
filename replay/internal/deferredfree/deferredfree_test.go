package deferredfree

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/trace"
)

// Marks of one side stream must complete in their order, and no more streams be used than orders of completion demand:
// as many as the longest run of frees of which each completes before the one before it.
func TestSidePlanKeepsTheOrderWithFewestStreams(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := &trace.Program{Streams: 1}
		var pending []uint32
		for range 1 + rng.IntN(60) {
			if n := len(pending); n > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(n)
				p.Ops = append(p.Ops, trace.Op{Kind: trace.OpComplete, Block: pending[i]})
				pending = append(pending[:i], pending[i+1:]...)
				continue
			}
			b := uint32(p.Blocks)
			p.Blocks++
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpAlloc, Block: b}, trace.Op{Kind: trace.OpFreeDeferred, Block: b})
			pending = append(pending, b)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		plan, sides := Plan(p)

		queued, done := make([]uint64, sides), make([]uint64, sides)
		marks, ends, next := map[uint32]Mark{}, map[uint32]int{}, 0
		for i, op := range p.Ops {
			switch op.Kind {
			case trace.OpFreeDeferred:
				m := plan[next]
				next++
				if queued[m.Stream]++; m.Tick != queued[m.Stream] {
					t.Fatalf("seed %d: op %d: tick %d, want %d", seed, i, m.Tick, queued[m.Stream])
				}
				marks[op.Block], ends[op.Block] = m, len(p.Ops)
			case trace.OpComplete:
				m := plan[next]
				next++
				if m != marks[op.Block] {
					t.Fatalf("seed %d: op %d: mark %v, want %v", seed, i, m, marks[op.Block])
				}
				if done[m.Stream]++; m.Tick != done[m.Stream] {
					t.Fatalf("seed %d: op %d: completes %d, want %d", seed, i, m.Tick, done[m.Stream])
				}
				ends[op.Block] = i
			}
		}
		longest := make([]int, p.Blocks)
		fewest := 0
		for b := range longest {
			longest[b] = 1
			for before := range b {
				if ends[uint32(before)] > ends[uint32(b)] {
					longest[b] = max(longest[b], longest[before]+1)
				}
			}
			fewest = max(fewest, longest[b])
		}
		if sides != fewest || next != len(plan) {
			t.Errorf("seed %d: %d streams, want %d", seed, sides, fewest)
		}
	}
}

func TestSideStreamsTakeNoWork(t *testing.T) {
	s := NewStreams(1, nil)[0]
	for call, err := range map[string]error{
		"Copy": s.Copy(1, 2, 3), "CopyIn": s.CopyIn(1, nil), "CopyOut": s.CopyOut(nil, 1), "Fill": s.Fill(1, 0, 1),
	} {
		if err == nil {
			t.Errorf("%s succeeded", call)
		}
	}
	s.Queued.Store(3)
	m, _ := s.Mark()
	if done, _ := s.Reached(m); done || m.Stream != s.ID() {
		t.Error("reached before it was completed")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if done, _ := s.Reached(m); !done {
		t.Error("Close must complete what is queued")
	}
}
