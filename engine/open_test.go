package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
)

// Without configuration, the engine uses a GPU if there is one, and otherwise the host. This test passes on both.
func TestOpenTakesTheBestDevice(t *testing.T) {
	e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{MemoryLimit: 64 << 20}}}) // as without Devices
	testkit.Must(t, err)
	want := "host"
	if gpus, err := driver.Lookup("cuda").Devices(); err == nil && len(gpus) > 0 {
		want = "cuda"
	}
	info, err := e.DeviceInfo(0)
	testkit.Must(t, err)
	if e.Devices() != 1 || info.Driver != want || info.Spec == "" || info.Limit != 64<<20 {
		t.Errorf("%d devices, the first is %+v; want one of %s", e.Devices(), info, want)
	}
	s, err := e.NewSession()
	testkit.Must(t, err)
	x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3, 4}, 2, 2)
	testkit.Must(t, err)
	y, err := compute.MatMul(s.Place(), x, x)
	testkit.Must(t, err)
	if got, err := tensor.ToSlice[float32](y); err != nil || !slices.Equal(got, []float32{7, 10, 15, 22}) {
		t.Errorf("the product is %v, %v", got, err)
	}
	testkit.Must(t, s.Close())
	testkit.Must(t, e.Close(t.Context()))
}

// gpus is a driver whose devices have the given amounts of memory in use. Some cannot be opened.
type gpus struct {
	taken []int64 // bytes, -1: it cannot be opened, -2: nor asked what is free
	err   error
	open  []*sim.Device
}

func (g *gpus) Devices() (all []driver.Listing, err error) {
	for i := range g.taken {
		all = append(all, driver.Listing{Spec: fmt.Sprintf("cuda:%d", i), Free: -1})
	}
	return all, g.err
}

func (g *gpus) Open(spec string) (driver.Device, error) {
	if spec == "host" {
		return driver.Open("host:total=1MiB")
	}
	var i int
	fmt.Sscanf(spec, "cuda:%d", &i)
	if g.taken[i] == -1 {
		return nil, &driver.Error{Call: "Open", Code: driver.ErrLost, Detail: spec}
	}
	dev := sim.New(sim.Options{Total: 64 << 20})
	g.open = append(g.open, dev)
	if g.taken[i] == -2 {
		f := fault.Wrap(dev)
		f.SetRules(fault.Rule{Kind: intercept.Available})
		return f, nil
	}
	if g.taken[i] > 0 {
		if _, err := dev.Alloc(g.taken[i]); err != nil {
			return nil, err
		}
	}
	return dev, nil
}

func (g *gpus) Diagnose() []driver.Finding { return nil }

func TestChoiceOfADevice(t *testing.T) {
	broken := errors.New("broken")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	for _, tt := range []struct {
		name  string
		gpus  gpus
		rank  *collective.Config
		ctx   context.Context
		want  string
		fails error
	}{
		{name: "none", want: "host"},
		{name: "no library", gpus: gpus{err: &driver.Error{Code: driver.ErrAbsent}}, want: "host"},
		{name: "not this system", gpus: gpus{err: &driver.Error{Code: driver.ErrUnsupported}}, want: "host"},
		{name: "a broken driver", gpus: gpus{err: broken}, fails: broken},
		{name: "one", gpus: gpus{taken: []int64{5}}, want: "cuda:0"},
		{name: "one that fails", gpus: gpus{taken: []int64{-1}}, fails: driver.ErrLost},
		{name: "the emptiest", gpus: gpus{taken: []int64{9, 5, 1, 7}}, want: "cuda:2"},
		{name: "the first of equals", gpus: gpus{taken: []int64{9, 5, 5}}, want: "cuda:1"},
		{name: "the emptiest of those that work", gpus: gpus{taken: []int64{-1, 9, 5, -2}}, want: "cuda:2"},
		{name: "none works", gpus: gpus{taken: []int64{-1, -2}}, fails: driver.ErrLost},
		{name: "cancelled", gpus: gpus{taken: []int64{1, 2}}, ctx: ended, fails: broken},
		{name: "a rank", gpus: gpus{taken: []int64{1, 9, 5}}, rank: &collective.Config{Rank: 7, LocalRank: 1}, want: "cuda:1"},
		{name: "a rank too many", gpus: gpus{taken: []int64{1, 9}}, rank: &collective.Config{LocalRank: 2}},
		{name: "a rank without GPUs", rank: &collective.Config{LocalRank: 2}, want: "host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.ctx == nil {
				tt.ctx = t.Context()
			}
			dev, spec, err := choose(tt.ctx, tt.rank, &tt.gpus, tt.gpus.Open)
			if spec != tt.want || (tt.want == "") != (err != nil) || (tt.fails != nil && !errors.Is(err, tt.fails)) {
				t.Fatalf("got %q, %v; want %q, %v", spec, err, tt.want, tt.fails)
			}
			if dev != nil {
				testkit.Must(t, dev.Close())
			}
			for _, d := range tt.gpus.open { // all others were closed
				if _, _, err := d.Available(); !errors.Is(err, driver.ErrClosed) {
					t.Error("a device is open")
				}
			}
		})
	}
}

