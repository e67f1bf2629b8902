package tensor_test

import (
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

func TestViewAsReadsTheSameBytes(t *testing.T) {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, []float32{1, -2, 0.5, 3}, 2, 2))
	defer x.Release()
	words, err := tensor.ToSlice[uint32](tensor.Must(x.T().ViewAs(dtype.Uint32)))
	if want := []uint32{0x3f800000, 0x3f000000, 0xc0000000, 0x40400000}; err != nil || !slices.Equal(words, want) {
		t.Errorf("of one size, with any strides: %#x, %v", words, err)
	}
	halves := tensor.Must(x.ViewAs(dtype.BFloat16))
	bits, err := tensor.ToSlice[dtype.BF16](halves)
	if want := []dtype.BF16{0, 0x3f80, 0, 0xc000, 0, 0x3f00, 0, 0x4040}; err != nil || !slices.Equal(bits, want) || !slices.Equal(halves.Shape(), []int{2, 4}) {
		t.Errorf("smaller: %v %#x, %v", halves.Brief(), bits, err)
	}
	pairs := tensor.Must(x.ViewAs(dtype.Complex64))
	numbers, err := tensor.ToSlice[complex64](pairs)
	if want := []complex64{1 - 2i, 0.5 + 3i}; err != nil || !slices.Equal(numbers, want) || !slices.Equal(pairs.Shape(), []int{2, 1}) {
		t.Errorf("greater: %v %v, %v", pairs.Brief(), numbers, err)
	}
	again := tensor.Must(halves.ViewAs(dtype.Float32))
	if !slices.Equal(again.Shape(), x.Shape()) || !slices.Equal(again.Strides(), x.Strides()) {
		t.Errorf("there and back: %v with strides %v", again.Brief(), again.Strides())
	}
	for _, c := range []struct {
		v    *tensor.Tensor
		fits bool
	}{
		{tensor.Must(x.Slice(tensor.Whole, tensor.FromTo(1, 2))), false},                              // an odd length
		{tensor.Must(tensor.Must(x.Flatten(0, -1)).Slice(tensor.FromTo(1, 3))), false},                // an odd offset
		{tensor.Must(x.AsStrided([]int{2, 2}, []int{1, 1}, 0)), false},                                // an odd stride
		{tensor.Must(x.AsStrided([]int{1, 2}, []int{1, 1}, 0)), true},                                 // which nothing takes
		{tensor.Must(tensor.Must(x.Flatten(0, -1)).Slice(tensor.Whole.By(2))), false},                 // no neighbours
		{tensor.Must(x.Select(0, 1)), true},                                                           //
		{tensor.Must(tensor.Must(x.Slice(tensor.Index(0), tensor.Index(0))).Unsqueeze(0)), false},     // one element
		{tensor.Must(x.Slice(tensor.Whole, tensor.FromTo(1, 1))), true},                               // none
		{tensor.Must(tensor.Must(x.Slice(tensor.Index(0), tensor.FromTo(0, 1))).Expand(2, 1)), false}, // one, twice
		{tensor.Must(tensor.Must(x.Slice(tensor.Index(0))).Expand(3, 2)), true},                       // two, three times
	} {
		if _, err := c.v.ViewAs(dtype.Float64); (err == nil) != c.fits {
			t.Errorf("%v with strides %v at %d: %v", c.v.Brief(), c.v.Strides(), c.v.Offset(), err)
		}
	}
	flags := tensor.Must(tensor.FromSlice(p, []bool{true, false}))
	defer flags.Release()
	if got, err := tensor.ToSlice[uint8](tensor.Must(flags.ViewAs(dtype.Uint8))); err != nil || !slices.Equal(got, []uint8{1, 0}) {
		t.Error("bools as bytes:", got, err)
	}
}

func TestPartsOfComplexNumbers(t *testing.T) {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, []complex128{1 + 2i, 3 + 4i, 5 + 6i, 7 + 8i}, 2, 2))
	defer x.Release()
	v := tensor.Must(x.Slice(tensor.Whole.By(-1), tensor.Index(1)))
	re, err := tensor.ToSlice[float64](v.Real())
	if err != nil || !slices.Equal(re, []float64{7, 3}) {
		t.Error(re, err)
	}
	im, err := tensor.ToSlice[float64](tensor.Must(v.Imag()))
	if err != nil || !slices.Equal(im, []float64{8, 4}) {
		t.Error(im, err)
	}
	if again := v.Real().Real(); again.DType() != dtype.Float64 || !slices.Equal(again.Strides(), v.Real().Strides()) {
		t.Error("real numbers are their own real parts", again.Brief())
	}
}
