package workloads

import (
	"flag"
	"reflect"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/trace"
)

var seeds = flag.Uint64("seeds", 1, "programs of each workload that are looked at")

// each runs f on every program that is to be looked at.
func each(t *testing.T, f func(t *testing.T, w Workload, seed uint64, p *trace.Program)) {
	t.Helper()
	for _, w := range All() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= *seeds; seed++ {
				t.Logf("seed %d", seed)
				f(t, w, seed, w.Program(seed))
			}
		})
	}
}

func TestProgramsHaveThePromisedShape(t *testing.T) {
	const gib = 1 << 30
	streams := map[string]int{"prefetch": 2, "sharded": 2}
	each(t, func(t *testing.T, w Workload, seed uint64, p *trace.Program) {
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		s := p.Stats()
		if s.Allocs < 20_000 || s.Allocs > 35_000 {
			t.Errorf("%d allocations", s.Allocs)
		}
		if s.PeakBytes < 2*gib || s.PeakBytes > 14*gib {
			t.Errorf("%d bytes at the peak", s.PeakBytes)
		}
		if want := max(1, streams[w.Name]); p.Streams != want {
			t.Errorf("%d streams, want %d", p.Streams, want)
		}
		if (p.Streams > 1) != (s.DeferredFrees > 0) || s.PendingBlocks > 0 {
			t.Errorf("%d streams, %d deferred frees, %d pending at the end", p.Streams, s.DeferredFrees, s.PendingBlocks)
		}
		if p.Streams > 1 && s.Streams[1].Allocs == 0 {
			t.Error("nothing is asked for on the second stream")
		}
	})
}

func TestASeedIsAProgram(t *testing.T) {
	each(t, func(t *testing.T, w Workload, seed uint64, p *trace.Program) {
		if !reflect.DeepEqual(p, w.Program(seed)) {
			t.Error("the same seed made another program")
		}
		if reflect.DeepEqual(p.Ops, w.Program(seed+1).Ops) {
			t.Error("another seed made the same program")
		}
	})
}

// lows are how many blocks there are at the least, in each of n equal stretches of a program.
func lows(p *trace.Program, n int) []int {
	lows := make([]int, n)
	live := 0
	for i, op := range p.Ops {
		switch op.Kind {
		case trace.OpAlloc:
			live++
		case trace.OpFree, trace.OpFreeDeferred:
			live--
		}
		if part := i * n / len(p.Ops); i == 0 || part != (i-1)*n/len(p.Ops) {
			lows[part] = live
		} else {
			lows[part] = min(lows[part], live)
		}
	}
	return lows
}

// A model of a process that forgot to free something would grow with every step.
func TestStepsLeaveNothingBehind(t *testing.T) {
	each(t, func(t *testing.T, w Workload, seed uint64, p *trace.Program) {
		if w.Name == "serving" || w.Name == "serving-blocks" {
			// At the end of these, the live memory is caches of requests in progress, weights, and the memory of
			// graphs.
			const lasting = 16*9 + 3 + 3
			for _, op := range p.Ops[:lasting] {
				if op.Kind != trace.OpAlloc {
					t.Fatal("the weights are not asked for first")
				}
			}
			var held int64
			for _, size := range liveSizes(p)[lasting:] {
				held += size
				if blocks := w.Name == "serving-blocks"; blocks && size != 1<<20 || !blocks && size%(128*2048) != 0 {
					t.Fatalf("a block of %d bytes is left, which is no cache", size)
				}
			}
			// 64 Ki tokens of 64 KiB each, plus the reserve for more.
			if held > 9<<29 {
				t.Errorf("%d bytes of caches are left", held)
			}
			return
		}
		l := lows(p, 4)
		if l[3] > l[1] {
			t.Errorf("%v blocks are allocated at the least in each quarter, want no more in the last than in the second", l)
		}
	})
}

// liveSizes are the sizes of blocks that are not freed, in the order of their requests.
func liveSizes(p *trace.Program) []int64 {
	sizes := make([]int64, p.Blocks)
	for _, op := range p.Ops {
		switch op.Kind {
		case trace.OpAlloc:
			sizes[op.Block] = op.Size
		case trace.OpFree, trace.OpFreeDeferred:
			sizes[op.Block] = -1
		}
	}
	return slices.DeleteFunc(sizes, func(size int64) bool { return size < 0 })
}

func TestNoTwoStepsAreAlike(t *testing.T) {
	least := map[string]int{
		"checkpoint": 100, "decode": 120, "gnn": 1000, "moe": 500, "prefetch": 1000, "serving": 250, "serving-blocks": 200, "sharded": 80,
	}
	each(t, func(t *testing.T, w Workload, seed uint64, p *trace.Program) {
		sizes := map[int64]bool{}
		for _, op := range p.Ops {
			if op.Kind == trace.OpAlloc {
				sizes[op.Size] = true
			}
		}
		if len(sizes) < least[w.Name] {
			t.Errorf("%d sizes, want at least %d", len(sizes), least[w.Name])
		}
	})
}

// Activation checkpointing keeps one tensor of each layer: without it the same network needs more, for the same tokens.
func TestCheckpointsSaveMemory(t *testing.T) {
	peak := func(remembers bool) int64 {
		p := newProcess(1, 1)
		m := newTransformer(p, 256, 4, 1000, 1, 8, func(int) (int64, int64) { return 0, 0 })
		tape := &tape{p: p, n: &m.network, records: true}
		const tokens = 8192
		m.embed(tape, tokens)
		for i := range m.layers {
			if remembers {
				m.remembered(tape, i, tokens, func(*transformer, int, bool) func() { return func() {} })
			} else {
				m.attend(tape, &m.layers[i], tokens)
				m.think(tape, &m.layers[i], tokens)
			}
		}
		m.learn(tape, tokens)
		program := p.end()
		if err := program.Check(); err != nil {
			t.Fatal(err)
		}
		return program.Stats().PeakBytes
	}
	if with, without := peak(true), peak(false); with > without/2 {
		t.Errorf("%d bytes with checkpoints, %d without", with, without)
	}
}

func TestExpertsTakeNoMoreThanTheirCapacity(t *testing.T) {
	p := newProcess(1, 1)
	liking := make([]float64, 16)
	liking[3] = 4 // everybody's favourite
	const tokens = 1000
	if routed := p.route(slices.Clone(liking), tokens, 0); slices.Max(routed) <= 500 {
		t.Errorf("without a capacity the favourite takes %d tokens of %d", slices.Max(routed), tokens)
	}
	if routed := p.route(liking, tokens, 1.25); slices.Max(routed) != 156 { // 1.25 * 2 * 1000 / 16
		t.Errorf("with a capacity of 1.25 the favourite takes %d tokens, want 156", slices.Max(routed))
	}
}
