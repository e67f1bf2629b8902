package tensor_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/compute"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// openHost returns a place on the host.
func openHost() *tensor.Place {
	p, err := compute.Open("host")
	if err != nil {
		panic(err)
	}
	return p
}

// numbers are 0, 1, 2, ...
func numbers(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

func ExampleTensor_Slice() {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, numbers(24), 4, 6))
	defer x.Release()
	for _, ranges := range [][]tensor.Range{
		{tensor.Index(1)},                                        // x[1]
		{tensor.FromTo(1, 3), tensor.UpTo(2)},                    // x[1:3, :2]
		{tensor.Rest, tensor.Index(-1)},                          // x[..., -1]
		{tensor.Index(0), tensor.Whole.By(-2)},                   // x[0, ::-2]
		{tensor.From(-1), tensor.NewAxis, tensor.FromTo(0, 100)}, // x[-1:, None, 0:100]
	} {
		v := tensor.Must(x.Slice(ranges...))
		elements, err := tensor.ToSlice[float32](v)
		fmt.Println(ranges, v.Shape(), elements, err)
	}
	// Output:
	// [1] [6] [6 7 8 9 10 11] <nil>
	// [1:3 :2] [2 2] [6 7 12 13] <nil>
	// [... -1] [4] [5 11 17 23] <nil>
	// [0 ::-2] [3] [5 3 1] <nil>
	// [-1: None 0:100] [1 1 6] [18 19 20 21 22 23] <nil>
}

func ExampleTensor_Reshape() {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, numbers(6), 2, 3))
	defer x.Release()
	fmt.Println(tensor.Must(x.Reshape(3, -1)).Shape())
	_, err := x.T().Reshape(6)
	fmt.Println(err)
	if errors.Is(err, tensor.ErrNeedsCopy) {
		y := tensor.Must(x.T().Contiguous(nil))
		defer y.Release()
		fmt.Println(tensor.ToSlice[float32](tensor.Must(y.Reshape(6))))
	}
	// Output:
	// [3 2]
	// tensor: Reshape([6]) of float32[3 2]: with strides [1 3], the view needs a copy: call Contiguous first
	// [0 3 1 4 2 5] <nil>
}

func ExampleView() {
	p := openHost()
	defer p.Close()
	data := []float64{1, 2, 3, 4, 5, 6}
	x := tensor.Must(tensor.View(p, data, 2, 3))
	defer x.Release()
	data[5] = 60 // is seen through the tensor: nothing was copied
	fmt.Println(tensor.ToSlice[float64](x.T()))
	// Output: [1 4 2 5 3 60] <nil>
}

func ExampleAll() {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, []int32{1, 2, 3, 4}, 2, 2))
	defer x.Release()
	elements, failed := tensor.All[int32](x.T())
	for index, v := range elements {
		fmt.Println(index, v)
	}
	if err := failed(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// [0 0] 1
	// [0 1] 3
	// [1 0] 2
	// [1 1] 4
}

func ExampleTensor_ViewAs() {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, []complex64{1 + 2i, 3 + 4i}))
	defer x.Release()
	pairs := tensor.Must(tensor.Must(x.Unsqueeze(-1)).ViewAs(dtype.Float32))
	elements, err := tensor.ToSlice[float32](pairs)
	fmt.Println(pairs.Brief(), elements, err)
	imag, err := tensor.ToSlice[float32](tensor.Must(x.Imag()))
	fmt.Println(imag, err, slices.Max(imag))
	// Output:
	// float32[2 2] [1 2 3 4] <nil>
	// [2 4] <nil> 4
}
