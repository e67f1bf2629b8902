package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// rowLength is the length of the last axis of what operations work on: what softmax and norms normalize.
const rowLength = 4096

// sortLength is how many elements are sorted at most, in one row.
const sortLength = 1 << 24

// operation measures an operation on tensors of a type: size is the bytes of one operand, or, of matmul, the length of
// its axes. It gives "rate": GB/s (10^9 bytes) read and written, each operand counted once; of matmul TFLOP/s; of
// overhead microseconds of one operation on a single element, many of them queued.
func (a *asker) operation(name string, d dtype.DType, size int64, duration time.Duration) (map[string]float64, error) {
	if a.place == nil {
		if err := a.copies.release(a.dev); err != nil {
			return nil, err
		}
		p, err := compute.On(a.dev)
		if err != nil {
			return nil, err
		}
		a.place = p
	}
	scope := a.place.Scope()
	defer scope.Close()
	work, amount, err := prepare(scope.Place, a.place, name, d, size)
	if err != nil {
		return nil, err
	}
	queued := 16 // so that a wait costs little
	if name == "overhead" {
		queued = 1000
	}
	seconds, err := repeat(duration, func() error {
		for range queued {
			x, err := work()
			if err != nil {
				return err
			}
			x.Release()
		}
		return a.place.Sync(context.Background())
	})
	seconds /= float64(queued)
	switch name {
	case "overhead":
		return map[string]float64{"rate": seconds * 1e6}, err
	case "matmul":
		return map[string]float64{"rate": amount / 1e12 / seconds}, err
	}
	return map[string]float64{"rate": amount / 1e9 / seconds}, err
}

// emptyKernel is PTX of a kernel that does nothing.
const emptyKernel = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n\tret;\n}\n"

// launch measures the launch of an empty kernel: "rate" is microseconds of one, many of them queued. A device without
// compiled code queues nothing.
func (a *asker) launch(duration time.Duration) (values map[string]float64, err error) {
	kernels, s := a.dev.Kernels(), a.dev.DefaultStream()
	empty := driver.Kernel{Name: "empty"}
	module, err := kernels.Load([]byte(emptyKernel))
	if err == nil {
		defer func() { err = errors.Join(err, module.Close()) }()
		empty.Code, err = module.Function("empty")
	}
	if err != nil && !errors.Is(err, driver.ErrUnsupported) {
		return nil, err
	}
	const queued = 1000
	seconds, err := repeat(duration, func() error {
		for range queued {
			if err := kernels.Launch(s, empty); err != nil {
				return err
			}
		}
		return s.Sync(context.Background())
	})
	return map[string]float64{"rate": seconds * 1e6 / queued}, err
}

// prepare makes the operands at p, and returns the work, whose result is made at out, and how much of it there is:
// bytes or floating-point operations.
func prepare(
	p, out *tensor.Place, name string, d dtype.DType, size int64,
) (work func() (*tensor.Tensor, error), amount float64, err error) {
	random := compute.NewGenerator(1)
	rows := int(size) / d.Size() / rowLength
	bytes := float64(size)
	switch name {
	case "matmul":
		n := int(size)
		x, err1 := random.Normal(p, d, n, n)
		y, err2 := random.Normal(p, d, n, n)
		return func() (*tensor.Tensor, error) { return compute.MatMul(out, x, y) }, 2 * math.Pow(float64(n), 3),
			errors.Join(err1, err2)
	case "overhead":
		x, err := random.Normal(p, d, 1)
		return func() (*tensor.Tensor, error) { return compute.Add(out, x, x) }, 1, err
	}
	x, err := random.Normal(p, d, rows, rowLength)
	if err != nil {
		return nil, 0, err
	}
	w, err := tensor.Full(p, d, 1, rowLength)
	if err != nil {
		return nil, 0, err
	}
	reduce := func(op backend.ReduceOp, axes ...int) func() (*tensor.Tensor, error) {
		return func() (*tensor.Tensor, error) { return compute.Reduce(out, op, x, compute.Over{Axes: axes}) }
	}
	narrow := dtype.BFloat16
	if d == dtype.BFloat16 {
		narrow = dtype.Float32
	}
	switch name {
	case "add":
		y, err := random.Normal(p, d, rows, rowLength)
		return func() (*tensor.Tensor, error) { return compute.Add(out, x, y) }, 3 * bytes, err
	case "pow":
		y, err1 := random.Normal(p, d, rows, rowLength)
		x, err2 := compute.Abs(p, x)
		return func() (*tensor.Tensor, error) { return compute.Pow(out, x, y) }, 3 * bytes, errors.Join(err1, err2)
	case "cast from e4m3":
		x, err := x.Cast(p, dtype.Float8E4M3FN)
		return func() (*tensor.Tensor, error) { return x.Cast(out, d) }, bytes + bytes/float64(d.Size()), err
	case "index select":
		index, err := random.Integers(p, dtype.Int64, 0, int64(rows), rows)
		return func() (*tensor.Tensor, error) { return compute.IndexSelect(out, x, 0, index) }, 2 * bytes, err
	case "scatter add":
		index, err1 := random.Integers(p, dtype.Int64, 0, int64(rows), rows, rowLength)
		y, err2 := tensor.Zeros(p, d, rows, rowLength)
		return func() (*tensor.Tensor, error) { return y.Retain(), compute.ScatterAdd(out, y, 0, index, x) },
			3*bytes + bytes*8/float64(d.Size()), errors.Join(err1, err2)
	case "sort":
		n := min(rows*rowLength, sortLength)
		x, err := random.Normal(p, d, n)
		return func() (*tensor.Tensor, error) {
			values, indices, err := compute.Sort(out, x, 0, false)
			if err == nil {
				indices.Release()
			}
			return values, err
		}, float64(n * (2*d.Size() + 8)), err
	case "add row":
		return func() (*tensor.Tensor, error) { return compute.Add(out, x, w) }, 2 * bytes, nil
	case "exp":
		return func() (*tensor.Tensor, error) { return compute.Exp(out, x) }, 2 * bytes, nil
	case "gelu":
		return func() (*tensor.Tensor, error) { return compute.Gelu(out, x) }, 2 * bytes, nil
	case "cast":
		return func() (*tensor.Tensor, error) { return x.Cast(out, narrow) },
			bytes * float64(d.Size()+narrow.Size()) / float64(d.Size()), nil
	case "transpose":
		return func() (*tensor.Tensor, error) { return x.T().Contiguous(out) }, 2 * bytes, nil
	case "sum rows":
		return reduce(backend.Sum, 1), bytes, nil
	case "sum columns":
		return reduce(backend.Sum, 0), bytes, nil
	case "sum all":
		return reduce(backend.Sum), bytes, nil
	case "mean rows":
		return reduce(backend.Mean, 1), bytes, nil
	case "max rows":
		return reduce(backend.Max, 1), bytes, nil
	case "argmax rows":
		return func() (*tensor.Tensor, error) { return compute.ArgMax(out, x, 1) }, bytes, nil
	case "softmax":
		return func() (*tensor.Tensor, error) { return compute.Softmax(out, x, 1) }, 2 * bytes, nil
	case "layer norm":
		return func() (*tensor.Tensor, error) { return compute.LayerNorm(out, x, w, w, 1e-5) }, 2 * bytes, nil
	case "rms norm":
		return func() (*tensor.Tensor, error) { return compute.RMSNorm(out, x, w, 1e-5) }, 2 * bytes, nil
	}
	return nil, 0, fmt.Errorf("no operation is called %q", name)
}
