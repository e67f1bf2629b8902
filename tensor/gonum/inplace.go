package gonum

import (
	"fmt"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// ViewMatrix returns a tensor over the memory of a matrix, such as a *mat.Dense. p must be on the host.
func ViewMatrix(p *tensor.Place, m mat.RawMatrixer) (*tensor.Tensor, error) {
	return ViewGeneral64(p, m.RawMatrix())
}

// ViewVector returns a tensor over the memory of a vector, such as a *mat.VecDense. p must be on the host. A negative
// increment runs backwards from the end, as in BLAS.
func ViewVector(p *tensor.Place, v mat.RawVectorer) (*tensor.Tensor, error) {
	raw := v.RawVector()
	return tensor.ViewStrided(p, raw.Data, max(0, (1-raw.N)*raw.Inc), []int{raw.N}, []int{raw.Inc})
}

// ViewGeneral64 returns a tensor over the memory of a blas64 matrix. p must be on the host.
func ViewGeneral64(p *tensor.Place, g blas64.General) (*tensor.Tensor, error) {
	return view(p, g.Data, g.Rows, g.Cols, g.Stride)
}

// ViewGeneral32 returns a tensor over the memory of a blas32 matrix. p must be on the host.
func ViewGeneral32(p *tensor.Place, g blas32.General) (*tensor.Tensor, error) {
	return view(p, g.Data, g.Rows, g.Cols, g.Stride)
}

func view[T float32 | float64](p *tensor.Place, data []T, rows, cols, stride int) (*tensor.Tensor, error) {
	if rows > 1 && stride < cols {
		return nil, fmt.Errorf("gonum: rows of %d elements with a stride of %d overlap", cols, stride)
	}
	return tensor.ViewStrided(p, data, 0, []int{rows, cols}, []int{stride, 1})
}

// AsGeneral64 returns t's memory, on the host, as a blas64 matrix. The elements of a row must be consecutive, and rows
// must not overlap. Contiguous makes a suitable copy of any tensor; T of a transposed matrix is suitable without one.
func AsGeneral64(t *tensor.Tensor) (blas64.General, error) {
	data, stride, err := matrix[float64]("AsGeneral64", t)
	if err != nil {
		return blas64.General{}, err
	}
	return blas64.General{Rows: t.Dim(0), Cols: t.Dim(1), Stride: stride, Data: data}, nil
}

// AsGeneral32 returns t's memory, on the host, as a blas32 matrix: see AsGeneral64.
func AsGeneral32(t *tensor.Tensor) (blas32.General, error) {
	data, stride, err := matrix[float32]("AsGeneral32", t)
	if err != nil {
		return blas32.General{}, err
	}
	return blas32.General{Rows: t.Dim(0), Cols: t.Dim(1), Stride: stride, Data: data}, nil
}

// AsDense returns t's memory, on the host, as a matrix: see AsGeneral64. t must have at least one element.
func AsDense(t *tensor.Tensor) (*mat.Dense, error) {
	data, stride, err := matrix[float64]("AsDense", t)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, refuse("AsDense", t, "it has no element")
	}
	d := new(mat.Dense)
	d.SetRawMatrix(blas64.General{Rows: t.Dim(0), Cols: t.Dim(1), Stride: stride, Data: data})
	return d, nil
}

// AsVector returns t's memory, on the host, as a vector. The stride must be positive, and t must have at least one
// element.
func AsVector(t *tensor.Tensor) (*mat.VecDense, error) {
	switch {
	case t.Rank() != 1:
		return nil, refuse("AsVector", t, "a vector has one axis")
	case t.Len() == 0:
		return nil, refuse("AsVector", t, "it has no element")
	}
	n, inc := t.Len(), t.Strides()[0]
	if n == 1 {
		inc = 1
	}
	if inc < 1 {
		return nil, refuse("AsVector", t, "its stride is %d, and must be positive", inc)
	}
	data, err := reach[float64]("AsVector", t, (n-1)*inc+1)
	if err != nil {
		return nil, err
	}
	v := new(mat.VecDense)
	v.SetRawVector(blas64.Vector{N: n, Inc: inc, Data: data})
	return v, nil
}

// matrix returns the memory of t from its first element to its last, and the distance between rows in elements.
func matrix[T float32 | float64](call string, t *tensor.Tensor) ([]T, int, error) {
	if t.Rank() != 2 {
		return nil, 0, refuse(call, t, "a matrix has two axes")
	}
	rows, cols, strides := t.Dim(0), t.Dim(1), t.Strides()
	if rows <= 1 || cols == 0 {
		strides[0] = max(cols, 1)
	}
	if (cols > 1 && strides[1] != 1 && rows > 0) || strides[0] < cols {
		return nil, 0, refuse(call, t, "its strides are %v, gonum needs rows of consecutive elements that do not "+
			"overlap", t.Strides())
	}
	n := 0
	if t.Len() > 0 {
		n = (rows-1)*strides[0] + cols
	}
	data, err := reach[T](call, t, n)
	return data, strides[0], err
}

// reach returns n elements of t's memory from the first on.
func reach[T float32 | float64](call string, t *tensor.Tensor, n int) ([]T, error) {
	if d := dtype.Of[T](); t.DType() != d {
		return nil, refuse(call, t, "its elements are not %v: Cast converts", d)
	}
	all, err := t.AsStrided([]int{n}, []int{1}, t.Offset())
	if err != nil {
		return nil, err
	}
	return tensor.Data[T](all)
}
