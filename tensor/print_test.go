package tensor

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// printFloats is a float32 tensor on the host.
func printFloats(t testing.TB, values []float32, shape ...int) *Tensor {
	return printOver(t, printHost(t), bytesOf(values), dtype.Float32, 0, shape, nil)
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

// Properties that do not fit on a line begin new ones.
func TestPrintBreaksLinesBetweenProperties(t *testing.T) {
	v := printOver(t, printHost(t), nil, dtype.Int16, 0, []int{0, 1000, 1000}, nil)
	for width, want := range map[int]string{
		80: "tensor([], size=(0, 1000, 1000), dtype=torch.int16)",
		33: "tensor([], size=(0, 1000, 1000),\n       dtype=torch.int16)",
		32: "tensor([],\n       size=(0, 1000, 1000),\n       dtype=torch.int16)",
	} {
		o := PyTorchStyle.Options()
		o.LineWidth = width
		got, err := v.Text(o)
		testkit.Must(t, err)
		wantText(t, fmt.Sprint("a width of ", width), got, want)
	}
}

func TestPrintWithFmt(t *testing.T) {
	v := printFloats(t, []float32{1, 2.5, -3.25, 4, 5, 6}, 2, 3)
	plain := "tensor([[ 1.0000,  2.5000, -3.2500],\n        [ 4.0000,  5.0000,  6.0000]])"
	wantText(t, "String", v.String(), plain)
	wantText(t, "%v", fmt.Sprintf("%v", v), plain)
	wantText(t, "%s", fmt.Sprintf("%s", v), plain)
	wantText(t, "%.1v", fmt.Sprintf("%.1v", v), "tensor([[ 1.0,  2.5, -3.2],\n        [ 4.0,  5.0,  6.0]])")
	wantText(t, "%d", fmt.Sprintf("%d", v), "%!d(tensor float32[2 3])")
	wantText(t, "%+v", fmt.Sprintf("%+v", v),
		"tensor([[ 1.0000,  2.5000, -3.2500],\n        [ 4.0000,  5.0000,  6.0000]], size=(2, 3), stride=(3, 1))")
	corner, err := v.Slice(Index(1), From(2))
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, "%+v of a view", fmt.Sprintf("%+v", corner), "tensor([6.], size=(1,), stride=(1,), storage_offset=5)")
	empty := printFloats(t, nil, 0)
	wantText(t, "%v of none", fmt.Sprint(empty), "tensor([])")
	wantText(t, "%+v of none", fmt.Sprintf("%+v", empty), "tensor([], size=(0,), stride=(1,))")
}

// Whatever has become of a tensor, a line of a log that names it must not stop the program.
func TestPrintOfWhatCannotBeRead(t *testing.T) {
	var none *Tensor
	wantText(t, "undefined", none.String(), "tensor(undefined)")
	wantText(t, "%v of undefined", fmt.Sprintf("%+.3v", none), "tensor(undefined)")
	wantText(t, "%d of undefined", fmt.Sprintf("%d", none), "%!d(tensor undefined)")
	if s, err := none.Text(NumPyStyle.Options()); s != "array(undefined)" || err != nil {
		t.Errorf("undefined: %q, %v", s, err)
	}

	v := printFloats(t, []float32{1, 2}, 2)
	borrower := v.T()
	v.Release()
	for _, v := range []*Tensor{v, borrower} {
		if s := v.String(); !strings.HasPrefix(s, "tensor(float32[2], released at print_test.go:") {
			t.Errorf("released: %s", s)
		}
		testkit.WantPanic(t, "Text of a released tensor", "", func() { v.Text(NumPyStyle.Options()) })
	}

	d := drivertest.OpenSim(t, 0)
	p := printPlace(d, nil)
	ptr := drivertest.Alloc(t, d, 8)
	v = printAt(t, p, ptr, dtype.Float32, []int{2}, nil)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if s := v.String(); !strings.HasPrefix(s, "tensor(float32[2], not readable: ") || !strings.Contains(s, "closed") {
		t.Errorf("of a closed device: %s", s)
	}
	if s, err := v.Text(NumPyStyle.Options()); err == nil || s != "" {
		t.Errorf("Text of a closed device: %q, %v", s, err)
	}
}

