package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// floats returns a tensor of n float32 at the communicator's place: first, first+1, ...
func floats(c *Communicator, first float32, shape ...int) *tensor.Tensor {
	n := 1
	for _, length := range shape {
		n *= length
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = first + float32(i)
	}
	return tensor.Must(tensor.FromSlice(c.place, data, shape...))
}

// want fails unless t holds these elements.
func want(c *Communicator, t *tensor.Tensor, elements ...float32) error {
	if err := c.Wait(context.Background(), nil); err != nil {
		return err
	}
	got, err := tensor.ToSlice[float32](t)
	if err == nil && !slices.Equal(got, elements) {
		err = fmt.Errorf("got %v, want %v", got, elements)
	}
	return err
}

// operations uses each operation once, on any number of ranks.
func operations(c *Communicator) error {
	n, rank := c.Size(), float32(c.Rank())
	all := func(f func(r int) float32) []float32 {
		values := make([]float32, n)
		for r := range values {
			values[r] = f(r)
		}
		return values
	}
	total := float32(n * (n - 1) / 2)

	x := floats(c, rank, 2)
	defer x.Release()
	if err := c.AllReduce(nil, Sum, x, x); err != nil { // in place
		return err
	}
	if err := want(c, x, total, total+float32(n)); err != nil {
		return fmt.Errorf("all-reduce: %w", err)
	}

	y := floats(c, rank*10, 2)
	defer y.Release()
	if err := c.Broadcast(nil, y, n-1); err != nil {
		return err
	}
	if err := want(c, y, float32(n-1)*10, float32(n-1)*10+1); err != nil {
		return fmt.Errorf("broadcast: %w", err)
	}

	mine := floats(c, rank, 1)
	defer mine.Release()
	stacked, joined := floats(c, 0, n, 1), floats(c, 0, n)
	defer stacked.Release()
	defer joined.Release()
	for _, dst := range []*tensor.Tensor{stacked, joined} {
		if err := c.AllGather(nil, dst, mine); err != nil {
			return err
		}
		if err := want(c, dst, all(func(r int) float32 { return float32(r) })...); err != nil {
			return fmt.Errorf("all-gather: %w", err)
		}
	}

	part := floats(c, 0, 1)
	defer part.Release()
	if err := c.ReduceScatter(nil, Max, part, joined); err != nil {
		return err
	}
	if err := want(c, part, rank); err != nil {
		return fmt.Errorf("reduce-scatter: %w", err)
	}

	next, prev := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	from := floats(c, -1, 1)
	defer from.Release()
	err := c.Group(func() error { // one rank alone sends to itself
		if err := c.Send(nil, mine, next); err != nil {
			return err
		}
		return c.Group(func() error { return c.Recv(nil, from, prev) })
	})
	if err != nil {
		return err
	}
	if err := want(c, from, float32(prev)); err != nil {
		return fmt.Errorf("send and recv: %w", err)
	}

	empty := floats(c, 0, 0, 3)
	defer empty.Release()
	gathered := floats(c, 0, n, 0, 3)
	defer gathered.Release()
	if err := errors.Join(c.AllReduce(nil, Avg, empty, empty), c.AllGather(nil, gathered, empty)); err != nil {
		return fmt.Errorf("no elements: %w", err)
	}
	return c.Barrier(context.Background())
}

func TestOperationsLocal(t *testing.T) {
	for _, spec := range []string{"host", "sim:total=1GiB"} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s/%d", spec, n), func(t *testing.T) { on(t, local(t, spec, n), operations) })
		}
	}
}

func TestOperationsJoined(t *testing.T) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			comms := joined(t, n)
			on(t, comms, operations)
			for rank, c := range comms {
				if cfg := c.Config(); c.Rank() != rank || c.Size() != n || cfg.Backend != Host {
					t.Errorf("rank %d is %+v", rank, cfg)
				}
			}
		})
	}
}

// A tensor may be released, and its memory used again, as soon as an operation is queued.
func TestReleasedOperands(t *testing.T) {
	on(t, local(t, "host", 2), func(c *Communicator) error {
		results := make([]*tensor.Tensor, 50)
		for i := range results {
			x := floats(c, float32(i), 1000)
			results[i] = floats(c, 0, 1000)
			if err := c.AllReduce(nil, Sum, results[i], x); err != nil {
				return err
			}
			x.Release()
		}
		if err := c.Wait(context.Background(), nil); err != nil {
			return err
		}
		for i, r := range results {
			if v := tensor.Must(r.Select(0, 999)); v.String() != fmt.Sprintf("tensor(%d.)", 2*(i+999)) {
				return fmt.Errorf("all-reduce %d: %v", i, v)
			}
			r.Release()
		}
		return nil
	})
}

