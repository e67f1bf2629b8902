package caching_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// Captured graphs with memory from private pools, on the devices whose kernels are Go functions: the simulator finds
// accesses that the program does not order, and on the host streams do run at the same time.

// A graphBench is an allocator on a device that counts calls, with streams that can capture.
type graphBench struct {
	*caching.Allocator
	t   *testing.T
	dev *fault.Device
	sim *sim.Device     // nil on other devices
	add driver.Function // what sum launches on devices that run compiled code
	s   [4]driver.Stream

	size int64 // of the blocks that sum, chain, zeros and holds are about: a block may be longer than was asked for
}

// endsEmpty ends a pool after a capture that failed, and checks that nothing is left of it.
func (b *graphBench) endsEmpty(id mem.PoolID) {
	b.t.Helper()
	b.EndAllocateToPool(id)
	b.ReleasePool(id)
	b.ok(b.EmptyCache())
	testkit.Equal(b.t, "reserved after a capture that failed", b.Stats().ReservedBytes.All.Current, 0)
	testkit.Equal(b.t, "active blocks", b.Stats().Active.All.Current, 0)
}

func onGraphDevices(t *testing.T, test func(*graphBench)) {
	t.Run("sim", func(t *testing.T) {
		d := sim.New(sim.Options{Total: gib})
		test(newGraphBench(t, d, d))
	})
	t.Run("host", func(t *testing.T) {
		d, err := host.Open(host.Options{Total: gib})
		if err != nil {
			t.Fatal(err)
		}
		test(newGraphBench(t, d, nil))
	})
}

func newGraphBench(t *testing.T, d driver.Device, simulated *sim.Device) *graphBench {
	b := &graphBench{t: t, dev: fault.Wrap(d), sim: simulated}
	t.Cleanup(func() { b.ok(b.dev.Close()) })
	b.Allocator = newAllocator(t, b.dev, "")
	for i := range b.s {
		s, err := b.dev.NewStream(driver.StreamOptions{})
		b.ok(err)
		b.s[i] = s
	}
	return b
}

func (b *graphBench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *graphBench) alloc(s driver.Stream, size int64) mem.Block {
	b.t.Helper()
	block, err := b.Alloc(s, size)
	b.ok(err)
	return block
}

// hold delays all work queued on s from now on until release, on devices whose kernels are Go functions.
func (b *graphBench) hold(s driver.Stream) (release func()) {
	b.t.Helper()
	if b.sim != nil {
		b.sim.Hold(s.ID())
		return func() { b.sim.Resume(s.ID()) }
	}
	gate := make(chan struct{})
	b.ok(b.dev.Kernels().Launch(s, driver.Kernel{Func: func(driver.Memory) error { <-gate; return nil }}))
	return func() { close(gate) }
}

// follow makes s wait for all work queued on other so far.
func (b *graphBench) follow(s, other driver.Stream) {
	b.t.Helper()
	m, err := other.Mark()
	b.ok(err)
	b.ok(s.WaitFor(other, m))
}

func (b *graphBench) sync(streams ...driver.Stream) {
	b.t.Helper()
	for _, s := range streams {
		b.ok(s.Sync(context.Background()))
	}
}

// capture captures the calls of work on s and on the streams that it draws in, with memory from a pool, as PyTorch
// does.
func (b *graphBench) capture(id mem.PoolID, s driver.Stream, work func()) driver.Graph {
	b.t.Helper()
	graphs := b.dev.Graphs()
	b.BeginAllocateToPool(id, func(s driver.Stream) bool {
		yes, err := graphs.Capturing(s)
		return yes && err == nil
	})
	b.ok(graphs.Begin(s))
	work()
	g, err := graphs.End(s)
	b.EndAllocateToPool(id)
	b.ok(err)
	return g
}

// holds fails the test unless all bytes of a block have the value, read on s.
func (b *graphBench) holds(s driver.Stream, block mem.Block, value byte) {
	b.t.Helper()
	got := make([]byte, b.size)
	b.ok(s.CopyOut(got, block.Ptr))
	if !bytes.Equal(got, bytes.Repeat([]byte{value}, len(got))) {
		b.t.Fatalf("the block at %#x begins with %v, want %d", block.Ptr, got[:4], value)
	}
}

