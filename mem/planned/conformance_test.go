package planned_test

import (
	"math/rand/v2"
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/trace"
)

// broad is a plan with a slot for requests of most sizes: four streams, each with rounds of random requests, and the
// largest permitted room.
func broad(t testing.TB) *planned.Plan {
	rng := rand.New(rand.NewPCG(1, 2))
	var round []trace.Op
	blocks := uint32(0)
	var live []uint32
	for range 120 {
		for len(live) > 12 || len(live) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(live))
			round = append(round, trace.Op{Kind: trace.OpFree, Block: live[i]})
			live = append(live[:i], live[i+1:]...)
		}
		op := trace.Op{Kind: trace.OpAlloc, Block: blocks, Stream: uint32(rng.IntN(4)), Size: 1 + rng.Int64N(1<<rng.IntN(18))}
		round = append(round, op)
		live = append(live, blocks)
		blocks++
	}
	p := &trace.Program{Streams: 4}
	for r := range uint32(3) {
		for _, op := range round {
			op.Block += r * blocks
			p.Ops = append(p.Ops, op)
		}
		if r > 0 { // what is left of the round before
			for _, b := range live {
				p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFree, Block: b + (r-1)*blocks})
			}
		}
	}
	p.Blocks = int(3 * blocks)
	return plan(t, p, planned.Options{Room: 1000})
}

func TestConformance(t *testing.T) {
	p := broad(t)
	t.Logf("%d bytes", p.Size())
	cfg := memtest.Config{Reserved: (p.Size() + 4095) / 4096 * 4096, Waits: true, Alignment: 512}
	memtest.RunAll(t, cfg, construct, map[string]*planned.Plan{"broad": p})
}
