package mem_test

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	_ "github.com/ashlar-go/ashlar/mem/caching" // registers "caching"
)

// Open an allocator by name, allocate on a stream, and read its statistics.
func Example() {
	dev := sim.New(sim.Options{Total: 1 << 30})
	defer dev.Close()
	a, err := mem.Open("caching:max_split_size_mb:128", dev)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := dev.DefaultStream()
	b, err := a.Alloc(s, 1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Size, "bytes")
	if r, ok := mem.Find[mem.StatsReporter](a); ok {
		fmt.Println(r.Stats().AllocatedBytes.All.Current, "allocated")
	}
	_, err = a.Alloc(s, 2<<30)
	fmt.Println(errors.Is(err, mem.ErrNoMemory))
	a.Free(b)
	// Output:
	// 1024 bytes
	// 1024 allocated
	// true
}
