//go:build gpu

package caching_test

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// addPTX sets word i of z to that of x plus that of y plus v, for i below n.
const addPTX = `
.version 6.4
.target sm_75
.address_size 64

.visible .entry add_words(.param .u64 z, .param .u64 x, .param .u64 y, .param .u32 v, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<11>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [z];
	ld.param.u64 %rd2, [x];
	ld.param.u64 %rd3, [y];
	ld.param.u32 %r1, [v];
	ld.param.u32 %r2, [n];
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %ntid.x;
	mov.u32 %r5, %tid.x;
	mad.lo.s32 %r6, %r3, %r4, %r5;
	setp.ge.u32 %p1, %r6, %r2;
	@%p1 bra done;
	cvta.to.global.u64 %rd1, %rd1;
	cvta.to.global.u64 %rd2, %rd2;
	cvta.to.global.u64 %rd3, %rd3;
	mul.wide.u32 %rd4, %r6, 4;
	add.s64 %rd5, %rd1, %rd4;
	add.s64 %rd6, %rd2, %rd4;
	add.s64 %rd7, %rd3, %rd4;
	ld.global.u32 %r7, [%rd6];
	ld.global.u32 %r8, [%rd7];
	add.s32 %r9, %r7, %r8;
	add.s32 %r10, %r9, %r1;
	st.global.u32 [%rd5], %r10;
done:
	ret;
}
`

func newGPUGraphBench(t *testing.T) *graphBench {
	d, err := driver.Open("cuda:0")
	if err != nil {
		t.Fatal(err)
	}
	b := newGraphBench(t, d, nil)
	m, err := b.dev.Kernels().Load([]byte(addPTX))
	b.ok(err)
	t.Cleanup(func() { b.ok(m.Close()) })
	b.add, err = m.Function("add_words")
	b.ok(err)
	return b
}

// allGivenBack fails the test unless the device has every block back.
func (b *graphBench) allGivenBack() {
	b.t.Helper()
	testkit.Equal(b.t, "blocks given back to the device", b.dev.CallsOf(intercept.Free), b.dev.CallsOf(intercept.Alloc))
}

// A graph finds its memory as at its capture, however much is allocated, written, freed and released in between.
func TestGPUGraphReplaysAmongAllocations(t *testing.T) {
	b := newGPUGraphBench(t)
	main, side, outside := b.s[0], b.s[1], b.s[2]
	const size = 3 << 20
	zero := b.zeros(size)
	id := mem.PoolID{1, 0}
	var result, copied mem.Block
	g := b.capture(id, main, func() {
		result, copied = b.chain(main, zero, 1), b.alloc(main, size)
		temporary := b.alloc(main, size)
		b.ok(main.Fill(temporary.Ptr, 77, size))
		b.follow(side, main)
		b.ok(side.Copy(copied.Ptr, temporary.Ptr, size/2))
		b.Free(temporary, side)
		b.ok(main.Copy(copied.Ptr+size/2, result.Ptr, size/2))
		b.follow(main, side)
	})
	const seed = 37
	r := rand.New(rand.NewPCG(seed, 0))
	var live []mem.Block
	got := make([]byte, size)
	for round := range 100 {
		for range 8 {
			block := b.alloc(outside, 1+r.Int64N(16<<20))
			b.ok(outside.Fill(block.Ptr, 0xEE, block.Size))
			live = append(live, block)
		}
		b.ok(main.Fill(result.Ptr, 0, size))
		b.ok(main.Fill(copied.Ptr, 0, size))
		b.ok(g.Launch(main))
		for len(live) > 20 {
			i := r.IntN(len(live))
			b.Free(live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		if round%10 == 9 {
			b.ok(b.EmptyCache())
		}
		b.holds(main, result, 94)
		b.ok(main.CopyOut(got, copied.Ptr))
		for i, c := range got {
			if want := [2]byte{77, 94}[i/(size/2)]; c != want {
				t.Fatalf("seed %d, replay %d: byte %d of what two streams wrote is %d, want %d", seed, round, i, c, want)
			}
		}
	}
	b.sync(outside)
	b.finish([]driver.Graph{g}, []mem.PoolID{id}, append(live, zero, result, copied)...)
	b.allGivenBack()
}

// Graphs with pools of their own are right when they are replayed at once, and with one pool when one after the other.
func TestGPUGraphsReplayedAtOnce(t *testing.T) {
	b := newGPUGraphBench(t)
	const size = 4_000_256 // 94 and 156 are what PyTorch's test expects of a million words
	zero, delay := b.zeros(size), b.alloc(b.s[0], 1<<30)
	for _, ids := range [][]mem.PoolID{{{1, 0}, {2, 0}}, {{3, 0}, {3, 0}}} {
		var graphs []driver.Graph
		var results []mem.Block
		for i, id := range ids {
			graphs = append(graphs, b.capture(id, b.s[0], func() {
				results = append(results, b.chain(b.s[0], zero, byte(1+i)))
			}))
		}
		for range 50 {
			b.ok(b.s[0].Fill(delay.Ptr, 1, delay.Size)) // so that both begin together
			b.follow(b.s[1], b.s[0])
			b.ok(graphs[0].Launch(b.s[0]))
			if ids[0] == ids[1] {
				b.follow(b.s[1], b.s[0])
			}
			b.ok(graphs[1].Launch(b.s[1]))
			b.holds(b.s[0], results[0], 94)
			b.holds(b.s[1], results[1], 156)
			b.follow(b.s[0], b.s[1])
		}
		for i, id := range ids {
			b.ok(graphs[i].Close())
			b.Free(results[i])
			b.ReleasePool(id)
		}
	}
	b.finish(nil, nil, zero, delay)
	b.allGivenBack()
}

// Blocks that several streams used are allocated again within the capture, once all have joined: seen by address, and
// right in every launch. The blocks are large enough that kernels of several streams run at once.
func TestGPUReuseInCapture(t *testing.T) {
	const size, launches = 3 << 20, 100
	for name, reclaim := range map[string]func(*graphBench){
		"2 streams": func(b *graphBench) { b.reclaim2(size, launches) },
		"4 streams": func(b *graphBench) { b.reclaim4(size, launches) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newGPUGraphBench(t)
			b.reuse()
			reclaim(b)
			b.allGivenBack()
		})
	}
}

// Graphs captured from a restored state, over pools of the device and with an upstream, are right in every launch.
func TestGPUGraphsOverUserPools(t *testing.T) {
	b := newGPUGraphBench(t)
	b.graphsOverPools(3<<20, 100)
	b.allGivenBack()
}
