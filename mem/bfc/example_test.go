package bfc_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

func Example() {
	dev := sim.New(sim.Options{})
	defer dev.Close()
	s := dev.DefaultStream()
	a, err := bfc.New(dev, bfc.Config{Limit: 64 << 10, NoGrowth: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, _ := a.Alloc(s, 10_000)
	second, _ := a.Alloc(s, 20_000)
	a.Free(first)
	fmt.Println(first.Size, second.Size, second.Ptr-first.Ptr)
	fmt.Println(a.Map())
	fmt.Printf("%.2f\n", a.Fragmentation())
	a.Free(second)
	fmt.Println(a.Close())
	// Output:
	// 10240 20224 10240
	// _______________********************************_____________________________________________________
	// 0.23
	// <nil>
}
