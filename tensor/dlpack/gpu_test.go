package dlpack

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// A gpu is a simulated device that reports itself as an NVIDIA GPU.
type gpu struct {
	driver.Device
	ordinal int
}

func (g gpu) Info() driver.Info {
	info := g.Device.Info()
	info.Driver, info.Ordinal = "cuda", g.ordinal
	return info
}

func gpuPlace(t testing.TB, ordinal int) *tensor.Place {
	return tensortest.On(t, gpu{drivertest.OpenSim(t, 1<<30), ordinal})
}
