package npy

import (
	"testing"

	backendhost "github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
)

// placeOn returns a place on a device, which it closes; a tensor that is alive then is a failure.
func placeOn(t testing.TB, dev driver.Device) *tensor.Place {
	t.Helper()
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	b := backendhost.New(dev, backendhost.Options{})
	p := tensor.NewPlace(tensor.Config{Device: dev, Allocator: a, Backend: b, Sites: true})
	t.Cleanup(func() {
		for _, err := range []error{p.Close(), b.Close(), a.Close(), dev.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

func hostPlace(t testing.TB) *tensor.Place {
	t.Helper()
	dev, err := host.Open(host.Options{Total: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	return placeOn(t, dev)
}

// simPlace is on a simulated device, whose memory Go code cannot reach.
func simPlace(t testing.TB) *tensor.Place { return placeOn(t, sim.New(sim.Options{Total: 1 << 30})) }

func places(t testing.TB) map[string]*tensor.Place {
	return map[string]*tensor.Place{"host": hostPlace(t), "sim": simPlace(t)}
}

// content returns the elements of x as they would be in a file.
func content(t testing.TB, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Size())
	if err := x.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