// Work of other streams comes first, and other streams' later work afterwards.
func TestStreams(t *testing.T) {
	on(t, local(t, "host", 2), func(c *Communicator) error {
		s, err := c.place.Device().NewStream(driver.StreamOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		p := c.place.On(s)
		x := floats(c, 0, 1<<16)
		defer x.Release()
		for range 10 {
			if err := x.Fill(nil, c.Rank()+1); err != nil {
				return err
			}
			if err := c.AllReduce(p, Sum, x, x); err != nil {
				return err
			}
			sum, err := x.Clone(nil)
			if err != nil {
				return err
			}
			v, err := sum.At(1<<16 - 1)
			sum.Release()
			if err != nil || v.Float64() != 3 {
				return fmt.Errorf("%v, %v", v, err)
			}
		}
		return c.Wait(context.Background(), p)
	})
}

func TestRefusals(t *testing.T) {
	comms := local(t, "host", 2)
	c := comms[0]
	elsewhere := tensortest.Open(t, "host")
	made := func(x *tensor.Tensor, err error) *tensor.Tensor {
		tensor.Must(x, err)
		if x.Owns() {
			t.Cleanup(x.Release)
		}
		return x
	}
	x := made(tensor.Zeros(c.place, dtype.Float32, 4))
	square := made(tensor.Zeros(c.place, dtype.Float32, 2, 2))
	half := made(tensor.Zeros(c.place, dtype.Float16, 4))
	alien := made(tensor.Zeros(elsewhere, dtype.Float32, 4))
	front, back := made(x.Narrow(0, 0, 2)), made(x.Narrow(0, 2, 2))
	middle := made(x.Narrow(0, 1, 2))
	flag := made(tensor.Zeros(c.place, dtype.Bool, 4))
	spread := made(front.Expand(2, 2))
	for name, test := range map[string]struct {
		err  error
		kind error
		text string
	}{
		"shape":     {c.AllReduce(nil, Sum, x, square), ErrShape, "collective: AllReduce: into float32[4] from float32[2 2]: want one shape"},
		"type":      {c.AllReduce(nil, Sum, x, half), ErrType, "collective: AllReduce: float32[4] and float16[4]: want one type"},
		"operation": {c.AllReduce(nil, 9, x, x), ErrType, "collective: AllReduce: no operation has the number 9"},
		"device":    {c.AllReduce(nil, Sum, x, alien), ErrDevice, "collective: AllReduce: float32[4] on another host: rank 0 is on host"},
		"place":     {c.AllReduce(elsewhere, Sum, x, x), ErrDevice, "collective: AllReduce: the place given is on another host: rank 0 is on host"},
		"undefined": {c.Send(nil, nil, 1), ErrType, "collective: Send: an operand is the undefined tensor"},
		"strides": {
			c.Broadcast(nil, square.T(), 0), ErrLayout,
			"collective: Broadcast: float32[2 2] with strides [1 2]: want contiguous elements (Contiguous copies)",
		},
		"broadcast view": {c.Recv(nil, spread, 1), ErrLayout, "collective: Recv: float32[2 2] with strides [0 1]: want contiguous elements (Contiguous copies)"},
		"overlap":        {c.AllReduce(nil, Sum, front, middle), ErrLayout, "collective: AllReduce: float32[2] and float32[2] overlap and are not the same elements"},
		"rank":           {c.Send(nil, x, 2), ErrRank, "collective: Send: rank 2: there are 2"},
		"itself":         {c.Send(nil, x, 0), ErrRank, "collective: Send: rank 0 sends to itself without a Recv in the same Group"},
		"root":           {c.Broadcast(nil, x, -1), ErrRank, "collective: Broadcast: rank -1: there are 2"},
		"gather": {
			c.AllGather(nil, x, square), ErrShape,
			"collective: AllGather: float32[4] for 2 ranks' float32[2 2]: want a first axis of length 2, new or that times as long",
		},
		"another's part": {c.AllGather(nil, x, back), ErrLayout, "collective: AllGather: float32[2] lies in float32[4], and is not the part of rank 0"},
		"scatter": {
			c.ReduceScatter(nil, Sum, half, half), ErrShape,
			"collective: ReduceScatter: float16[4] for 2 ranks' float16[4]: want a first axis of length 2, new or that times as long",
		},
		"bool sum": {
			c.AllReduce(nil, Sum, flag, flag), driver.ErrUnsupported,
			"collective: AllReduce of 4 bool: driver: Transport.Queue: not supported by this device (all-reduce (sum) of bool)",
		},
		"group of a failure": {c.Group(func() error { return errors.Join(c.Send(nil, x, 1), errors.ErrUnsupported) }), errors.ErrUnsupported, "unsupported operation"},
	} {
		if !errors.Is(test.err, test.kind) || test.err.Error() != test.text {
			t.Errorf("%s:\n got %v\nwant %s", name, test.err, test.text)
		}
	}
	s := drivertest.NewStream(t, c.place.Device())
	defer s.Close()
	err := c.Group(func() error {
		if err := c.Send(nil, x, 1); err != nil {
			return err
		}
		return c.Recv(c.place.On(s), square, 1)
	})
	if !errors.Is(err, ErrDevice) {
		t.Errorf("a group of two streams: %v", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("a refusal ended the communicator: %v", err)
	}
	on(t, comms, operations) // nothing of it was queued
	if _, err := Local(c.place, c.place); !errors.Is(err, ErrDevice) {
		t.Errorf("two ranks on one stream: %v", err)
	}
	if _, err := (Config{Backend: NCCL}).Local(c.place, elsewhere); !errors.Is(err, ErrDevice) {
		t.Errorf("NCCL on the host: %v", err)
	}
	if _, err := Local(); !errors.Is(err, ErrConfig) {
		t.Errorf("no ranks: %v", err)
	}
}

func TestClosed(t *testing.T) {
	comms := local(t, "host", 3)
	for _, c := range comms { // one after another
		if err := errors.Join(c.Close(), c.Close(), c.Err()); err != nil {
			t.Error(err)
		}
	}
	c := comms[1]
	x := floats(c, 0, 1)
	defer x.Release()
	for _, err := range []error{
		c.AllReduce(nil, Sum, x, x), c.Barrier(context.Background()), c.Group(func() error { return nil }),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// A failure of the device while Close waits for queued work is an error of Close, each time.
func TestCloseTellsOfUnfinishedWork(t *testing.T) {
	dev, err := driver.Open("host")
	testkit.Must(t, err)
	faulty := fault.Wrap(dev)
	a, err := caching.New(faulty, caching.Default())
	testkit.Must(t, err)
	b := host.New(faulty, host.Options{})
	p := tensor.NewPlace(tensor.Config{Device: faulty, Allocator: a, Backend: b})
	comms, err := Local(p)
	testkit.Must(t, err)
	c := comms[0]
	x := floats(c, 0, 1)
	testkit.Must(t, c.AllReduce(nil, Sum, x, x))
	faulty.SetRules(fault.Rule{Kind: intercept.Sync, Onwards: true})
	for range 2 {
		if err := c.Close(); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Close: %v", err)
		}
	}
	faulty.SetRules()
	x.Release()
	testkit.Must(t, errors.Join(p.Close(), b.Close(), a.Close(), faulty.Close()))
}

// A listener is a transport that hears calls and makes none.
type listener struct {
	comm.Transport
	heard *[]comm.Call
}

func (l listener) Queue(_ driver.Stream, calls ...comm.Call) error {
	*l.heard = append(*l.heard, calls...)
	return nil
}

// Broadcast names the tensor as the source too on the root, where NCCL reads it, and nowhere else.
func TestSourceOfABroadcast(t *testing.T) {
	comms := quiet(t, 2)
	var heard []comm.Call
	c := newCommunicator(comms[0].config, comms[0].place, listener{comms[0].transport, &heard}, comms[0].member, true)
	t.Cleanup(func() { c.Close() })
	x := floats(c, 0, 4)
	defer x.Release()
	for root := range 2 {
		testkit.Must(t, c.Broadcast(nil, x, root))
	}
	at := x.Array().Ptr
	if heard[0].Dst.Ptr != at || heard[1].Dst.Ptr != at || heard[0].Src.Ptr != at || heard[1].Src.Ptr != 0 {
		t.Errorf("the tensor is at %#x, the calls are %+v", uint64(at), heard)
	}
}
