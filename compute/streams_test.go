package compute_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// placeOn returns a place on a device that the test opened. It closes both at its end, and checks that nothing leaked.
func placeOn(t *testing.T, dev driver.Device) *tensor.Place {
	t.Helper()
	p, err := compute.On(dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// smallHost opens the host with room for 64 MiB.
func smallHost(t *testing.T) driver.Device {
	t.Helper()
	dev, err := host.Open(host.Options{Total: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// streams returns places on a device: on its default stream, and on two more.
func streams(t *testing.T, dev driver.Device) []*tensor.Place {
	t.Helper()
	places := []*tensor.Place{placeOn(t, dev)}
	for range 2 {
		s := drivertest.NewStream(t, dev)
		places = append(places, places[0].On(s))
	}
	return places
}

// A program is a random course of operations on six tensors of 4 by 4. What it asks for depends on its random numbers
// alone: the same ones give the same values wherever it runs.
type program struct {
	*rand.Rand
	devices [][]*tensor.Place // the places that it takes turns at, by device
	live    [6]*tensor.Tensor
	use     func() bool // whether a step tells the tensors of its work: else it goes to the backend behind their back
	results [][]int64
}

func always() bool { return true }

// runProgram runs a program of that many steps, and returns all values that it saw.
func runProgram(seed, number uint64, steps int, devices [][]*tensor.Place, use func() bool) (results [][]int64, err error) {
	g := &program{Rand: rand.New(rand.NewPCG(seed, number)), devices: devices, use: use}
	defer func() {
		if r := recover(); r != nil { // tensor.Must, most likely
			cause, ok := r.(error)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("program %#x, %d: %w", seed, number, cause)
		}
		for _, x := range g.live {
			if x.Defined() {
				x.Release()
			}
		}
	}()
	for i := range g.live {
		g.live[i] = g.fresh()
	}
	for range steps {
		g.step()
	}
	for _, x := range g.live {
		g.read(x)
	}
	return g.results, nil
}

// pick returns any place. It draws the same numbers whatever devices there are, and so does near.
func (g *program) pick() *tensor.Place {
	d, s := g.IntN(6), g.IntN(6)
	places := g.devices[d%len(g.devices)]
	return places[s%len(places)]
}

// near returns a stream of x's device.
func (g *program) near(x *tensor.Tensor) driver.Stream {
	s := g.IntN(6)
	for _, places := range g.devices {
		if places[0].SameDevice(x.Place()) {
			return places[s%len(places)].Stream()
		}
	}
	panic("a tensor on none of the devices")
}

func (g *program) fresh() *tensor.Tensor {
	data := make([]int64, 16)
	for i := range data {
		data[i] = g.Int64N(50)
	}
	return tensor.Must(tensor.FromSlice(g.pick(), data, 4, 4))
}

func (g *program) read(x *tensor.Tensor) {
	v, err := tensor.ToSlice[int64](x)
	check(err)
	g.results = append(g.results, v)
}

// check panics with an error, as tensor.Must does.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// step does something with two of the tensors, perhaps views of them, and sets a third or puts something new in its
// place.
func (g *program) step() {
	must := tensor.Must
	k := g.IntN(6)
	dst := g.live[k]
	s := dst.Place().Scope()
	defer s.Close()
	p, q := s.On(g.near(dst)), s.On(g.near(dst))
	x, y := must(g.live[g.IntN(6)].To(p)), must(g.live[g.IntN(6)].To(q))
	switch g.IntN(4) {
	case 0:
		y = y.T()
	case 1:
		y = must(y.Flip(0))
	case 2:
		y = must(must(y.Narrow(0, 1, 1)).Expand(4, 4))
	}
	if !g.use() {
		check(p.Backend().Unary(p.Queue(), backend.Square, dst.Array(), x.Array()))
		return
	}
	var z *tensor.Tensor
	switch g.IntN(16) {
	case 0:
		z = must(compute.Add(p, x, y))
	case 1:
		z = must(compute.Binary(p, backend.Xor, x, y))
	case 2:
		check(compute.BinaryInto(p, dst, backend.Add, x, y))
	case 3:
		check(compute.BinaryInto(p, dst, backend.Sub, dst, 3))
	case 4:
		z = must(compute.MatMul(p, x, y))
	case 5:
		z = must(compute.Concat(p, 0, must(x.Narrow(0, 0, 1)), must(y.Narrow(0, 1, 3))))
	case 6:
		v, _, err := compute.Sort(p, x, 0, true)
		z = must(v, err)
	case 7:
		z = must(compute.Gather(q, x, 1, must(compute.Mod(p, y, 4))))
	case 8:
		check(compute.ScatterAdd(q, dst, 0, must(compute.Mod(p, y, 4)), x))
	case 9:
		check(dst.CopyFrom(p, g.live[g.IntN(6)])) // perhaps from another device
	case 10:
		z = s.Adopt(must(y.Clone(g.pick()))) // perhaps to another device
	case 11:
		z = s.Adopt(g.fresh())
	case 12:
		g.read(y)
	case 13:
		z = must(compute.Add(q, must(x.Cast(p, dtype.Int32)), y))
	case 14:
		z = must(compute.Where(q, must(compute.Less(p, x, y)), x, 7))
	case 15:
		check(dst.Fill(p, g.IntN(9)))
	}
	if z.Defined() {
		g.live[k] = s.Keep(z)
		dst.Release()
	}
}

// simulated is a device that lets races happen, and reports them.
func simulated(seed uint64, c sim.Completion, base driver.Pointer) *sim.Device {
	return sim.New(sim.Options{Total: 1 << 30, Seed: seed, Completion: c, ReportOnly: true, Base: base})
}

// runAlone returns what a program gives on one stream of one device.
func runAlone(t *testing.T, seed, number uint64) [][]int64 {
	t.Helper()
	want, err := runProgram(seed, number, steps, [][]*tensor.Place{{placeOn(t, simulated(0, sim.AtOnce, 0))}}, always)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// agrees runs a program, and fails unless it gives the values wanted.
func agrees(t *testing.T, seed, number uint64, devices [][]*tensor.Place, want [][]int64) {
	t.Helper()
	got, err := runProgram(seed, number, steps, devices, always)
	if err != nil {
		t.Error(err)
	} else if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("program %#x, %d: other values than on one stream", seed, number)
	}
}

// noReports fails if a device saw a race.
func noReports(t *testing.T, number uint64, devices ...*sim.Device) {
	t.Helper()
	for _, dev := range devices {
		for _, r := range dev.Reports() {
			t.Fatalf("program %d: %v", number, r)
		}
	}
}

const steps = 60 // of a program

// Values equal those of a run on one stream, whatever streams are used and whenever the device does the work.
func TestStreamsChangeNothing(t *testing.T) {
	seed := testkit.Seed(t)
	for i := range uint64(100) {
		dev := simulated(seed, []sim.Completion{sim.AtOnce, sim.AtRandom, sim.OnDemand}[i%3], 0)
		agrees(t, seed, i, [][]*tensor.Place{streams(t, dev)}, runAlone(t, seed, i))
		noReports(t, i, dev)
	}
}

// The test above can fail: if some steps call the backend without the tensors' knowledge, the device reports races.
func TestWorkThatTensorsAreNotToldOfRaces(t *testing.T) {
	seed := testkit.Seed(t)
	racy := 0
	for i := range uint64(40) {
		dev := simulated(seed, sim.OnDemand, 0)
		careless := rand.New(rand.NewPCG(seed, i))
		_, err := runProgram(seed, i, steps, [][]*tensor.Place{streams(t, dev)}, func() bool { return careless.IntN(8) > 0 })
		var index *backend.IndexError // that a program computes its indices too late, or too early, is a race, too
		if err != nil && !errors.As(err, &index) {
			t.Fatal(err)
		}
		if len(dev.Reports()) > 0 {
			racy++
		}
	}
	if racy < 30 {
		t.Errorf("just %d of 40 programs race", racy)
	}
}

// Several goroutines may use the same streams of the same device at once.
func TestGoroutinesShareStreams(t *testing.T) {
	seed := testkit.Seed(t)
	for i := range uint64(40) {
		var dev driver.Device = simulated(seed, sim.AtRandom, 0)
		if i%2 == 0 {
			dev = smallHost(t)
		}
		places := streams(t, dev)
		var all sync.WaitGroup
		for n := range uint64(4) {
			want := runAlone(t, seed, 4*i+n)
			all.Go(func() { agrees(t, seed, 4*i+n, [][]*tensor.Place{places}, want) })
		}
		all.Wait()
		if s, ok := dev.(*sim.Device); ok {
			noReports(t, i, s)
		}
	}
}

// Tensors may move between devices, each with streams of its own.
func TestDevicesChangeNothing(t *testing.T) {
	seed := testkit.Seed(t)
	one, other := streams(t, smallHost(t)), streams(t, smallHost(t))
	for i := range uint64(60) {
		first, second := simulated(seed, sim.AtRandom, 0), simulated(seed+1, sim.AtRandom, 0x100_0000_0000)
		devices := [][]*tensor.Place{streams(t, first), streams(t, second), one, other}
		agrees(t, seed, i, devices, runAlone(t, seed, i))
		noReports(t, i, first, second)
	}
}
