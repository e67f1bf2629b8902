//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// DriverOf is the driver on a machine, for tests that use this package from outside.
func DriverOf(m *fakecuda.Machine) driver.Driver { return driverOf(m) }
