//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/compute/backendtest"
	"github.com/ashlar-go/ashlar/compute/cuda"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
)

var (
	seed      = flag.Uint64("seed", testkit.FreshSeed(), "the seed of the suite's inputs")
	libraries = flag.String("libraries", "", "paths of cuBLAS to try first, separated by commas")
)

func options() cuda.Options {
	var o cuda.Options
	if *libraries != "" {
		o.Libraries = strings.Split(*libraries, ",")
	}
	return o
}

// openRig opens the GPU, on the default stream and a caching allocator.
func openRig(t testing.TB, o cuda.Options) backendtest.Rig {
	t.Helper()
	dev := drivertest.OpenDevice(t, "cuda:0")
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	b, err := cuda.New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	return backendtest.Rig{Device: dev, Queue: backend.Queue{Stream: dev.DefaultStream(), Scratch: a}, Backend: b}
}

// TestGPUSuite: the backend is what package backend promises, with cuBLAS if it is there.
func TestGPUSuite(t *testing.T) {
	backendtest.Run(t, backendtest.Config{Seed: *seed, Open: func(t testing.TB) backendtest.Rig { return openRig(t, options()) }})
}

// TestGPUSuiteWithoutLibrary: products by the kernels of this package.
func TestGPUSuiteWithoutLibrary(t *testing.T) {
	backendtest.Run(t, backendtest.Config{Seed: *seed, Open: func(t testing.TB) backendtest.Rig {
		return openRig(t, cuda.Options{NoLibrary: true})
	}})
}
