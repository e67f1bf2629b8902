package tensor_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	computehost "github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// Each driver call of a program fails in turn: the program gets an error of it, leaves nothing, and works the next time.
func TestEveryDriverCallFails(t *testing.T) {
	for _, specs := range [][2]string{
		{"sim", "sim:ordinal=1"}, {"host:total=64MiB", "host:total=64MiB,ordinal=1"}, {"host:total=64MiB", "sim"},
	} {
		n := int64(1)
		for callFails(t, specs, n) {
			n++
		}
		if n < 20 {
			t.Errorf("%s: the program makes %d calls", specs, n-1)
		}
	}
}

// callFails fails call n of the first and then of the second device, and reports whether there was such a call.
func callFails(t *testing.T, specs [2]string, n int64) (any bool) {
	t.Helper()
	var devs [2]*fault.Device
	var places [2]*tensor.Place
	for i, spec := range specs {
		dev := fault.Wrap(drivertest.OpenDevice(t, spec))
		devs[i] = dev
		places[i] = placeOn(t, dev, func(c *tensor.Config) { c.Backend = computehost.New(dev, computehost.Options{}) })
	}
	for _, broken := range devs {
		other := drivertest.NewStream(t, devs[0])
		broken.SetRules(fault.Rule{Nth: n, Code: driver.ErrLost})
		here, there := places[0].Scope(), places[1].Scope()
		err := copies(here.Place, places[0].On(other), there.Place)
		if broken.Failed() > 0 != errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: call %d failed %d times, and the program says %v", specs, n, broken.Failed(), err)
		}
		any = any || broken.Failed() > 0
		here.Close()
		there.Close()
		broken.SetRules()
		for i, p := range places {
			if leaks := p.Leaks(); leaks.Count != 0 {
				t.Errorf("%s: call %d failed: place %d has %v", specs, n, i, leaks)
			}
		}
		here, there = places[0].Scope(), places[1].Scope()
		testkit.Must(t, copies(here.Place, places[0].On(other), there.Place))
		here.Close()
		there.Close()
	}
	return any
}

// copies makes, copies, changes and reads tensors at three places, of which two are on one device. It returns the first
// error.
func copies(here, beside, there *tensor.Place) (err error) {
	x, err := tensor.FromSlice(here, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		return err
	}
	y, err := tensor.Zeros(here, dtype.Float32, 3, 2)
	if err != nil {
		return err
	}
	if err := y.CopyFrom(nil, x.T()); err != nil {
		return err
	}
	if err := y.CopyFrom(beside, x.T()); err != nil {
		return err
	}
	if err := x.Fill(beside, 1); err != nil {
		return err
	}
	far, err := y.To(there)
	if err != nil {
		return err
	}
	if err := far.Fill(nil, 7); err != nil {
		return err
	}
	if err := y.CopyFrom(nil, far); err != nil {
		return err
	}
	got, err := tensor.ToSlice[float32](y)
	if err != nil {
		return err
	}
	if want := []float32{7, 7, 7, 7, 7, 7}; !slices.Equal(got, want) {
		return errors.New("other elements")
	}
	if _, err := tensor.Must(x.Slice(tensor.Index(0), tensor.Index(1))).Item(); err != nil {
		return err
	}
	return errors.Join(here.Sync(context.Background()), beside.Sync(context.Background()), there.Sync(context.Background()))
}
