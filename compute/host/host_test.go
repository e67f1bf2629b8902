package host

import (
	"flag"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/compute/backendtest"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
)

var seedFlag = flag.Uint64("seed", 0, "seed of random tests; 0: a fresh one")

// seed returns what random tests start from, and logs it.
func seed(t testing.TB) uint64 { return testkit.SeedFlag(t, "seed", *seedFlag) }

// openSim opens a simulated device, which reports accesses that kernels did not declare, and races.
func openSim(t testing.TB) driver.Device { return drivertest.OpenSim(t, 0) }

// rig has a queue of its own on dev, and a backend that uses so many processors.
func rig(t testing.TB, dev driver.Device, procs int) backendtest.Rig {
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	s := drivertest.NewStream(t, dev)
	return backendtest.Rig{
		Device: dev, Queue: backend.Queue{Stream: s, Scratch: a}, Backend: New(dev, Options{Procs: procs}),
	}
}

// Three processors, whatever the machine has, so that work is cut.
func TestBackendOnHost(t *testing.T) {
	backendtest.Run(t, backendtest.Config{
		Seed: seed(t), Open: func(t testing.TB) backendtest.Rig { return rig(t, drivertest.OpenDevice(t, "host"), 3) },
	})
}

func TestBackendOnSim(t *testing.T) {
	backendtest.Run(t, backendtest.Config{
		Seed: seed(t), Rounds: 1, Open: func(t testing.TB) backendtest.Rig { return rig(t, openSim(t), 3) },
	})
}
