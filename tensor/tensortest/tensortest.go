// Package tensortest opens places for tests: a device with a caching allocator and the host backend. Both are closed at
// the end of the test, which fails if a tensor is still live.
package tensortest

import (
	"testing"

	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
)

// Open opens a device, such as "host" or "sim:total=1GiB", and returns a place on it. The test imports the driver.
func Open(t testing.TB, spec string) *tensor.Place {
	t.Helper()
	dev, err := driver.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	return On(t, dev)
}

// On returns a place on a device that runs Go kernels, and closes both at the end of the test.
func On(t testing.TB, dev driver.Device) *tensor.Place {
	t.Helper()
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	b := host.New(dev, host.Options{})
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

// Scope opens a device as Open does, and returns a scope on it. The scope is closed before the device.
func Scope(t testing.TB, spec string) *tensor.Scope {
	t.Helper()
	s := Open(t, spec).Scope()
	t.Cleanup(s.Close)
	return s
}

// Content returns the bytes of x's elements, in row-major order.
func Content(t testing.TB, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Size())
	if err := x.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// Host returns a place on the host, with 4 GiB of memory. The test imports driver/host.
func Host(t testing.TB) *tensor.Place { return Open(t, "host:total=4GiB") }

// Sim returns a place on a simulated device, whose memory Go code cannot access. The test
// imports driver/sim.
func Sim(t testing.TB) *tensor.Place { return Open(t, "sim:total=1GiB") }

// HostAndSim returns places on the host and on a simulated device, by name.
func HostAndSim(t testing.TB) map[string]*tensor.Place {
	return map[string]*tensor.Place{"host": Host(t), "sim": Sim(t)}
}
