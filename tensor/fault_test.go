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
	for n := int64(1); ; n++ {
		devs := [2]*fault.Device{fault.Wrap(drivertest.OpenSim(t, 0)), fault.Wrap(drivertest.OpenSim(t, 0))}
		var places [2]*tensor.Place
		for i, dev := range devs {
			places[i] = placeOn(t, dev, func(c *tensor.Config) { c.Backend = computehost.New(dev, computehost.Options{}) })
		}
		failed := int64(0)
		for _, broken := range devs {
			broken.SetRules(fault.Rule{Nth: n, Code: driver.ErrLost})
			err := copies(places[0], places[1])
			if broken.Failed() > 0 != errors.Is(err, driver.ErrLost) {
				t.Errorf("call %d failed %d times, and the program says %v", n, broken.Failed(), err)
			}
			failed += broken.Failed()
			broken.SetRules()
			for i, p := range places {
				if leaks := p.Leaks(); leaks.Count != 0 {
					t.Errorf("call %d failed: place %d has %v", n, i, leaks)
				}
			}
			testkit.Must(t, copies(places[0], places[1]))
		}
		if failed == 0 {
			t.Logf("%d calls", n-1)
			return
		}
	}
}

// copies makes, copies, changes and reads tensors at two places. It returns the first error.
func copies(here, there *tensor.Place) (err error) {
	s := here.Scope()
	defer s.Close()
	x, err := tensor.FromSlice(s.Place, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		return err
	}
	y, err := tensor.Zeros(s.Place, dtype.Float32, 3, 2)
	if err != nil {
		return err
	}
	if err := y.CopyFrom(nil, x.T()); err != nil {
		return err
	}
	far, err := y.To(there)
	if err != nil {
		return err
	}
	defer far.Release()
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
	return errors.Join(here.Sync(context.Background()), there.Sync(context.Background()))
}
