package tensor_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
)

// placeOnArena returns a place on a device whose allocator moves blocks.
func placeOnArena(t testing.TB, dev driver.Device, size int64) (*tensor.Place, *arena.Arena) {
	t.Helper()
	a, err := arena.New(dev, arena.Config{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	b := host.New(dev, host.Options{})
	p := tensor.NewPlace(tensor.Config{Device: dev, Allocator: layer.NewLeakTracker(a, layer.LeakTrackerOptions{}), Backend: b, Sites: true})
	t.Cleanup(func() {
		for _, err := range []error{p.Close(), b.Close(), a.Close(), dev.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return p, a
}

func hostDevice(t testing.TB) driver.Device {
	t.Helper()
	dev, err := driver.Open("host:total=256MiB")
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// TestTensorsSurviveCompaction runs random work on three streams while the memory moves, by explicit calls and because
// requests do not fit, and compares the contents with a model. The simulated device reports unordered work.
func TestTensorsSurviveCompaction(t *testing.T) {
	for name, open := range map[string]func(seed uint64) driver.Device{
		"sim":  func(seed uint64) driver.Device { return sim.New(sim.Options{Seed: seed, Total: 64 << 20}) },
		"host": func(uint64) driver.Device { return hostDevice(t) },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				survive(t, open(seed), rand.New(rand.NewPCG(seed, 5)))
			}
		})
	}
}

// A modelled tensor is a tensor with its expected contents.
type modelled struct {
	*tensor.Tensor
	want []byte
}

func survive(t *testing.T, dev driver.Device, r *rand.Rand) {
	t.Helper()
	const size = 1 << 20
	p, a := placeOnArena(t, dev, size)
	places := []*tensor.Place{p, p.On(drivertest.NewStream(t, dev)), p.On(drivertest.NewStream(t, dev))}
	var live []modelled
	held := map[*tensor.Tensor]bool{}
	release := func(i int) {
		if held[live[i].Tensor] {
			live[i].Unpin()
			delete(held, live[i].Tensor)
		}
		live[i].Release()
		live = slices.Delete(live, i, i+1)
	}
	for range 120 {
		at := places[r.IntN(len(places))]
		i := -1
		if len(live) > 0 {
			i = r.IntN(len(live))
		}
		switch kind := r.IntN(12); {
		case kind < 4 || i < 0:
			want := make([]byte, 1+r.IntN(size/12))
			for k := range want {
				want[k] = byte(r.Uint32())
			}
			x, err := tensor.FromSlice(at, want)
			for err != nil && len(live) > 0 { // there is a share that fits
				release(r.IntN(len(live)))
				x, err = tensor.FromSlice(at, want)
			}
			testkit.Must(t, err)
			live = append(live, modelled{x, want})
		case kind == 4:
			release(i)
		case kind == 5:
			testkit.Must(t, a.Compact(at.Stream()))
		case kind == 6:
			v := byte(r.Uint32())
			testkit.Must(t, live[i].Fill(at, v))
			live[i].want = bytes.Repeat([]byte{v}, len(live[i].want))
		case kind == 7: // a part of one becomes a part of another, perhaps the same
			from := live[r.IntN(len(live))]
			n := 1 + r.IntN(min(len(from.want), len(live[i].want)))
			src, dst := r.IntN(len(from.want)-n+1), r.IntN(len(live[i].want)-n+1)
			copied := slices.Clone(from.want[src : src+n])
			err := narrow(t, live[i].Tensor, dst, n).CopyFrom(at, narrow(t, from.Tensor, src, n))
			if errors.Is(err, mem.ErrNoMemory) {
				continue // parts that overlap are copied by way of a third
			}
			testkit.Must(t, err)
			copy(live[i].want[dst:], copied)
		case kind == 8 && len(held) < 3:
			if x := live[i].Tensor; !held[x] {
				x.Pin()
				held[x] = true
			}
		case kind == 9:
			live[i].Pointer() // from now on it stays where it is
		default:
			compare(t, live[i])
		}
	}
	for len(live) > 0 {
		compare(t, live[0])
		release(0)
	}
}

func narrow(t *testing.T, x *tensor.Tensor, start, n int) *tensor.Tensor {
	t.Helper()
	v, err := x.Narrow(0, start, n)
	testkit.Must(t, err)
	return v
}

func compare(t *testing.T, x modelled) {
	t.Helper()
	got, err := tensor.ToSlice[uint8](x.Tensor)
	testkit.Must(t, err)
	if !bytes.Equal(got, x.want) {
		t.Fatalf("%v has changed", x.Brief())
	}
}

// TestAddressesGivenAwayStay asks for an address in each of the ways that there are, and has everything else moved.
func TestAddressesGivenAwayStay(t *testing.T) {
	for name, take := range map[string]func(x *tensor.Tensor) func(){
		"Tensor.Pointer":  func(x *tensor.Tensor) func() { x.Pointer(); return func() {} },
		"Storage.Pointer": func(x *tensor.Tensor) func() { x.Storage().Pointer(); return func() {} },
		"Storage.Bytes":   func(x *tensor.Tensor) func() { x.Storage().Bytes(); return func() {} },
		"Data": func(x *tensor.Tensor) func() {
			b, err := tensor.Data[uint8](x)
			testkit.Must(t, err)
			return func() {
				if b[0] != 7 {
					t.Errorf("Data shows %d, want 7", b[0])
				}
			}
		},
		"Pin": func(x *tensor.Tensor) func() { x.Pin(); return x.Unpin },
	} {
		t.Run(name, func(t *testing.T) {
			p, a := placeOnArena(t, hostDevice(t), 1<<20)
			full := func(v byte) *tensor.Tensor {
				x, err := tensor.Full(p, dtype.Uint8, v, 4096)
				testkit.Must(t, err)
				return x
			}
			below, x, above, y := full(6), full(7), full(6), full(8)
			after := take(x)
			before, moving := x.Array().Ptr, y.Array().Ptr
			below.Release()
			above.Release()
			testkit.Must(t, a.Compact(p.Stream()))
			if got := x.Array().Ptr; got != before {
				t.Errorf("it moved from %#x to %#x", uint64(before), uint64(got))
			}
			if got := y.Array().Ptr; got == moving {
				t.Error("nothing moved at all")
			}
			after()
			compare(t, modelled{x, bytes.Repeat([]byte{7}, 4096)})
			compare(t, modelled{y, bytes.Repeat([]byte{8}, 4096)})
			x.Release()
			y.Release()
		})
	}
}

// TestLetGoLetsMove moves a tensor that was held, once it is not, and refuses to let go once more.
func TestLetGoLetsMove(t *testing.T) {
	p, a := placeOnArena(t, hostDevice(t), 1<<20)
	hole, err := tensor.Empty(p, dtype.Uint8, 4096)
	testkit.Must(t, err)
	x, err := tensor.Full(p, dtype.Uint8, 7, 4096)
	testkit.Must(t, err)
	defer x.Release()
	before := x.Array().Ptr
	hole.Release()
	x.Pin()
	narrow(t, x, 0, 4096).Pin()
	x.Unpin()
	testkit.Must(t, a.Compact(p.Stream()))
	if x.Array().Ptr != before {
		t.Error("a tensor moved that was held twice and let go once")
	}
	x.Unpin()
	testkit.Must(t, a.Compact(p.Stream()))
	if x.Array().Ptr == before {
		t.Error("a tensor that is not pinned did not move")
	}
	testkit.WantPanic(t, "Unpin of a tensor that is not pinned", "", x.Unpin)
}

// TestGoroutinesOverMovingMemory has several goroutines work on tensors of their own while others have all of them
// moved.
func TestGoroutinesOverMovingMemory(t *testing.T) {
	dev := hostDevice(t)
	p, a := placeOnArena(t, dev, 1<<20)
	var workers sync.WaitGroup
	for worker := range 4 {
		at := p.On(drivertest.NewStream(t, dev))
		workers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 6))
			for range 60 {
				v := byte(r.Uint32())
				x, err := tensor.Full(at, dtype.Uint8, v, 1+r.IntN(50_000))
				if err != nil {
					t.Error(err)
					return
				}
				y, err := x.Clone(at)
				if err != nil {
					t.Error(err)
					return
				}
				x.Release()
				got, err := tensor.ToSlice[uint8](y)
				if err != nil || slices.ContainsFunc(got, func(b byte) bool { return b != v }) {
					t.Errorf("worker %d: contents differ (%v)", worker, err)
				}
				y.Release()
			}
		})
	}
	mover := drivertest.NewStream(t, dev)
	workers.Go(func() {
		for range 60 {
			if err := a.Compact(mover); err != nil {
				t.Error(err)
				return
			}
		}
	})
	workers.Wait()
}

