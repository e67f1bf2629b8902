package intercept_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
)

func Example() {
	calls := map[intercept.Kind]int{}
	dev := intercept.Wrap(sim.New(sim.Options{}), func(c intercept.Call, next func() error) error {
		calls[c.Kind]++
		return next()
	})
	defer dev.Close()
	p, err := dev.Alloc(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	if err := dev.DefaultStream().Fill(p, 0, 1<<20); err != nil {
		log.Fatal(err)
	}
	if err := dev.Free(p); err != nil {
		log.Fatal(err)
	}
	fmt.Println(calls)
	// Output: map[Alloc:1 Free:1 Stream.Fill:1]
}
