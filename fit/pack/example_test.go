package pack_test

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/fit/pack"
)

func Example() {
	buffers := []pack.Buffer{
		{ID: "weights", Lower: 0, Upper: 4, Size: 4},
		{ID: "activations", Lower: 0, Upper: 2, Size: 6},
		{ID: "scratch", Lower: 1, Upper: 3, Size: 2},
		{ID: "gradients", Lower: 2, Upper: 4, Size: 6},
	}
	r, err := pack.Pack(context.Background(), buffers, pack.Options{Steps: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("height %d, lower bound %d\n", r.Height, r.Bound)
	height, err := pack.Validate(buffers, r.Offsets)
	fmt.Println(height, err)
	// Output:
	// height 12, lower bound 12
	// 12 <nil>
}
