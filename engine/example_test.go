package engine_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/tensor"
)

func ExampleOpen() {
	ctx := context.Background()
	eng, err := engine.Open(ctx, engine.Config{
		Devices: []engine.DeviceConfig{{Spec: "host"}}, // without: the best there is
	})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close(ctx)
	s, err := eng.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close() // releases what is made at its place

	x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	y, err := compute.MatMul(s.Place(), x, x.T())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(y)
	fmt.Println(s.UsedMemory(), "bytes")
	// Output:
	// tensor([[14., 32.],
	//         [32., 77.]])
	// 40 bytes
}

func ExampleEngine_EachDevice() {
	ctx := context.Background()
	eng, err := engine.Open(ctx, engine.Config{Devices: []engine.DeviceConfig{
		{Spec: "host:total=64MiB"},
		{Spec: "host:total=64MiB,ordinal=1"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close(ctx)
	sums := make([]*tensor.Tensor, eng.Devices())
	err = eng.EachDevice(ctx, func(ctx context.Context, s *engine.Session) error {
		x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3})
		if err != nil {
			return err
		}
		y, err := compute.Mul(s.Place(), x, s.Device()+1)
		if err != nil {
			return err
		}
		sums[s.Device()] = s.Keep(y)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for i, y := range sums {
		fmt.Println(i, y)
		y.Release()
	}
	// Output:
	// 0 tensor([1., 2., 3.])
	// 1 tensor([2., 4., 6.])
}

// A server with two customers: each has a quota, and the memory that passes from one to the other is wiped.
func ExampleEngine_NewTenant() {
	ctx := context.Background()
	eng, err := engine.Open(ctx, engine.Config{
		Tenants: true,
		Devices: []engine.DeviceConfig{{Spec: "host:total=64MiB"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close(ctx)
	anna, err := eng.NewTenant(engine.TenantConfig{Name: "anna", Reserved: 16 << 20})
	if err != nil {
		log.Fatal(err)
	}
	bob, err := eng.NewTenant(engine.TenantConfig{Name: "bob", Limit: 32 << 20})
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []*engine.Tenant{anna, bob} {
		s, err := tenant.NewSession()
		if err != nil {
			log.Fatal(err)
		}
		if _, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3}); err != nil {
			log.Fatal(err)
		}
		_, err = tensor.FromSlice(s.Place(), make([]float32, 10<<20)) // 40 MiB
		fmt.Println(tenant.Name(), err == nil, tenant.On(0).Stats().Share>>20, "MiB")
		s.Close()
		if err := tenant.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// anna true 32 MiB
	// bob false 32 MiB
}
