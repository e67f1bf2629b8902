package gonum_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/gonum"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

func TestMatricesThereAndBack(t *testing.T) {
	r := testkit.Rand(t)
	for _, p := range []*tensor.Place{tensortest.Host(t), tensortest.On(t, drivertest.OpenSim(t, 0))} {
		for range 50 {
			rows, cols := 1+r.IntN(6), 1+r.IntN(6)
			d := mat.NewDense(rows+2, cols+2, nil)
			d.Apply(func(int, int, float64) float64 { return r.NormFloat64() }, d)
			square := mat.NewDense(rows, rows, nil)
			square.Apply(func(int, int, float64) float64 { return r.NormFloat64() }, square)
			for _, m := range []mat.Matrix{
				d, d.T(), d.Slice(1, rows+1, 2, cols+2), d.Slice(1, rows+1, 2, cols+2).T(), d.ColView(1),
				mat.NewSymDense(rows, square.RawMatrix().Data), mat.NewTriDense(rows, mat.Upper, square.RawMatrix().Data),
			} {
				x, err := gonum.FromMatrix(p, m)
				if err != nil {
					t.Fatal(err)
				}
				back, err := gonum.ToDense(x)
				if err != nil || !mat.Equal(back, m) || x.DType() != dtype.Float64 || !x.Owns() {
					t.Fatalf("%T at %v: %v", m, p, err)
				}
				turned, err := gonum.ToDense(x.T())
				if err != nil || !mat.Equal(turned, m.T()) {
					t.Fatalf("transposed %T at %v: %v", m, p, err)
				}
				x.Release()
			}
			v := d.ColView(1)
			x, err := gonum.FromVector(p, v)
			if err != nil {
				t.Fatal(err)
			}
			back, err := gonum.ToVector(x)
			if err != nil || !mat.Equal(back, v) {
				t.Fatalf("vector at %v: %v", p, err)
			}
			x.Release()
		}
	}
}

func TestOtherTypesAndShapes(t *testing.T) {
	p := tensortest.Host(t)
	x := tensor.Must(tensor.FromSlice(p, []int16{1, -2, 3, 4}, 2, 2))
	defer x.Release()
	d, err := gonum.ToDense(x)
	if err != nil || !mat.Equal(d, mat.NewDense(2, 2, []float64{1, -2, 3, 4})) {
		t.Error("integers are converted:", err)
	}
	row := tensor.Must(x.Select(0, 1))
	v, err := gonum.ToVector(row)
	if err != nil || !mat.Equal(v, mat.NewVecDense(2, []float64{3, 4})) {
		t.Error("integers are converted:", err)
	}
	none, err := gonum.FromMatrix(p, new(mat.Dense))
	if err != nil || !slices.Equal(none.Shape(), []int{0, 0}) {
		t.Fatal("the empty matrix:", err)
	}
	defer none.Release()
	if d, err := gonum.ToDense(none); err != nil || !d.IsEmpty() {
		t.Error("the empty matrix:", err)
	}
	if v, err := gonum.ToVector(tensor.Must(none.Flatten(0, 1))); err != nil || v.Len() != 0 {
		t.Error("the empty vector:", err)
	}
	if g, err := gonum.AsGeneral64(none); err != nil || g.Rows != 0 || g.Cols != 0 || g.Stride < 1 {
		t.Error("the empty matrix in place:", err)
	}
	complexes := tensor.Must(tensor.FromSlice(p, []complex64{1, 2}, 1, 2))
	defer complexes.Release()
	wide := tensor.Must(tensor.FromSlice(p, []float64{1, 2, 3, 4, 5, 6}, 2, 3))
	defer wide.Release()
	second := func(_ any, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(gonum.ToDense(row)), "ToDense of int16[2]: a matrix has two axes"},
		{second(gonum.ToVector(x)), "ToVector of int16[2 2]: a vector has one axis"},
		{second(gonum.ToDense(complexes)), "ToDense of complex64[1 2]: its numbers are complex: take Real or Imag"},
		{second(gonum.ToDense(tensor.Must(none.Expand(0, 0)))), ""},
		{second(gonum.ToDense(tensor.Must(x.Narrow(0, 1, 0)))), "ToDense of int16[0 2]: gonum has no such matrix"},
		{second(gonum.AsDense(x)), "AsDense of int16[2 2]: its elements are not float64: Cast converts"},
		{second(gonum.AsGeneral32(wide)), "AsGeneral32 of float64[2 3]: its elements are not float32: Cast converts"},
		{second(gonum.AsGeneral64(wide.T())), "AsGeneral64 of float64[3 2]: its strides are [1 3], gonum needs rows of consecutive elements that do not overlap"},
		{second(gonum.AsGeneral64(tensor.Must(wide.Flip(0)))), "AsGeneral64 of float64[2 3]: its strides are [-3 1], gonum needs rows of consecutive elements that do not overlap"},
		{second(gonum.AsGeneral64(tensor.Must(tensor.Must(wide.Select(0, 0)).Expand(2, 3)))), "AsGeneral64 of float64[2 3]: its strides are [0 1], gonum needs rows of consecutive elements that do not overlap"},
		{second(gonum.AsVector(wide)), "AsVector of float64[2 3]: a vector has one axis"},
		{second(gonum.AsVector(tensor.Must(tensor.Must(wide.Select(0, 0)).Flip()))), "AsVector of float64[3]: its stride is -1, and must be positive"},
		{second(gonum.AsDense(none)), "AsDense of float64[0 0]: it has no element"},
	} {
		if got := c.err; (got == nil) != (c.want == "") || (got != nil && got.Error() != "gonum: "+c.want) {
			t.Errorf("got  %v\nwant gonum: %s", got, c.want)
		}
	}
	far := tensortest.On(t, drivertest.OpenSim(t, 0))
	away := tensor.Must(wide.To(far))
	defer away.Release()
	if _, err := gonum.AsDense(away); err == nil || !strings.Contains(err.Error(), "not the host's") {
		t.Error("in place on a device:", err)
	}
	if _, err := gonum.ViewMatrix(far, mat.NewDense(1, 1, nil)); err == nil {
		t.Error("a view on a device")
	}
	for _, g := range []blas64.General{
		{Rows: 2, Cols: 3, Stride: 2, Data: make([]float64, 9)},
		{Rows: 2, Cols: 3, Stride: 3, Data: make([]float64, 5)},
	} {
		if _, err := gonum.ViewGeneral64(p, g); err == nil {
			t.Errorf("a view of %+v", g)
		}
	}
}

