package metrics_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/metrics"
	"github.com/ashlar-go/ashlar/tensor"
)

// All devices of an engine on one page. The devices of a closed engine fail: if the page outlives the engine, remove
// its sources first.
func Example_engine() {
	ctx := context.Background()
	eng, err := engine.Open(ctx, engine.Config{Devices: []engine.DeviceConfig{
		{Spec: "host:total=64MiB", MemoryLimit: 48 << 20},
		{Spec: "host:total=64MiB,ordinal=1"},
	}})
	if err != nil {
		panic(err)
	}
	defer eng.Close(ctx)
	var r metrics.Registry
	for i := range eng.Devices() {
		info, err := eng.DeviceInfo(i)
		if err != nil {
			panic(err)
		}
		device := fmt.Sprintf("%s:%d", info.Driver, info.Ordinal)
		if _, err := r.Add(metrics.Labels{Device: device, Allocator: "engine"}, eng.Allocator(i)); err != nil {
			panic(err)
		}
		if _, err := r.AddDevice(metrics.Labels{Device: device}, func() (free, total int64, err error) {
			info, err := eng.DeviceInfo(i)
			return info.Free, info.Total, err
		}); err != nil {
			panic(err)
		}
	}

	x, err := tensor.FromSlice(eng.Place(1), make([]float32, 1<<20))
	if err != nil {
		panic(err)
	}
	defer x.Release()
	var page strings.Builder
	if _, err := r.WriteTo(&page); err != nil {
		panic(err)
	}
	for line := range strings.Lines(page.String()) {
		switch name, _, _ := strings.Cut(line, "{"); name {
		case "ashlar_memory_allocated_bytes", "ashlar_memory_limit_bytes", "ashlar_device_total_bytes":
			fmt.Print(line)
		}
	}
	// Output:
	// ashlar_memory_allocated_bytes{device="host:0",allocator="engine",pool="small"} 0
	// ashlar_memory_allocated_bytes{device="host:0",allocator="engine",pool="large"} 0
	// ashlar_memory_allocated_bytes{device="host:1",allocator="engine",pool="small"} 0
	// ashlar_memory_allocated_bytes{device="host:1",allocator="engine",pool="large"} 4194304
	// ashlar_memory_limit_bytes{device="host:0",allocator="engine"} 50331648
	// ashlar_device_total_bytes{device="host:0"} 67108864
	// ashlar_device_total_bytes{device="host:1"} 67108864
}