// printAt is a tensor on memory of a device.
func printAt(t testing.TB, p *Place, ptr driver.Pointer, d dtype.DType, shape, strides []int) *Tensor {
	t.Helper()
	if strides == nil {
		strides = contiguous(shape)
	}
	_, last, _ := span(0, shape, strides)
	s, err := FromPointer(p, ptr, int64(last+1)*int64(d.Size()), nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := FromStorage(p, s, d, 0, shape, strides)
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	return v
}

// cudaLike is a device that reports itself as the second NVIDIA GPU.
type cudaLike struct{ driver.Device }

func (d cudaLike) Info() driver.Info {
	info := d.Device.Info()
	info.Driver, info.Ordinal = "cuda", 1
	return info
}

func TestPrintNamesTheDevice(t *testing.T) {
	d := drivertest.OpenSim(t, 0)
	ptr := drivertest.Alloc(t, d, 64)
	if err := d.DefaultStream().CopyIn(ptr, bytesOf([]int32{1, -2, 3, 4})); err != nil {
		t.Fatal(err)
	}
	v := printAt(t, printPlace(cudaLike{d}, nil), ptr, dtype.Int32, []int{2, 2}, nil)
	wantText(t, "on a GPU", v.String(), "tensor([[ 1, -2],\n        [ 3,  4]], device='cuda:1', dtype=torch.int32)")
	if s, err := v.Text(NumPyStyle.Options()); s != "array([[ 1, -2],\n       [ 3,  4]], dtype=int32)" || err != nil {
		t.Errorf("numpy knows no devices: %s, %v", s, err)
	}
	v = printAt(t, printPlace(d, nil), ptr, dtype.Int32, []int{0, 2}, nil)
	wantText(t, "simulated", v.String(), "tensor([], device='sim', size=(0, 2), dtype=torch.int32)")
}

// What no version of the others that the golden cases may come from prints: an explicit sci_mode as PyTorch has it since
// 2.4 (the example of https://github.com/pytorch/pytorch/pull/126859), and what neither of the two can do.
func TestPrintOptions(t *testing.T) {
	torch, numpy := PyTorchStyle.Options(), NumPyStyle.Options()
	with := func(o PrintOptions, change func(*PrintOptions)) PrintOptions {
		change(&o)
		return o
	}
	always := func(o *PrintOptions) { o.SciMode = SciAlways }
	never := func(o *PrintOptions) { o.SciMode = SciNever }
	digits := func(o *PrintOptions) { o.Precision = -1 }
	half := printOver(t, printHost(t), bytesOf([]dtype.F16{dtype.ToF16(0.1), dtype.ToF16(65504)}), dtype.Float16, 0, []int{2}, nil)
	eight := printOver(t, printHost(t), []byte{0x38, 0x08, 0x7f, 0xff}, dtype.Float8E4M3FN, 0, []int{4}, nil)
	brain := printOver(t, printHost(t), bytesOf([]dtype.BF16{dtype.ToBF16(0.1), dtype.ToBF16(3)}), dtype.BFloat16, 0, []int{2}, nil)
	for _, c := range []struct {
		v    *Tensor
		o    PrintOptions
		want string
	}{
		{printFloats(t, []float32{10, 0.1, 0.01}, 3), with(torch, never), "tensor([10.0000,  0.1000,  0.0100])"},
		{printFloats(t, []float32{10, 0.1, 0.1}, 3), with(torch, always), "tensor([1.0000e+01, 1.0000e-01, 1.0000e-01])"},
		{printFloats(t, []float32{10, -1}, 2), with(torch, always), "tensor([ 1.0000e+01, -1.0000e+00])"},
		{printFloats(t, []float32{1e9, -1}, 2), with(torch, never), "tensor([1000000000.,         -1.])"},
		{printFloats(t, []float32{0, float32(math.Inf(1))}, 2), with(torch, always), "tensor([0., inf])"},
		{printFloats(t, []float32{10, 0.5}, 2), with(numpy, always), "array([1.e+01, 5.e-01], dtype=float32)"},
		{printFloats(t, []float32{0}, 1), with(numpy, always), "array([0.e+00], dtype=float32)"},
		{printFloats(t, []float32{0.1, 3}, 2), with(torch, digits), "tensor([0.1,   3])"},
		{printFloats(t, []float32{1.0 / 3, 3}, 2), with(numpy, digits), "array([0.33333334, 3.        ], dtype=float32)"},
		{half, with(torch, digits), "tensor([   1e-01, 6.55e+04], dtype=torch.float16)"},
		{half, numpy, "array([1.00e-01, 6.55e+04], dtype=float16)"},
		{eight, torch, "tensor([1.0000, 0.0156,    nan,    nan], dtype=torch.float8_e4m3fn)"},
		{eight, numpy, "array([1.   , 0.016,   nan,   nan], dtype=float8_e4m3fn)"},
		{brain, torch, "tensor([0.1001, 3.0000], dtype=torch.bfloat16)"},
		{brain, numpy, "array([0.1, 3. ], dtype=bfloat16)"},
		{printFloats(t, make([]float32, 9), 9), PrintOptions{}, "tensor([0.,\n         ...,\n        0.])"},
		{printFloats(t, make([]float32, 9), 3, 3), PrintOptions{Style: NumPyStyle}, "array([[0.,\n        ...,\n        0.],\n       ...,\n       [0.,\n        ...,\n        0.]],\n      dtype=float32)"},
	} {
		s, err := c.v.Text(c.o)
		if err != nil {
			t.Error(err)
		}
		wantText(t, fmt.Sprintf("%s with %+v", c.v.Brief(), c.o), s, c.want)
	}
}
