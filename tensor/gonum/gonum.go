// Package gonum converts matrices and vectors between tensors and Gonum (gonum.org/v1/gonum), with a copy or, on the
// host, without one.
//
//   - FromMatrix and FromVector copy to a tensor on any device; ToDense and ToVector copy a tensor of any real type.
//   - View functions return a tensor over Gonum's memory, and As functions return Gonum's types over a tensor's memory:
//     a write to one is visible in the other. Both work on the host only.
//
// The tensors made here are owners, released by the caller or the place's scope. The results of As functions do not
// keep the tensor's memory: they are valid until its release, and the tensor must stay reachable until then. Functions
// that read a tensor wait for the work that writes it. A program that uses shared memory later orders this with queued
// work (see tensor.Place.Sync).
//
// Matrices are float64, except for those of blas32. The tensor of a matrix has two axes, rows and columns; that of a
// vector has one.
package gonum

import (
	"fmt"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
	"gonum.org/v1/gonum/mat"
)

// FromMatrix returns a Float64 tensor at p with a copy of m's elements. The caller or p's scope owns it.
func FromMatrix(p *tensor.Place, m mat.Matrix) (*tensor.Tensor, error) {
	d, ok := m.(*mat.Dense)
	if !ok || d.RawMatrix().Stride != d.RawMatrix().Cols {
		d = mat.DenseCopyOf(m)
	}
	raw := d.RawMatrix()
	return tensor.FromSlice(p, raw.Data[:raw.Rows*raw.Cols], raw.Rows, raw.Cols)
}

// FromVector returns a Float64 tensor at p with a copy of v's elements. The caller or p's scope owns it.
func FromVector(p *tensor.Place, v mat.Vector) (*tensor.Tensor, error) {
	data := make([]float64, v.Len())
	for i := range data {
		data[i] = v.AtVec(i)
	}
	return tensor.FromSlice(p, data)
}

// ToDense returns a copy of a tensor with two axes, of any real type and on any device. A matrix in which only one of
// rows and columns is 0 is an error, since Gonum has none.
func ToDense(t *tensor.Tensor) (*mat.Dense, error) {
	if t.Rank() != 2 {
		return nil, refuse("ToDense", t, "a matrix has two axes")
	}
	rows, cols := t.Dim(0), t.Dim(1)
	if rows == 0 && cols == 0 {
		return new(mat.Dense), nil
	}
	if rows == 0 || cols == 0 {
		return nil, refuse("ToDense", t, "gonum has no such matrix")
	}
	data, err := float64s("ToDense", t)
	if err != nil {
		return nil, err
	}
	return mat.NewDense(rows, cols, data), nil
}

// ToVector returns a copy of a tensor with one axis, of any real type and on any device.
func ToVector(t *tensor.Tensor) (*mat.VecDense, error) {
	if t.Rank() != 1 {
		return nil, refuse("ToVector", t, "a vector has one axis")
	}
	if t.Len() == 0 {
		return new(mat.VecDense), nil
	}
	data, err := float64s("ToVector", t)
	if err != nil {
		return nil, err
	}
	return mat.NewVecDense(len(data), data), nil
}

// float64s returns the elements of t, in row-major order.
func float64s(call string, t *tensor.Tensor) ([]float64, error) {
	if t.DType().IsComplex() {
		return nil, refuse(call, t, "its numbers are complex: take Real or Imag")
	}
	wide, err := t.Cast(nil, dtype.Float64)
	if err != nil {
		return nil, err
	}
	defer wide.Release()
	return tensor.ToSlice[float64](wide)
}

// refuse returns the error of a tensor that does not fit.
func refuse(call string, t *tensor.Tensor, why string, args ...any) error {
	return fmt.Errorf("gonum: %s of %s: %w", call, t.Brief(), fmt.Errorf(why, args...))
}