func TestMemoryIsShared(t *testing.T) {
	p := tensortest.Host(t)
	d := mat.NewDense(4, 5, nil)
	d.Apply(func(i, j int, _ float64) float64 { return float64(10*i + j) }, d)
	part := d.Slice(1, 3, 2, 5).(*mat.Dense)
	x, err := gonum.ViewMatrix(p, part)
	if err != nil || !slices.Equal(x.Strides(), []int{5, 1}) {
		t.Fatal(err)
	}
	defer x.Release()
	d.Set(2, 3, -1)
	got, err := tensor.ToSlice[float64](x)
	if err != nil || !slices.Equal(got, []float64{12, 13, 14, 22, -1, 24}) {
		t.Error(got, err)
	}
	// And back: of the tensor's own rows, a part of them, and by T those of its transpose.
	again, err := gonum.AsDense(tensor.Must(x.Narrow(1, 1, 2)))
	if err != nil || !mat.Equal(again, part.Slice(0, 2, 1, 3)) {
		t.Fatal(err)
	}
	again.Set(0, 0, 99)
	if d.At(1, 3) != 99 {
		t.Error("what is written to the matrix is seen in the first")
	}
	v, err := gonum.AsVector(tensor.Must(x.Select(1, 1)))
	if err != nil || v.Len() != 2 || v.AtVec(0) != 99 || v.AtVec(1) != -1 {
		t.Error(v, err)
	}
	column, err := gonum.ViewVector(p, d.ColView(4).(*mat.VecDense))
	if err != nil {
		t.Fatal(err)
	}
	defer column.Release()
	if got, err := tensor.ToSlice[float64](column); err != nil || !slices.Equal(got, []float64{4, 14, 24, 34}) {
		t.Error(got, err)
	}
	back, err := gonum.ViewVector(p, raw{blas64.Vector{N: 3, Inc: -2, Data: []float64{1, 2, 3, 4, 5}}})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Release()
	if got, err := tensor.ToSlice[float64](back); err != nil || !slices.Equal(got, []float64{5, 3, 1}) {
		t.Error("backwards, as in BLAS:", got, err)
	}

	// A product of BLAS straight into tensors.
	a, b, c := tensor.Must(tensor.FromSlice(p, []float32{1, 2, 3, 4}, 2, 2)), tensor.Must(tensor.FromSlice(p, []float32{5, 6, 7, 8}, 2, 2)),
		tensor.Must(tensor.Zeros(p, dtype.Float32, 2, 2))
	var g [3]blas32.General
	for i, x := range []*tensor.Tensor{a, b, c} {
		defer x.Release()
		if g[i], err = gonum.AsGeneral32(x); err != nil {
			t.Fatal(err)
		}
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, g[0], g[1], 0, g[2])
	if got, err := tensor.ToSlice[float32](c); err != nil || !slices.Equal(got, []float32{17, 23, 39, 53}) {
		t.Error(got, err)
	}
	y, err := gonum.ViewGeneral32(p, g[2])
	if err != nil {
		t.Fatal(err)
	}
	defer y.Release()
	if got, err := tensor.ToSlice[float32](tensor.Must(y.Select(0, 1))); err != nil || !slices.Equal(got, []float32{39, 53}) {
		t.Error(got, err)
	}
}

type raw struct{ v blas64.Vector }

func (r raw) RawVector() blas64.Vector { return r.v }