// If any call in Open fails, everything opened before is closed.
func TestOpenThatFailsClosesEverything(t *testing.T) {
	failed := errors.New("failed")
	bad := func(t *testing.T, c Config, devs []*sim.Device, want error) {
		t.Helper()
		_, err := Open(t.Context(), c)
		if err == nil || (want != nil && !errors.Is(err, want)) {
			t.Errorf("Open: %v, want %v", err, want)
		}
		for _, dev := range devs {
			wellLeft(t, dev)
		}
	}
	t.Run("a device that is not there", func(t *testing.T) {
		c, devs := onSim(t, 2, Config{})
		c.Devices = append(c.Devices, DeviceConfig{Spec: "rig:absent"})
		bad(t, c, devs, driver.ErrAbsent)
	})
	for name, d := range map[string]DeviceConfig{
		"an unknown allocator": {Allocator: "missing"},
		"bad settings":         {Allocator: "arena:size=much"},
		"a negative limit":     {MemoryLimit: -1},
		"no wrapper":           {Wrap: func(mem.Allocator) mem.Allocator { return nil }},
		"another's wrapper":    {Wrap: func(mem.Allocator) mem.Allocator { return layer.NewLimiter(emptyAllocator{}, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			c, devs := onSim(t, 2, Config{Devices: []DeviceConfig{{}, d}})
			bad(t, c, devs, nil)
		})
	}
	t.Run("every call", func(t *testing.T) {
		for n := int64(1); ; n++ {
			c, devs := onSim(t, 2, Config{EventLevel: 1, Devices: []DeviceConfig{{Allocator: "arena:size=1MiB"}, {Allocator: "arena:size=1MiB"}}})
			f := fault.Wrap(devs[1])
			f.SetRules(fault.Rule{Nth: n, Code: failed})
			c.Devices[1].Spec = prepare(t, func() (driver.Device, error) { return f, nil })
			e, err := Open(t.Context(), c)
			calls := f.Failed()
			f.SetRules()
			switch {
			case err == nil:
				testkit.Must(t, e.Close(t.Context()))
			case !errors.Is(err, failed):
				t.Errorf("call %d: %v, want %v", n, err, failed)
			}
			if calls == 0 {
				return
			}
			for _, dev := range devs {
				wellLeft(t, dev)
			}
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c, devs := onSim(t, 2, Config{})
		first := c.Devices[0].Spec
		c.Devices[0].Spec = prepare(t, func() (driver.Device, error) { cancel(failed); return driver.Open(first) })
		if _, err := Open(ctx, c); !errors.Is(err, failed) || !strings.Contains(err.Error(), c.Devices[1].Spec) {
			t.Errorf("Open: %v, want %v at the second device", err, failed)
		}
		wellLeft(t, devs[0])
		testkit.Must(t, devs[1].Close())
		if _, err := Open(ctx, Config{}); !errors.Is(err, failed) {
			t.Errorf("Open of the best device: %v, want %v", err, failed)
		}
	})
}

type emptyAllocator struct{}

func (emptyAllocator) Alloc(driver.Stream, int64) (mem.Block, error) {
	return mem.Block{}, mem.ErrNoMemory
}

func (emptyAllocator) Free(mem.Block, ...driver.Stream) {}

func TestDeviceConfig(t *testing.T) {
	var tracker *layer.LeakTracker
	e, _ := simulated(t, 3, Config{
		Compute: compute.Options{Allocator: "arena:size=4MiB"},
		Devices: []DeviceConfig{
			{Allocator: "caching", MemoryLimit: 1 << 20},
			{Allocator: "caching"},
			{Wrap: func(a mem.Allocator) mem.Allocator {
				tracker = layer.NewLeakTracker(a, layer.LeakTrackerOptions{})
				return tracker
			}},
		},
	})
	for i, want := range []int64{0, 0, 4 << 20} {
		info, err := e.DeviceInfo(i)
		testkit.Must(t, err)
		if info.Index != i || info.Total != 64<<20 || info.Reserved != want || info.Free != 64<<20-want || info.Name == "" {
			t.Errorf("device %d is %+v", i, info)
		}
		h, err := e.Handles(i)
		testkit.Must(t, err)
		if h.Stream != h.Device.DefaultStream() || h.Backend.Name() != "host" || e.Place(i).Device() != h.Device {
			t.Errorf("handles of device %d: %+v", i, h)
		}
	}
	if info, err := e.DeviceInfo(0); err != nil || info.Limit != 1<<20 {
		t.Errorf("limit %d, %v; want 1 MiB", info.Limit, err)
	}
	s := session(t, e)
	var over *mem.LimitError
	if _, err := s.Place().Alloc(1); !errors.As(err, &over) || over.Limit != 1<<20 {
		t.Errorf("a segment over the limit: %v", err)
	}
	if _, err := Open(t.Context(), Config{Devices: []DeviceConfig{{
		Spec: "sim:total=64MiB", Allocator: "arena:size=4MiB", MemoryLimit: 1 << 20,
	}}}); !errors.As(err, &over) || !strings.Contains(err.Error(), "the engine's MemoryLimit") {
		t.Errorf("an arena over the limit: %v", err)
	}
	testkit.Must(t, s.OnDevice(2, func() error {
		floats(t, s.Place(), 10)
		if live := tracker.Live(); len(live) != 1 || live[0].Requested != 40 {
			t.Errorf("the tracker on top saw %v", live)
		}
		return nil
	}))
	testkit.Contains(t, testkit.Panic(t, func() { e.DeviceInfo(3) }), "engine: DeviceInfo of device 3")
}

// Devices of one driver may use each other's memory.
func TestPeersAreEnabled(t *testing.T) {
	c := Config{Devices: []DeviceConfig{{Spec: "host:total=8MiB"}, {Spec: "host:total=8MiB,ordinal=1"}, {Spec: "sim:total=8MiB"}}}
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	a, b := e.Place(0).Device(), e.Place(1).Device()
	block, err := b.Alloc(1 << 12)
	testkit.Must(t, err)
	testkit.Must(t, b.DefaultStream().Fill(block, 7, 1<<12))
	testkit.Must(t, b.DefaultStream().Sync(t.Context()))
	var got byte
	testkit.Must(t, a.Kernels().Launch(a.DefaultStream(), driver.Kernel{
		Name: "look", Reads: []driver.Range{{Ptr: block, Size: 1}},
		Func: func(m driver.Memory) error {
			var one [1]byte
			err := m.Load(one[:], block)
			got = one[0]
			return err
		},
	}))
	testkit.Must(t, a.DefaultStream().Sync(t.Context()))
	if got != 7 {
		t.Errorf("device 0 sees %d in the memory of device 1, want 7", got)
	}
	testkit.Must(t, b.Free(block))
	testkit.Must(t, e.Close(t.Context()))
}
