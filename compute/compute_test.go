package compute_test

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// place opens a device, and checks at the end of the test that all its tensors were released.
func place(t testing.TB, spec string) *tensor.Scope {
	t.Helper()
	return tensortest.Scope(t, spec)
}

func slice[T dtype.Element](t testing.TB, p *tensor.Scope, data []T, shape ...int) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(p.Place, data, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// want checks shape, type and elements of a result.
func want[T dtype.Element](t *testing.T, got *tensor.Tensor, err error, shape []int, elements ...T) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	if got.DType() != dtype.Of[T]() || !slices.Equal(got.Shape(), shape) {
		t.Errorf("got %s, want %v%v", got.Brief(), dtype.Of[T](), shape)
		return
	}
	have, err := tensor.ToSlice[T](got)
	if err != nil {
		t.Error(err)
	} else if !slices.Equal(have, elements) {
		t.Errorf("got %v, want %v", have, elements)
	}
}

func TestElementwise(t *testing.T) {
	for _, spec := range []string{"host", "sim:total=1GiB"} {
		t.Run(spec, func(t *testing.T) {
			p := place(t, spec)
			x := slice(t, p, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
			row := slice(t, p, []float32{10, 20, 30})
			sum, err := compute.Add(p.Place, x, row)
			want(t, sum, err, []int{2, 3}, float32(11), 22, 33, 14, 25, 36)
			twice, err := compute.Mul(nil, x, 2) // at x's place, and in no scope
			p.Adopt(twice)
			want(t, twice, err, []int{2, 3}, float32(2), 4, 6, 8, 10, 12)
			whole := slice(t, p, []int32{7, -7})
			ratio, err := compute.Div(p.Place, whole, 2)
			want(t, ratio, err, []int{2}, float32(3.5), -3.5)
			down, err := compute.FloorDiv(p.Place, whole, 2)
			want(t, down, err, []int{2}, int32(3), -4)
			lifted, err := compute.Add(p.Place, whole, 0.5)
			want(t, lifted, err, []int{2}, float32(7.5), -6.5)
			more, err := compute.Greater(p.Place, x.T(), 3.5)
			want(t, more, err, []int{3, 2}, false, true, false, true, false, true)
			chosen, err := compute.Where(p.Place, more, x.T(), 0)
			want(t, chosen, err, []int{3, 2}, float32(0), 4, 0, 5, 0, 6)
			root, err := compute.Sqrt(p.Place, slice(t, p, []int64{4, 9}))
			want(t, root, err, []int{2}, float32(2), 3)
			same, err := compute.Floor(p.Place, whole)
			want(t, same, err, []int{2}, int32(7), -7)
		})
	}
}

func TestInPlace(t *testing.T) {
	p := place(t, "host")
	x := slice(t, p, []float32{1, 2, 3, 4}, 2, 2)
	err := compute.BinaryInto(nil, x, backend.Add, x, 1)
	want(t, x, err, []int{2, 2}, float32(2), 3, 4, 5)
	err = compute.BinaryInto(nil, x, backend.Add, x, x.T()) // it reads what it writes, in another order
	want(t, x, err, []int{2, 2}, float32(4), 7, 7, 10)
	half, err := x.Cast(p.Place, dtype.Float16)
	if err != nil {
		t.Fatal(err)
	}
	err = compute.UnaryInto(nil, half, backend.Neg, x) // float32 into float16: of the same kind
	want(t, half, err, []int{2, 2}, dtype.ToF16(-4), dtype.ToF16(-7), dtype.ToF16(-7), dtype.ToF16(-10))
	n := slice(t, p, []int32{1, 2})
	if err := compute.BinaryInto(nil, n, backend.Add, n, 0.5); !errors.Is(err, compute.ErrType) {
		t.Errorf("a float result into an integer tensor: %v, want ErrType", err)
	}
	wide, err := n.Expand(3, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := compute.BinaryInto(nil, wide, backend.Add, wide, 1); err == nil {
		t.Error("an operation in place on a broadcast view was allowed")
	}
}

func TestReductions(t *testing.T) {
	p := place(t, "host")
	x := slice(t, p, []float32{1, 5, 3, 4, 2, 6}, 2, 3)
	all, err := compute.Sum(p.Place, x)
	want(t, all, err, nil, float32(21))
	rows, err := compute.Sum(p.Place, x, -1)
	want(t, rows, err, []int{2}, float32(9), 12)
	kept, err := compute.Reduce(p.Place, backend.Max, x, compute.Over{Axes: []int{0}, Keep: true})
	want(t, kept, err, []int{1, 3}, float32(4), 5, 6)
	mean, err := compute.Mean(p.Place, x, 0)
	want(t, mean, err, []int{3}, float32(2.5), 3.5, 4.5)
	which, err := compute.ArgMax(p.Place, x, 1)
	want(t, which, err, []int{2}, int64(1), 2)
	bools, err := compute.Sum(p.Place, slice(t, p, []bool{true, false, true}))
	want(t, bools, err, nil, int64(2))
	nothing, err := compute.Sum(p.Place, slice(t, p, []float32{}, 0, 2), 0)
	want(t, nothing, err, []int{2}, float32(0), 0)
	if _, err := compute.Max(p.Place, slice(t, p, []float32{}, 0, 2), 0); !errors.Is(err, compute.ErrShape) {
		t.Errorf("the greatest of nothing: %v, want ErrShape", err)
	}
}

func TestSoftmaxAndNorms(t *testing.T) {
	p := place(t, "host")
	x := slice(t, p, []float64{0, math.Log(3), 1000, 1000}, 2, 2)
	soft, err := compute.Softmax(p.Place, x, 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tensor.ToSlice[float64](soft)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range []float64{0.25, 0.75, 0.5, 0.5} {
		if math.Abs(got[i]-w) > 1e-15 {
			t.Errorf("softmax: %v", got)
		}
	}
	layer, err := compute.LayerNorm(p.Place, slice(t, p, []float64{1, 3, 2, 6}, 2, 2), slice(t, p, []float64{1, 2}), slice(t, p, []float64{0, 5}), 0)
	want(t, layer, err, []int{2, 2}, -1.0, 7, -1, 7)
	rms, err := compute.RMSNorm(p.Place, slice(t, p, []float64{3, 3, -4, 4}, 2, 2), slice(t, p, []float64{1, 2}), 0)
	want(t, rms, err, []int{2, 2}, 1.0, 2, -1, 2)
}

func TestIndexing(t *testing.T) {
	p := place(t, "host")
	x := slice(t, p, []int16{1, 2, 3, 4, 5, 6}, 2, 3)
	picked, err := compute.Gather(p.Place, x, 1, slice(t, p, []int64{2, 0, 1, 1}, 2, 2))
	want(t, picked, err, []int{2, 2}, int16(3), 1, 5, 5)
	columns, err := compute.IndexSelect(p.Place, x, -1, slice(t, p, []int32{2, 0}))
	want(t, columns, err, []int{2, 2}, int16(3), 1, 6, 4)
	acc := slice(t, p, []int16{0, 0, 0})
	err = compute.ScatterAdd(nil, acc, 0, slice(t, p, []int64{2, 0, 2}), slice(t, p, []int16{1, 2, 3}))
	want(t, acc, err, []int{3}, int16(2), 0, 4)
	joined, err := compute.Concat(p.Place, 1, x, slice(t, p, []int64{7, 8}, 2, 1))
	want(t, joined, err, []int{2, 4}, int64(1), 2, 3, 7, 4, 5, 6, 8)
	stacked, err := compute.Stack(p.Place, -1, acc, acc)
	want(t, stacked, err, []int{3, 2}, int16(2), 2, 0, 0, 4, 4)
	bad, err := compute.IndexSelect(p.Place, x, 1, slice(t, p, []int64{0, 3}))
	if err != nil {
		t.Fatal(err)
	}
	var wrong *backend.IndexError
	if err := bad.Place().Sync(t.Context()); !errors.As(err, &wrong) || wrong.Index != 3 || wrong.Size != 3 {
		t.Errorf("an index out of range: %v, want an IndexError of 3 for 3", err)
	}
}

func TestSorting(t *testing.T) {
	p := place(t, "host")
	nan := float32(math.NaN())
	x := slice(t, p, []float32{2, nan, 1, 2})
	v, i, err := compute.Sort(p.Place, x, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	want(t, i, nil, []int{4}, int64(1), 0, 3, 2)
	if got, _ := tensor.ToSlice[float32](v); !(got[0] != got[0] && got[1] == 2 && got[3] == 1) {
		t.Errorf("sorted: %v", got)
	}
	v, i, err = compute.BottomK(p.Place, x, 2, -1)
	want(t, v, err, []int{2}, float32(1), 2)
	want(t, i, err, []int{2}, int64(2), 0)
	if _, _, err := compute.TopK(p.Place, x, 5, 0); !errors.Is(err, compute.ErrShape) {
		t.Errorf("the greatest 5 of 4: %v, want ErrShape", err)
	}
}

func TestMatMul(t *testing.T) {
	p := place(t, "host")
	x := slice(t, p, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	square, err := compute.MatMul(p.Place, x, x.T())
	want(t, square, err, []int{2, 2}, float32(14), 32, 32, 77)
	column, err := compute.MatMul(p.Place, x, slice(t, p, []float32{1, 0, -1}))
	want(t, column, err, []int{2}, float32(-2), -2)
	dot, err := compute.MatMul(p.Place, slice(t, p, []int64{1, 2}), slice(t, p, []int64{3, 4}))
	want(t, dot, err, nil, int64(11))
	three, err := x.Expand(3, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := compute.MatMul(p.Place, three, slice(t, p, []float32{1, 1, 1}, 3, 1))
	want(t, batch, err, []int{3, 2, 1}, float32(6), 15, 6, 15, 6, 15)
}

func TestRefusalsNameBothSides(t *testing.T) {
	p, other := place(t, "host"), place(t, "sim:total=1GiB")
	x, y := slice(t, p, []float32{1, 2, 3, 4, 5, 6}, 2, 3), slice(t, p, []int64{1, 2}, 2)
	far := slice(t, other, []float32{1, 2, 3})
	pair := func(_ *tensor.Tensor, err error) error { return err }
	for name, c := range map[string]struct {
		err  error
		kind error
		says []string
	}{
		"shapes":       {pair(compute.Add(p.Place, x, y)), compute.ErrShape, []string{"add", "float32[2 3]", "int64[2]"}},
		"devices":      {pair(compute.Add(p.Place, x, far)), compute.ErrDevice, []string{"float32[2 3] on host", "float32[3] on sim"}},
		"types":        {pair(compute.MatMul(p.Place, x, y)), compute.ErrType, []string{"matmul", "float32[2 3]", "int64[2]"}},
		"inner length": {pair(compute.MatMul(p.Place, x, x)), compute.ErrShape, []string{"float32[2 3]", "rows of 3", "columns of 2"}},
		"mean of ints": {pair(compute.Mean(p.Place, y)), compute.ErrType, []string{"mean", "int64"}},
		"axis":         {pair(compute.Softmax(p.Place, x, 2)), compute.ErrShape, []string{"axis 2", "float32[2 3]"}},
		"index type":   {pair(compute.Gather(p.Place, x, 0, x)), compute.ErrType, []string{"gather", "float32[2 3]", "int64"}},
		"index shape":  {pair(compute.IndexSelect(p.Place, x, 0, slice(t, p, []int64{0}, 1, 1))), compute.ErrShape, []string{"int64[1 1]"}},
		"condition":    {pair(compute.Where(p.Place, x, x, x)), compute.ErrType, []string{"where", "float32[2 3]", "bool"}},
		"no place":     {pair(compute.Arange(nil, dtype.Int32, 0, 1, 1)), compute.ErrDevice, []string{"arange", "place"}},
		"undefined":    {pair(compute.Neg(p.Place, nil)), compute.ErrType, []string{"neg", "undefined"}},
		"no number":    {pair(compute.Add(p.Place, x, "one")), compute.ErrType, []string{"string"}},
		"complex":      {pair(compute.Add(p.Place, x, 1i)), compute.ErrType, []string{"add", "complex64"}},
		"concat":       {pair(compute.Concat(p.Place, 0, x, x.T())), compute.ErrShape, []string{"float32[2 3]", "float32[3 2]"}},
		"weights":      {pair(compute.RMSNorm(p.Place, x, slice(t, p, []float32{1, 2}), 0)), compute.ErrShape, []string{"float32[2 3]", "float32[2]"}},
	} {
		if !errors.Is(c.err, c.kind) {
			t.Errorf("%s: %v, want %v", name, c.err, c.kind)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(c.err.Error(), s) {
				t.Errorf("%s: %q does not say %q", name, c.err, s)
			}
		}
	}
}

// TestResultType compares with PyTorch's result types of all pairs of operands: testdata/result_type.py.
func TestResultType(t *testing.T) {
	p := place(t, "host")
	table, err := os.ReadFile("testdata/result_type.txt")
	if err != nil {
		t.Fatal(err)
	}
	operand := func(form, name string) compute.Operand {
		d, err := dtype.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		switch form {
		case "number":
			return dtype.ScalarOf(1).Convert(d)
		case "zero":
			return tensor.Must(tensor.Empty(p.Place, d))
		}
		return tensor.Must(tensor.Empty(p.Place, d, 2))
	}
	n := 0
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); f[0] != "#" {
			n++
			f[4] = strings.Replace(f[4], "complex32", "complex64", 1) // Ashlar has no complex numbers of two float16
			got, err := compute.ResultType(operand(f[0], f[1]), operand(f[2], f[3]))
			if err != nil || got.String() != f[4] {
				t.Errorf("%s gives %v, %v", strings.TrimSpace(line), got, err)
			}
		}
	}
	if n < 700 {
		t.Errorf("only %d pairs in the table", n)
	}
}

func TestGeneratorCounts(t *testing.T) {
	h, s := place(t, "host"), place(t, "sim:total=1GiB")
	a, b := compute.NewGenerator(42), compute.NewGenerator(42)
	var whole, parts []float32
	for _, n := range []int{1000, 24} {
		x, err := a.Normal(h.Place, dtype.Float32, n)
		if err != nil {
			t.Fatal(err)
		}
		v, err := tensor.ToSlice[float32](x)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, v...)
	}
	x, err := b.Normal(s.Place, dtype.Float32, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if whole, err = tensor.ToSlice[float32](x); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(whole, parts) {
		t.Error("1,024 numbers at once on one device are not 1,000 and 24 on another")
	}
	if a.Offset() != 1024 {
		t.Errorf("the offset is %d after 1024 elements", a.Offset())
	}
	dice, err := a.Integers(h.Place, dtype.Int8, 1, 7, 600)
	if err != nil {
		t.Fatal(err)
	}
	v, err := tensor.ToSlice[int8](dice)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Min(v) != 1 || slices.Max(v) != 6 {
		t.Errorf("600 dice show %d to %d", slices.Min(v), slices.Max(v))
	}
	if _, err := a.Integers(h.Place, dtype.Int8, 0, 200, 1); !errors.Is(err, compute.ErrType) {
		t.Errorf("integers up to 200 as int8: %v, want ErrType", err)
	}
}

func TestArange(t *testing.T) {
	p := place(t, "host")
	x, err := compute.Arange(p.Place, dtype.Int32, 10, 0, -3)
	want(t, x, err, []int{4}, int32(10), 7, 4, 1)
	x, err = compute.Arange(p.Place, dtype.Float64, 0, 1, 0.25)
	want(t, x, err, []int{4}, 0.0, 0.25, 0.5, 0.75)
	x, err = compute.Arange(p.Place, dtype.Int64, int64(1)<<62, int64(1)<<62+2, 1)
	want(t, x, err, []int{2}, int64(1)<<62, int64(1)<<62+1)
	for _, bad := range [][3]any{{0, 1, 0}, {0, 1, -1}, {0, math.Inf(1), 1}, {0.0, math.NaN(), 1}} {
		if _, err := compute.Arange(p.Place, dtype.Float64, bad[0], bad[1], bad[2]); !errors.Is(err, compute.ErrShape) {
			t.Errorf("arange %v: %v, want ErrShape", bad, err)
		}
	}
}

func TestOpenTakesTheFirstThatIsThere(t *testing.T) {
	p, err := compute.Open("nosuch", "sim:total=64MiB", "host")
	if err != nil {
		t.Fatal(err)
	}
	if p.String() != "sim" {
		t.Errorf("opened %v", p)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := compute.Open("nosuch", "neither"); err == nil || !strings.Contains(err.Error(), "nosuch") || !strings.Contains(err.Error(), "neither") {
		t.Errorf("no device there: %v, want an error that names both", err)
	}
	if _, err := compute.Open("sim:total=nonsense", "host"); err == nil {
		t.Error("a device with a bad setting was passed over")
	}
}

// The error for a backend that is not linked in names its import.
func TestDefect23_OpenNamesTheImport(t *testing.T) {
	for path, open := range map[string]func() (*tensor.Place, error){
		"driver/cuda": func() (*tensor.Place, error) { return compute.Open("cuda:0") },
		"mem/bfc":     func() (*tensor.Place, error) { return compute.Options{Allocator: "bfc:growth=off"}.Open("host") },
	} {
		want := `add import _ "github.com/ashlar-go/ashlar/` + path + `"`
		if _, err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// A report of leaks names the setting that records sites, for the function that opened the place.
func TestDefect24_LeaksTellHowToRecordSites(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	for want, open := range map[string]func() (*tensor.Place, error){
		"compute.Options{Sites: true}.Open records it": func() (*tensor.Place, error) { return compute.Open("host") },
		"compute.Options{Sites: true}.On records it":   func() (*tensor.Place, error) { return compute.On(dev) },
	} {
		p, err := open()
		if err != nil {
			t.Fatal(err)
		}
		x := tensor.Must(tensor.Zeros(p, dtype.Int8, 1))
		if text := p.Leaks().String(); !strings.Contains(text, want) {
			t.Errorf("%s: no %q in it", text, want)
		}
		x.Release()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOptions(t *testing.T) {
	p, err := compute.Options{Allocator: "caching:limit:32MiB", Sites: true}.Open("sim:total=1GiB")
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Must(tensor.Zeros(p, dtype.Int8, 1<<20))
	if sites := p.Leaks().Sites; len(sites) != 1 || !strings.Contains(sites[0].Frames[0].Function, "TestOptions") {
		t.Errorf("storages were made by %+v", sites)
	}
	if _, err := tensor.Zeros(p, dtype.Int8, 33<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("beyond the allocator's limit: %v", err)
	}
	x.Release()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := (compute.Options{Allocator: "nosuch"}).Open("host"); !errors.Is(err, mem.ErrUnknown) {
		t.Errorf("an allocator that there is not: %v", err)
	}
}
