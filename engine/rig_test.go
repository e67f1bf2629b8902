package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// rigged is a driver that opens the devices that a test prepared: "rig:NAME".
type rigged struct{}

var prepared sync.Map // names and func() (driver.Device, error)

func init() { driver.Register("rig", rigged{}) }

func (rigged) Open(args string) (driver.Device, error) {
	open, ok := prepared.Load(args)
	if !ok {
		return nil, &driver.Error{Call: "Open", Code: driver.ErrAbsent, Detail: args}
	}
	return open.(func() (driver.Device, error))()
}

func (rigged) Devices() ([]driver.Listing, error) { return nil, &driver.Error{Code: driver.ErrAbsent} }

func (rigged) Diagnose() []driver.Finding { return nil }

// prepare makes "rig:NAME" open a device, and returns that name.
func prepare(t testing.TB, open func() (driver.Device, error)) (spec string) {
	name := fmt.Sprintf("%s/%p", t.Name(), &spec)
	prepared.Store(name, open)
	t.Cleanup(func() { prepared.Delete(name) })
	return "rig:" + name
}

// simulated opens an engine on n simulated devices of 64 MiB. It closes the engine at the end of the test, and checks
// that nothing is alive, nothing leaked, and no race was found.
func simulated(t testing.TB, n int, c Config) (*Engine, []*sim.Device) {
	t.Helper()
	c, devs := onSim(t, n, c)
	e, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		for _, dev := range devs {
			wellLeft(t, dev)
		}
	})
	return e, devs
}

// onSim puts n simulated devices into a configuration, for those that it has, or beyond.
func onSim(t testing.TB, n int, c Config) (Config, []*sim.Device) {
	c.Compute.Sites = true
	devs := make([]*sim.Device, n)
	for i := range n {
		devs[i] = drivertest.OpenSim(t, 64<<20)
		if i == len(c.Devices) {
			c.Devices = append(c.Devices, DeviceConfig{})
		}
		c.Devices[i].Spec = prepare(t, func() (driver.Device, error) { return devs[i], nil })
	}
	return c, devs
}

// wellLeft checks a device that was closed.
func wellLeft(t testing.TB, dev *sim.Device) {
	t.Helper()
	if _, _, err := dev.Available(); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a device was not closed: Available says %v", err)
	}
	if l := dev.Leaks(); !l.Empty() {
		t.Errorf("a device was closed with %v", l)
	}
	for _, r := range dev.Reports() {
		t.Error(r)
	}
}

// session opens a session, closed at the end of the test.
func session(t testing.TB, e *Engine, devices ...int) *Session {
	t.Helper()
	s, err := e.NewSession(devices...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { testkit.Must(t, s.Close()) })
	return s
}

// floats makes a tensor of n float32s.
func floats(t testing.TB, p *tensor.Place, n int) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(p, make([]float32, n))
	testkit.Must(t, err)
	return x
}