// TestMovesWaitForOtherStreams moves a tensor while a stream that did not allocate it still reads and writes it, and
// overwrites its old location at once. The simulated device reports unordered work.
func TestMovesWaitForOtherStreams(t *testing.T) {
	for seed := range uint64(20) {
		dev := sim.New(sim.Options{Seed: seed, Total: 64 << 20})
		p, a := placeOnArena(t, dev, 1<<20)
		other := p.On(drivertest.NewStream(t, dev))
		below, err := tensor.Full(p, dtype.Uint8, 6, 4096)
		testkit.Must(t, err)
		x, err := tensor.Full(p, dtype.Uint8, 7, 4096)
		testkit.Must(t, err)
		below.Release()
		testkit.Must(t, x.Fill(other, 8))
		testkit.Must(t, a.Compact(p.Stream()))
		testkit.Must(t, x.Fill(other, 9))
		next, err := tensor.Full(p, dtype.Uint8, 5, 8192) // over what x left
		testkit.Must(t, err)
		compare(t, modelled{x, bytes.Repeat([]byte{9}, 4096)})
		compare(t, modelled{next, bytes.Repeat([]byte{5}, 8192)})
		x.Release()
		next.Release()
	}
}

// TestReleaseBlockNamesTheMover wants the stream that moved a block among those that may still use it.
func TestReleaseBlockNamesTheMover(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	p, a := placeOnArena(t, dev, 1<<20)
	mover := drivertest.NewStream(t, dev)
	below, err := tensor.Full(p, dtype.Uint8, 6, 4096)
	testkit.Must(t, err)
	x, err := tensor.Full(p, dtype.Uint8, 7, 4096)
	testkit.Must(t, err)
	below.Release()
	testkit.Must(t, a.Compact(mover))
	b, used, err := x.Storage().ReleaseBlock()
	testkit.Must(t, err)
	if !slices.Equal(used, []driver.Stream{mover}) {
		t.Errorf("the block that was moved is still used by %v, want its mover", used)
	}
	p.Allocator().Free(b, used...)
}