// finish gives everything back, and nothing must be left.
func (b *graphBench) finish(graphs []driver.Graph, pools []mem.PoolID, blocks ...mem.Block) {
	b.t.Helper()
	for _, g := range graphs {
		b.ok(g.Close())
	}
	for _, block := range blocks {
		b.Free(block)
	}
	for _, id := range pools {
		b.ReleasePool(id)
	}
	b.ok(b.EmptyCache())
	testkit.Equal(b.t, "reserved in the end", b.Stats().ReservedBytes.All.Current, 0)
	b.ok(b.Close())
}

// sum queues z = x + y + v, byte by byte. No byte of what the tests add overflows, so that compiled code may add words.
func (b *graphBench) sum(s driver.Stream, z, x, y mem.Block, v byte) {
	b.t.Helper()
	b.ok(b.dev.Kernels().Launch(s, driver.Kernel{
		Name:   "sum",
		Reads:  []driver.Range{{Ptr: x.Ptr, Size: b.size}, {Ptr: y.Ptr, Size: b.size}},
		Writes: []driver.Range{{Ptr: z.Ptr, Size: b.size}},
		Func: func(m driver.Memory) error {
			p, q := make([]byte, b.size), make([]byte, b.size)
			if err := errors.Join(m.Load(p, x.Ptr), m.Load(q, y.Ptr)); err != nil {
				return err
			}
			for i := range p {
				p[i] += q[i] + v
			}
			return m.Store(z.Ptr, p)
		},
		Code: b.add, Grid: [3]uint32{uint32((b.size/4 + 255) / 256)}, Block: [3]uint32{256},
		Args: []driver.Arg{
			driver.PointerArg(z.Ptr), driver.PointerArg(x.Ptr), driver.PointerArg(y.Ptr),
			driver.Uint32Arg(uint32(v) * 0x01010101), driver.Uint32Arg(uint32(b.size / 4)),
		},
	}))
}

// chain queues five rounds of b = (b+v) + (b+v) from b = 1, each with blocks of its own that are freed as soon as the
// work is queued, and returns the last b: 94 if v is 1, 156 if it is 2.
func (b *graphBench) chain(s driver.Stream, zero mem.Block, v byte) mem.Block {
	b.t.Helper()
	one := b.alloc(s, b.size)
	b.ok(s.Fill(one.Ptr, 1, b.size))
	for range 5 {
		x, y, z := b.alloc(s, b.size), b.alloc(s, b.size), b.alloc(s, b.size)
		b.sum(s, x, one, zero, v)
		b.sum(s, y, one, zero, v)
		b.sum(s, z, x, y, 0)
		b.Free(x)
		b.Free(y)
		b.Free(one)
		one = z
	}
	return one
}

// zeros is a block of zeros outside of every pool, with nothing queued. It sets b.size.
func (b *graphBench) zeros(size int64) mem.Block {
	b.t.Helper()
	b.size = size
	block := b.alloc(b.s[0], size)
	b.ok(b.s[0].Fill(block.Ptr, 0, size))
	b.sync(b.s[0])
	return block
}

func TestBehaviour33_CapturesAskForNoMarks(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		main, side, drawn, other := b.s[0], b.s[1], b.s[2], b.s[3]
		before := b.alloc(main, 512)
		release := b.hold(side)
		b.ok(side.Fill(before.Ptr, 1, 512))
		b.Free(before, side)

		id := mem.PoolID{1, 0}
		var captured mem.Block
		g := b.capture(id, main, func() {
			asked := b.dev.CallsOf(intercept.Reached) + b.dev.CallsOf(intercept.Sync)
			captured = b.alloc(main, 512)
			b.ok(main.Fill(captured.Ptr, 2, 512))
			b.follow(drawn, main)
			b.ok(drawn.Fill(captured.Ptr, 3, 512))
			marked := b.dev.CallsOf(intercept.Mark)
			b.Free(captured, drawn)
			for _, s := range []driver.Stream{main, drawn, other} {
				if block := b.alloc(s, 512); block.Ptr == before.Ptr || block.Ptr == captured.Ptr {
					t.Errorf("stream %d got a block that is in use", s.ID())
				} else {
					b.Free(block)
				}
			}
			b.ProcessPending()
			testkit.Equal(t, "marks taken by the allocator during the capture", b.dev.CallsOf(intercept.Mark), marked)
			testkit.Equal(t, "marks asked for during the capture", b.dev.CallsOf(intercept.Reached)+b.dev.CallsOf(intercept.Sync), asked)
			b.follow(main, drawn)
		})
		b.ProcessPending()
		testkit.Equal(t, "active blocks while the other stream is busy", b.Stats().Active.All.Current, 1)
		release()
		b.sync(side)
		again := b.alloc(main, 512)
		testkit.Equal(t, "the block from before the capture", again.Ptr, before.Ptr)
		b.Free(again)
		b.sync(drawn)
		next := b.capture(id, main, func() {
			again := b.alloc(main, 512)
			testkit.Equal(t, "the block of the capture, in the next one", again.Ptr, captured.Ptr)
			b.Free(again)
		})
		testkit.Equal(t, "active blocks", b.Stats().Active.All.Current, 0)
		b.finish([]driver.Graph{g, next}, []mem.PoolID{id, id})
	})
}

