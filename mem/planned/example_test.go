package planned_test

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/trace"
)

// A script, or a recording, is made into a plan, and an allocator serves its requests.
func Example() {
	script, err := trace.ParseScript("alloc weights 4MiB\n" +
		"alloc a 1MiB\nalloc b 2MiB\nfree a\nalloc c 1MiB\nfree b\nfree c\n" +
		"alloc d 1MiB\nalloc e 2MiB\nfree d\nalloc f 1MiB\nfree e\nfree f\n")
	if err != nil {
		panic(err)
	}
	program, err := script.Program()
	if err != nil {
		panic(err)
	}
	plan, err := planned.Make(context.Background(), program, planned.Options{})
	if err != nil {
		panic(err)
	}
	dev := sim.New(sim.Options{})
	fallback, err := caching.New(dev, caching.Default())
	if err != nil {
		panic(err)
	}
	a, err := planned.New(dev, plan, planned.Settings{Fallback: fallback})
	if err != nil {
		panic(err)
	}
	defer a.Close()
	if _, err := a.Alloc(dev.DefaultStream(), 4<<20); err != nil {
		panic(err)
	}
	for _, size := range []int64{1 << 20, 2 << 20, 1 << 20, 5000} { // three of a round, and an unexpected one
		b, err := a.Alloc(dev.DefaultStream(), size)
		if err != nil {
			panic(err)
		}
		a.Free(b)
	}
	fmt.Println(plan.Size()>>20, "MiB,", a.Counts())
	// Output: 7 MiB, {4 1 0}
}