// TestCapturedMemoryStays captures work on tensors, on a stream and on one that it draws in, has everything moved that
// lets itself be moved, and launches the graph: the addresses in it are good.
func TestCapturedMemoryStays(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	p, a := placeOnArena(t, dev, 1<<20)
	first, drawn := p.On(drivertest.NewStream(t, dev)), p.On(drivertest.NewStream(t, dev))
	full := func(v byte) *tensor.Tensor {
		x, err := tensor.Full(first, dtype.Uint8, v, 4096)
		testkit.Must(t, err)
		return x
	}
	below, other, z, x, y := full(1), full(5), full(4), full(2), full(3)
	testkit.Must(t, y.Use(drawn.Stream(), true))
	testkit.Must(t, drawn.Sync(t.Context()))
	graphs := dev.Graphs()
	testkit.Must(t, graphs.Begin(first.Stream()))
	testkit.Must(t, x.Fill(first, 20))
	testkit.Must(t, y.CopyFrom(drawn, z)) // waits for what wrote z, and so becomes a part of the capture
	testkit.Must(t, y.Use(first.Stream(), true))
	g, err := graphs.End(first.Stream())
	testkit.Must(t, err)
	below.Release()
	before := other.Array().Ptr
	testkit.Must(t, a.Compact(p.Stream()))
	if other.Array().Ptr == before {
		t.Error("nothing moved at all")
	}
	over := full(9) // over what was moved
	testkit.Must(t, y.Fill(first, 30))
	testkit.Must(t, g.Launch(first.Stream()))
	for _, m := range []modelled{
		{x, bytes.Repeat([]byte{20}, 4096)},
		{y, bytes.Repeat([]byte{4}, 4096)},
		{z, bytes.Repeat([]byte{4}, 4096)},
		{other, bytes.Repeat([]byte{5}, 4096)},
		{over, bytes.Repeat([]byte{9}, 4096)},
	} {
		compare(t, m)
		m.Release()
	}
	testkit.Must(t, g.Close())
}

// TestMovedTensorsHaveNoReaders moves a tensor that another stream has read. The move has waited for that stream, so a
// later write does not wait for it again.
func TestMovedTensorsHaveNoReaders(t *testing.T) {
	dev := fault.Wrap(drivertest.OpenSim(t, 64<<20))
	p, a := placeOnArena(t, dev, 1<<20)
	reader := drivertest.NewStream(t, dev)
	below, err := tensor.Full(p, dtype.Uint8, 6, 4096)
	testkit.Must(t, err)
	x, err := tensor.Full(p, dtype.Uint8, 7, 4096)
	testkit.Must(t, err)
	below.Release()
	testkit.Must(t, x.Use(reader, false))
	testkit.Must(t, a.Compact(p.Stream()))
	before := dev.CallsOf(intercept.WaitFor)
	testkit.Must(t, x.Use(p.Stream(), true))
	if n := dev.CallsOf(intercept.WaitFor) - before; n != 0 {
		t.Errorf("a write after the move waits for %d streams", n)
	}
	x.Release()
}
