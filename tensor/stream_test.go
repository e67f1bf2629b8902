package tensor_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// launch queues a kernel that reads some tensors and writes one (or none), after the Use of all of them, unless use is
// false. It returns a race that the device finds.
func launch(dev *sim.Device, s driver.Stream, use bool, writes *tensor.Tensor, reads ...*tensor.Tensor) error {
	k := driver.Kernel{Name: "work"}
	for _, x := range reads {
		if use {
			if err := x.Use(s, false); err != nil {
				return err
			}
		}
		k.Reads = append(k.Reads, driver.Range{Ptr: x.Pointer(), Size: x.Size()})
	}
	if writes != nil {
		if use {
			if err := writes.Use(s, true); err != nil {
				return err
			}
		}
		k.Writes = append(k.Writes, driver.Range{Ptr: writes.Pointer(), Size: writes.Size()})
	}
	return dev.Kernels().Launch(s, k)
}

// program makes tensors, works on them on three streams, releases them, and makes others at the same addresses. For
// each launch, use decides whether the tensors are told of it. program returns the races.
func program(t *testing.T, r *rand.Rand, completion sim.Completion, use func() bool) []error {
	t.Helper()
	dev := sim.New(sim.Options{Seed: r.Uint64(), Completion: completion, ReportOnly: true})
	p := placeOn(t, dev)
	streams := []driver.Stream{dev.DefaultStream(), drivertest.NewStream(t, dev), drivertest.NewStream(t, dev)}
	live := make([]*tensor.Tensor, 3)
	for range 40 {
		i := r.IntN(len(live))
		s := streams[r.IntN(len(streams))]
		switch {
		case live[i] == nil:
			x, err := tensor.Empty(p.On(s), dtype.Int32, 64)
			if err != nil {
				t.Fatal(err)
			}
			live[i] = x
		case r.IntN(6) == 0:
			live[i].Release()
			live[i] = nil
		default:
			var writes *tensor.Tensor
			var reads []*tensor.Tensor
			if r.IntN(2) == 0 {
				writes = live[i]
			} else {
				reads = append(reads, live[i])
			}
			for j, x := range live {
				if j != i && x != nil && r.IntN(3) == 0 {
					reads = append(reads, x)
				}
			}
			if err := launch(dev, s, use(), writes, reads...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range live {
		if x != nil {
			x.Release()
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return dev.Reports()
}

func TestTensorsDoNotRaceAcrossStreams(t *testing.T) {
	seed := testkit.Seed(t)
	always := func() bool { return true }
	for i := range uint64(600) {
		completion := []sim.Completion{sim.AtOnce, sim.AtRandom, sim.OnDemand}[i%3]
		if races := program(t, rand.New(rand.NewPCG(seed, i)), completion, always); len(races) > 0 {
			t.Fatalf("program %d: %v", i, races[0])
		}
	}
	// If some launches are not told to their tensors, races are found.
	found := 0
	for i := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, i))
		if len(program(t, r, sim.OnDemand, func() bool { return r.IntN(8) > 0 })) > 0 {
			found++
		}
	}
	if found < 50 {
		t.Errorf("without Use, just %d of 100 programs race", found)
	}
}

// Each of the orders that Use makes, by itself: it is there with Use, and missing without.
func TestUseOrders(t *testing.T) {
	for _, c := range []struct {
		name string
		work func(dev *sim.Device, x *tensor.Tensor, a, b driver.Stream, use bool) error // the last call is the one that would race
	}{
		{"a read after a write", func(dev *sim.Device, x *tensor.Tensor, a, b driver.Stream, use bool) error {
			return errors.Join(launch(dev, a, true, x), launch(dev, b, use, nil, x))
		}},
		{"a write after a write", func(dev *sim.Device, x *tensor.Tensor, a, b driver.Stream, use bool) error {
			return errors.Join(launch(dev, a, true, x), launch(dev, b, use, x))
		}},
		{"a write after a read", func(dev *sim.Device, x *tensor.Tensor, a, b driver.Stream, use bool) error {
			return errors.Join(launch(dev, a, true, x), launch(dev, b, true, nil, x), launch(dev, a, use, x))
		}},
		{"a write after the writer's own later read", func(dev *sim.Device, x *tensor.Tensor, a, b driver.Stream, use bool) error {
			return errors.Join(launch(dev, a, true, x), launch(dev, b, true, nil, x), launch(dev, a, true, nil, x), launch(dev, b, use, x))
		}},
	} {
		for _, use := range []bool{true, false} {
			dev := sim.New(sim.Options{Completion: sim.OnDemand})
			p := placeOn(t, dev)
			a, b := drivertest.NewStream(t, dev), drivertest.NewStream(t, dev)
			x := empty(t, p, 16)
			err := c.work(dev, x, a, b, use)
			var race *sim.RaceError
			if errors.As(err, &race) == use || (use && err != nil) {
				t.Errorf("%s, with Use %v: %v", c.name, use, err)
			}
			x.Release()
		}
	}
}

// Work of another stream on a tensor of zeros waits for the zeros.
func TestZerosAreWrittenBeforeTheyAreUsed(t *testing.T) {
	dev := sim.New(sim.Options{Completion: sim.OnDemand})
	p := placeOn(t, dev)
	x := tensor.Must(tensor.Zeros(p, dtype.Float32, 16))
	testkit.Must(t, launch(dev, drivertest.NewStream(t, dev), true, nil, x))
	x.Release()
}

// Memory that is released while another stream uses it must not be handed out before that is done.
func TestReleaseTellsTheStreamsThatUseTheMemory(t *testing.T) {
	for _, tell := range []bool{true, false} {
		dev := sim.New(sim.Options{Completion: sim.OnDemand})
		p := placeOn(t, dev)
		other := drivertest.NewStream(t, dev)
		x := empty(t, p, 64)
		if err := launch(dev, other, true, x); err != nil {
			t.Fatal(err)
		}
		at := x.Pointer()
		if tell {
			x.Release()
		} else { // what Release would do if it knew of no stream
			block, _, err := x.Storage().ReleaseBlock()
			if err != nil {
				t.Fatal(err)
			}
			p.Allocator().Free(block)
		}
		y := empty(t, p, 64)
		err := launch(dev, p.Stream(), true, y)
		var race *sim.RaceError
		if errors.As(err, &race) == tell || (y.Pointer() == at) == tell {
			t.Errorf("told %v: the next tensor is at %#x, the last was at %#x: %v", tell, y.Pointer(), at, err)
		}
		y.Release()
	}
}

func TestStreamsThatAreClosedHaveDoneTheirWork(t *testing.T) {
	dev := sim.New(sim.Options{Completion: sim.OnDemand})
	p := placeOn(t, dev)
	other := drivertest.NewStream(t, dev)
	x := empty(t, p, 64)
	if err := launch(dev, other, true, x); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := launch(dev, p.Stream(), true, nil, x); err != nil {
		t.Error("after the writer was closed:", err)
	}
	third := drivertest.NewStream(t, dev)
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.Use(third, false); !errors.Is(err, driver.ErrClosed) {
		t.Error("Use of a closed stream:", err)
	}
	x.Release()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestOneStreamCostsNoDriverCall(t *testing.T) {
	dev := fault.Wrap(drivertest.OpenSim(t, 0))
	p := placeOn(t, dev)
	x := empty(t, p, 64)
	second := drivertest.NewStream(t, dev)
	work := func(s driver.Stream) int64 {
		before := dev.Calls()
		for i := range 100 {
			if err := x.Use(s, i%3 == 0); err != nil {
				t.Fatal(err)
			}
		}
		return dev.Calls() - before
	}
	if n := work(p.Stream()); n != 0 {
		t.Errorf("%d driver calls on one stream", n)
	}
	if n := work(second); n != 2 {
		t.Errorf("%d driver calls for going over to another stream, want a mark and a wait", n)
	}
	if n := work(second); n != 0 {
		t.Errorf("%d driver calls on the second stream", n)
	}
	x.Release()

	// A failed call leaves the tensor as it was: the next Use tries again.
	x = empty(t, p, 64)
	for _, kind := range []intercept.Kind{intercept.Mark, intercept.WaitFor} {
		dev.SetRules(fault.Rule{Kind: kind, Code: driver.ErrLost})
		if err := x.Use(second, true); !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s failed, and Use says %v", kind, err)
		}
	}
	dev.SetRules()
	if err := x.Use(second, true); err != nil || dev.Calls() != 2 {
		t.Errorf("after the failures: %v, %d calls", err, dev.Calls())
	}
	x.Release()
}

// A write waits for the readers before it once, and not again before the next write.
func TestWritesWaitForReadersOnce(t *testing.T) {
	dev := fault.Wrap(drivertest.OpenSim(t, 0))
	p := placeOn(t, dev)
	x := empty(t, p, 64)
	testkit.Must(t, x.Use(p.Stream(), true))
	testkit.Must(t, x.Use(drivertest.NewStream(t, dev), false))
	for i, want := range []int64{2, 0, 0} { // a mark and a wait
		before := dev.Calls()
		testkit.Must(t, x.Use(p.Stream(), true))
		if n := dev.Calls() - before; n != want {
			t.Errorf("write %d: %d driver calls, want %d", i, n, want)
		}
	}
	x.Release()
}
