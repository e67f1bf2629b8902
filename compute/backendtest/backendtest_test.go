package backendtest

import (
	"flag"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
)

var seed = flag.Uint64("seed", testkit.FreshSeed(), "the seed of the suite's inputs")

// open returns a function that makes a rig on the device of a spec.
func open(spec string, b func() backend.Backend) func(t testing.TB) Rig {
	return func(t testing.TB) Rig {
		dev, err := driver.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		a, err := caching.New(dev, caching.Default())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dev.Close(); err != nil {
				t.Errorf("closing the device: %v", err)
			}
		})
		return Rig{Device: dev, Queue: backend.Queue{Stream: dev.DefaultStream(), Scratch: a}, Backend: b()}
	}
}

// TestModel: the suite passes the model, which is made of its references.
func TestModel(t *testing.T) {
	Run(t, Config{Open: open("host", func() backend.Backend { return &model{} }), Seed: *seed, Rounds: 1})
}