// Unless it is told otherwise (reuse_test.go), the allocator does not look into the graph, nor does PyTorch: it waits
// for the capture to end, which is later than any join.
func TestABlockUsedOnOtherStreamsInACaptureWaitsForItsEnd(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		for i, streams := range []int{2, 4} {
			id := mem.PoolID{uint64(i + 1), 0}
			main, drawn := b.s[0], b.s[1:streams]
			var used, result mem.Block
			var others []mem.Block
			g := b.capture(id, main, func() {
				used, result = b.alloc(main, 4096), b.alloc(main, 4096)
				b.ok(main.Fill(used.Ptr, 7, used.Size))
				for n, s := range drawn {
					b.follow(s, main)
					b.ok(s.Copy(result.Ptr+driver.Pointer(1024*n), used.Ptr, 1024))
				}
				b.ok(main.Copy(result.Ptr+3072, used.Ptr, 1024))
				b.Free(used, drawn...)
				fresh := func(when string) {
					block := b.alloc(main, 4096)
					if block.Ptr == used.Ptr {
						t.Errorf("%d streams, %s: the block was allocated again", streams, when)
					}
					b.ok(main.Fill(block.Ptr, 99, block.Size)) // spoils the result if it is the same memory
					others = append(others, block)
				}
				fresh("before a stream has joined")
				for n, s := range drawn {
					if n == len(drawn)-1 {
						fresh("before the last stream has joined")
					}
					b.follow(main, s)
				}
			})
			for range 3 {
				b.ok(main.Fill(result.Ptr, 0, result.Size))
				b.ok(g.Launch(main)) // on the simulator it fails if two branches of the graph race
				got := make([]byte, 4096)
				b.ok(main.CopyOut(got, result.Ptr))
				for n := range 4 {
					if c := got[1024*n]; c != 7 && (n < len(drawn) || n == 3) {
						t.Errorf("%d streams: part %d of the result is %d", streams, n, c)
					}
				}
			}
			b.ProcessPending()
			again := b.capture(id, main, func() {
				block := b.alloc(main, 4096)
				testkit.Equal(t, fmt.Sprintf("%d streams: the block in the next capture", streams), block.Ptr, used.Ptr)
				b.Free(block)
			})
			for _, graph := range []driver.Graph{g, again} {
				b.ok(graph.Close())
				b.ReleasePool(id)
			}
			for _, block := range append(others, result) {
				b.Free(block)
			}
		}
		b.finish(nil, nil)
	})
}

func TestBehaviour36_SharingAPoolSaves2MiB(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		zero := b.zeros(512)
		before := b.Stats().ReservedBytes.All.Current
		reserved := func(first, second mem.PoolID) int64 {
			var graphs []driver.Graph
			var results []mem.Block
			for i, id := range []mem.PoolID{first, second} {
				graphs = append(graphs, b.capture(id, b.s[0], func() {
					results = append(results, b.chain(b.s[0], zero, byte(1+i)))
				}))
			}
			reserved := b.Stats().ReservedBytes.All.Current - before
			for range 3 { // one after the other, graphs that share a pool do not disturb each other
				b.ok(graphs[0].Launch(b.s[0]))
				b.ok(graphs[1].Launch(b.s[0]))
				b.holds(b.s[0], results[0], 94)
				b.holds(b.s[0], results[1], 156)
			}
			for i, id := range []mem.PoolID{first, second} {
				b.ok(graphs[i].Close())
				b.Free(results[i])
				b.ReleasePool(id)
			}
			b.ok(b.EmptyCache())
			testkit.Equal(t, "reserved when the graphs are gone", b.Stats().ReservedBytes.All.Current, before)
			return reserved
		}
		apart, shared := reserved(mem.PoolID{1, 0}, mem.PoolID{2, 0}), reserved(mem.PoolID{3, 0}, mem.PoolID{3, 0})
		testkit.Equal(t, "saved", apart-shared, 2*mib)
		b.finish(nil, nil, zero)
	})
}

