package raw_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// A plug-in is called with a device's number and the handle of a stream, and frees by address: what
// CUDAPluggableAllocator of PyTorch asks of a shared library. It keeps the devices, and a Stream for each handle; the
// rest is here.
func Example_plugin() {
	devices := []driver.Device{sim.New(sim.Options{Base: 1 << 44}), sim.New(sim.Options{Base: 1 << 45})}
	streamOf := func(device int, handle uintptr) driver.Stream {
		if handle == 0 {
			return devices[device].DefaultStream()
		}
		panic("the simulator's streams have no handles: with CUDA, NewStream(StreamOptions{Foreign: handle}), once for each")
	}
	malloc := func(size int64, device int, stream uintptr) driver.Pointer {
		p, err := raw.AllocOn(devices[device], streamOf(device, stream), size)
		if err != nil {
			return 0
		}
		return p
	}
	free := func(p driver.Pointer, _ int64, _ int, _ uintptr) { raw.Delete(p) } // the stream is the one of its malloc

	p := malloc(1000, 1, 0)
	dev, _ := raw.DeviceOf(p)
	fmt.Println("of the second device:", dev == devices[1])
	free(p, 1000, 1, 0)
	fmt.Println("the same memory again:", malloc(1000, 1, 0) == p)
	free(p, 1000, 1, 0)

	for _, dev := range devices {
		raw.SetCurrent(dev, nil)
		dev.Close()
	}
	// Output:
	// of the second device: true
	// the same memory again: true
}
