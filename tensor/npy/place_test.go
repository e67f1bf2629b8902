package npy

import (
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

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
