package otel_test

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/metrics"
	"github.com/ashlar-go/ashlar/metrics/otel"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// The reader stands for an exporter: sdk.NewPeriodicReader with one of OTLP, in a program.
func ExampleRegister() {
	dev, err := driver.Open("sim:total=1GiB")
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	a := direct.New(dev, direct.Config{})
	defer a.Close()

	var registry metrics.Registry
	if _, err := registry.Add(metrics.Labels{Device: "sim:0", Allocator: "main"}, a); err != nil {
		panic(err)
	}
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	unregister, err := otel.Register(provider.Meter("github.com/ashlar-go/ashlar"), &registry)
	if err != nil {
		panic(err)
	}
	defer unregister()

	b, err := a.Alloc(dev.DefaultStream(), 4096)
	if err != nil {
		panic(err)
	}
	defer a.Free(b)
	var got metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &got); err != nil {
		panic(err)
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if m.Name != "ashlar.memory.allocated" {
			continue
		}
		total := int64(0)
		for _, d := range m.Data.(metricdata.Sum[int64]).DataPoints {
			total += d.Value
		}
		fmt.Println(m.Name, total, m.Unit)
	}
	// Output: ashlar.memory.allocated 4096 By
}
