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
