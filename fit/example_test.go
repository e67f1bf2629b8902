package fit_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/fit"
)

func Example() {
	f := fit.NewFirstFit[string](256, nil)
	f.Give(0, 4096, "all")
	a, _, _ := f.Take(1000)
	b, _, _ := f.Take(500)
	c, _, _ := f.TakeLast(500)
	f.Give(a, 1000, "a")
	fmt.Println(a, b, c)
	for hole, v := range f.All() {
		fmt.Println(hole, v)
	}
	_, _, ok := f.Take(3000)
	fmt.Println(f.Free(), f.Largest(), ok)
	// Output:
	// 0 1024 3584
	// [0,1024) a
	// [1524,3584) all
	// [4084,4096) all
	// 3096 2048 false
}
