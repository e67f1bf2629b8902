package workloads

import (
	"math"
	"math/rand/v2"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// Bytes of an element.
const (
	mask    = 1
	half    = 2 // bfloat16
	single  = 4
	integer = 8 // an index
)

// A tensor is a block of the program, counted from 1; the zero tensor has no elements and no block.
type tensor uint32

// A process records the requests of a program. It is used by one goroutine.
type process struct {
	rng           *rand.Rand
	program       *trace.Program
	stream        uint32 // the current stream
	owners        []int  // by block
	usedElsewhere []bool // by block: another stream uses it (record_stream)
	pending       []pending
	steps         int // number of operations, for the lag of the device
}

// A pending tensor was freed while another stream used it.
type pending struct {
	block uint32
	until int // steps
}

func newProcess(seed uint64, streams int) *process {
	return &process{
		rng:     rand.New(rand.NewPCG(seed, 0x77_6f_72_6b)),
		program: &trace.Program{Streams: streams, Pools: []mem.PoolID{{}}},
	}
}

// end completes the pending frees.
func (p *process) end() *trace.Program {
	for _, each := range p.pending {
		p.ask(trace.Op{Kind: trace.OpComplete, Block: each.block})
	}
	p.program.Blocks = len(p.owners)
	return p.program
}

// allocations returns the number of allocations.
func (p *process) allocations() int { return len(p.owners) }

func (p *process) ask(op trace.Op) { p.program.Ops = append(p.program.Ops, op) }

// empty makes a tensor of size bytes with one owner. Like PyTorch it first processes completed frees.
func (p *process) empty(size int64) tensor {
	if size == 0 {
		return 0
	}
	p.steps++
	for len(p.pending) > 0 && p.pending[0].until <= p.steps {
		p.ask(trace.Op{Kind: trace.OpComplete, Block: p.pending[0].block})
		p.pending = p.pending[1:]
	}
	p.ask(trace.Op{Kind: trace.OpAlloc, Block: uint32(len(p.owners)), Size: size, Stream: p.stream})
	p.owners = append(p.owners, 1)
	p.usedElsewhere = append(p.usedElsewhere, false)
	return tensor(len(p.owners))
}

// all makes tensors of the given sizes.
func (p *process) all(sizes ...int64) []tensor {
	ts := make([]tensor, len(sizes))
	for i, size := range sizes {
		ts[i] = p.empty(size)
	}
	return ts
}

// share adds an owner to a tensor.
func (p *process) share(t tensor) tensor {
	if t != 0 {
		p.owners[t-1]++
	}
	return t
}

// drop removes an owner from each tensor; the last one frees it. The free of a tensor that another stream uses is
// pending until the device, which lags some hundred operations behind, has completed that stream's queued work.
func (p *process) drop(ts ...tensor) {
	for _, t := range ts {
		if t == 0 {
			continue
		}
		b := uint32(t - 1)
		if p.owners[b]--; p.owners[b] > 0 {
			continue
		}
		if !p.usedElsewhere[b] {
			p.ask(trace.Op{Kind: trace.OpFree, Block: b})
			continue
		}
		p.ask(trace.Op{Kind: trace.OpFreeDeferred, Block: b})
		until := p.steps + 20 + p.rng.IntN(100)
		if n := len(p.pending); n > 0 {
			until = max(until, p.pending[n-1].until)
		}
		p.pending = append(p.pending, pending{b, until})
	}
}

// recordStream records that another stream uses the tensors, too (record_stream).
func (p *process) recordStream(ts ...tensor) {
	for _, t := range ts {
		if t != 0 {
			p.usedElsewhere[t-1] = true
		}
	}
}

// scratch makes tensors and drops them in reverse order.
func (p *process) scratch(sizes ...int64) {
	ts := p.all(sizes...)
	for i := range ts {
		p.drop(ts[len(ts)-1-i])
	}
}

// on runs f with its requests on a stream.
func (p *process) on(stream uint32, f func()) {
	before := p.stream
	p.stream = stream
	f()
	p.stream = before
}

// between draws a number from [low, high] with a uniform logarithm.
func (p *process) between(low, high int64) int64 {
	return int64(float64(low) * math.Pow(float64(high+1)/float64(low), p.rng.Float64()))
}

// near draws a number near n.
func (p *process) near(n int64, spread float64) int64 {
	return max(1, int64(float64(n)*(1+spread*(2*p.rng.Float64()-1))))
}

// pick draws one of the given values.
func pick[T any](p *process, from ...T) T { return from[p.rng.IntN(len(from))] }
