package safetensors

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

func hostPlace(t testing.TB) *tensor.Place { return tensortest.Open(t, "host:total=4GiB") }

// simPlace is on a simulated device, whose memory Go code cannot reach.
func simPlace(t testing.TB) *tensor.Place { return tensortest.Open(t, "sim:total=1GiB") }

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
