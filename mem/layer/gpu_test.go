//go:build gpu

package layer_test

import (
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// Tenants own 64 MiB of a real GPU in turn, fill them, and read all that they get. A device stays open all the while,
// so that opening one more makes no context.
func TestTenantsReadNoBytesOfOthersOnCUDA(t *testing.T) {
	open := memtest.On("cuda:0,total=64MiB")
	defer open(t).Close()
	runCanaries(t, open, 2, 200)
}

// A real capture does not break when fresh memory is wiped beside it.
func TestTenantInACaptureOnCUDA(t *testing.T) {
	runTenantInACapture(t, drivertest.OpenDevice(t, "cuda:0,total=1GiB"))
}

// BenchmarkWipeOnCUDA reports the bytes a second that pass from one tenant to another, with the wait for each.
func BenchmarkWipeOnCUDA(b *testing.B) {
	benchmarkWipe(b, drivertest.OpenDevice(b, "cuda:0"), 4<<30)
}