func TestBehaviour37_ReplayedAtOnce(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		zero := b.zeros(100_000)
		for _, shared := range []bool{false, true} {
			ids := []mem.PoolID{{1, 0}, {2, 0}}
			if shared {
				ids = []mem.PoolID{{3, 0}, {3, 0}}
			}
			var graphs []driver.Graph
			var results []mem.Block
			for i, id := range ids {
				graphs = append(graphs, b.capture(id, b.s[0], func() {
					results = append(results, b.chain(b.s[0], zero, byte(1+i)))
				}))
			}
			if shared {
				b.sharedReplay(graphs)
			} else {
				for range 20 {
					release := b.hold(b.s[0])
					b.ok(graphs[0].Launch(b.s[0]))
					b.ok(graphs[1].Launch(b.s[1]))
					release()
					b.holds(b.s[0], results[0], 94)
					b.holds(b.s[1], results[1], 156)
				}
			}
			for i, id := range ids {
				b.ok(graphs[i].Close())
				b.Free(results[i])
				b.ReleasePool(id)
			}
		}
		b.finish(nil, nil, zero)
	})
}

// sharedReplay launches two graphs of one pool at the same time. The result is undefined, so it runs only on the
// simulator, which detects the race.
func (b *graphBench) sharedReplay(graphs []driver.Graph) {
	b.t.Helper()
	if b.sim == nil {
		return
	}
	b.ok(graphs[0].Launch(b.s[0]))
	var race *sim.RaceError
	if err := graphs[1].Launch(b.s[1]); !errors.As(err, &race) {
		b.t.Errorf("two graphs of one pool, launched at once: %v, want a race", err)
	}
	b.follow(b.s[1], b.s[0])
	b.ok(graphs[1].Launch(b.s[1]))
	b.sync(b.s[1])
}

func TestBehaviour38_CaptureCloseCapture(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		err := b.dev.Graphs().Begin(b.dev.DefaultStream())
		var named *driver.Error
		if !errors.Is(err, driver.ErrCapturing) || !errors.As(err, &named) || !strings.Contains(err.Error(), "default stream") {
			t.Errorf("Begin on the default stream: %v, want ErrCapturing that names it", err)
		}
		zero := b.zeros(512)
		for round := range byte(3) {
			id := mem.PoolID{1, 0}
			var result mem.Block
			g := b.capture(id, b.s[0], func() { result = b.chain(b.s[0], zero, 1+round%2) })
			for range 2 {
				b.ok(g.Launch(b.s[0]))
				b.holds(b.s[0], result, [2]byte{94, 156}[round%2])
			}
			b.ok(g.Close())
			b.Free(result)
			b.ReleasePool(id)
		}
		b.finish(nil, nil, zero)
	})
}

// A capture that fails leaves its pool as any other does: PyTorch lost it (issues 180395, 190348).
func TestAFailedCaptureLosesNoPool(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		main, side := b.s[0], b.s[1]
		id, graphs := mem.PoolID{1, 0}, b.dev.Graphs()
		for range 3 {
			b.BeginAllocateToPool(id, func(s driver.Stream) bool { return s == main })
			b.ok(graphs.Begin(main))
			block := b.alloc(main, mib)
			b.follow(side, main)
			b.ok(side.Fill(block.Ptr, 1, mib))
			b.Free(block, side)
			if _, err := graphs.End(main); err == nil {
				t.Error("a capture whose streams did not join succeeded")
			}
			b.endsEmpty(id)
		}
		b.finish(nil, nil)
	})
}
