package safetensors

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// random returns a source of numbers, whose seed is told if the test fails.
func random(t testing.TB) *rand.Rand {
	var seed [16]byte
	if _, err := crand.Read(seed[:]); err != nil {
		t.Fatal(err)
	}
	a, b := binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %#x, %#x", a, b)
		}
	})
	return rand.New(rand.NewPCG(a, b))
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

func put(t testing.TB, dir, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// raw is a file of that header, as it is, and those bytes.
func raw(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
