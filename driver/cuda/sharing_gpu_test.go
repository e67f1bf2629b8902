//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest/multiprocess"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestGPUSharing has processes share memory of the machine's first device.
func TestGPUSharing(t *testing.T) {
	self, err := os.Executable()
	testkit.Must(t, err)
	multiprocess.RunSharing(t, func(t testing.TB) driver.Device {
		d, err := driver.Open("cuda")
		testkit.Must(t, err)
		return d
	}, func() *exec.Cmd { return exec.Command(self, "serve-sharing") }) // see TestMain
}
