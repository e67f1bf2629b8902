package layer_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A limit and a leak tracker over a caching allocator.
func Example() {
	dev := sim.New(sim.Options{Total: 1 << 30})
	defer dev.Close()
	inner, err := caching.New(dev, caching.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	limited := layer.NewLimiter(inner, 4<<20)
	a := layer.NewLeakTracker(limited, layer.LeakTrackerOptions{Depth: -1})

	s := dev.DefaultStream()
	b, err := a.Alloc(s, 3<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = a.Alloc(s, 2<<20)
	fmt.Println(err)
	fmt.Println(a.Leaks().Count, "live block of", a.Leaks().Bytes, "bytes")
	a.Free(b)
	fmt.Println(a.Leaks().Count, "live blocks")
	// Output:
	// mem: out of memory: 2.00MiB asked for, 3.00MiB of the limit of 4.00MiB allocated; free blocks or raise the limit
	// 1 live block of 3145728 bytes
	// 0 live blocks
}

// A scope frees its blocks when a function returns.
func ExampleNewScope() {
	dev := sim.New(sim.Options{Total: 1 << 30})
	defer dev.Close()
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	func() {
		s := layer.NewScope(a)
		defer s.Close()
		for range 3 {
			if _, err := s.Alloc(dev.DefaultStream(), 1<<20); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Println(a.Stats().Allocation.All.Current, "live blocks")
	}()
	fmt.Println(a.Stats().Allocation.All.Current, "live blocks")
	// Output:
	// 3 live blocks
	// 0 live blocks
}

// Two customers share an allocator: one has a guarantee, and neither reads what the other wrote.
func ExampleNewIsolatedQuotas() {
	device := sim.New(sim.Options{Total: 1 << 30})
	defer device.Close()
	dev := layer.NewTenantDevice(device)
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	quotas := layer.NewIsolatedQuotas(a, dev, 100<<20)
	anna, err := quotas.Tenant("anna", 40<<20, 80<<20) // 40 MiB guaranteed, 80 MiB at most
	if err != nil {
		fmt.Println(err)
		return
	}
	bob, err := quotas.Tenant("bob", 0, 80<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := device.DefaultStream()
	for _, tenant := range []*layer.Tenant{anna, anna, bob} {
		b, err := tenant.Alloc(s, 1<<20)
		if err != nil {
			fmt.Println(err)
			return
		}
		x := make([]byte, 1)
		if err := s.CopyOut(x, b.Ptr); err != nil {
			fmt.Println(err)
		}
		fmt.Printf("%s reads %d, wiped %d bytes so far\n", tenant.Name(), x[0], tenant.Stats().Wiped)
		if err := s.Fill(b.Ptr, 7, b.Size); err != nil {
			fmt.Println(err)
		}
		tenant.Free(b)
	}
	_, err = bob.Alloc(s, 70<<20)
	fmt.Println(err)
	// Output:
	// anna reads 0, wiped 1048576 bytes so far
	// anna reads 7, wiped 1048576 bytes so far
	// bob reads 0, wiped 1048576 bytes so far
	// layer: out of memory: tenant bob asked for 70.00MiB (a block of 70.00MiB) with 0B of its limit of 80.00MiB allocated, and 60.00MiB left to share; free blocks, or raise the limit or the total
}
