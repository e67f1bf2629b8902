package remat

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"sync"

	"github.com/ashlar-go/ashlar/tensor"
)

// Apply runs a function of one tensor, such as compute.Relu, and returns its result: see Runtime.Call.
func Apply(
	r *Runtime, f func(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error), x *Tensor,
) (*Tensor, error) {
	return one(r.Call(nameOf(f), func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		return list(f(p, in[0]))
	}, x))
}

// Apply2 runs a function of two operands, such as compute.Add or compute.MatMul, and returns its result: see
// Runtime.Call. x and y are tensors of the runtime or, if f takes any operands, numbers.
func Apply2[T any](
	r *Runtime, f func(p *tensor.Place, x, y T) (*tensor.Tensor, error), x, y any,
) (*Tensor, error) {
	var handles []*Tensor
	operands := [2]any{x, y}
	for _, o := range operands {
		if t, ok := o.(*Tensor); ok {
			handles = append(handles, t)
		} else if _, ok := o.(T); !ok {
			return nil, fmt.Errorf("remat: %s of a %T: want a *remat.Tensor or a number", nameOf(f), o)
		}
	}
	_, xIsTensor := x.(*Tensor)
	_, yIsTensor := y.(*Tensor)
	return one(r.Call(nameOf(f), func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		a, b := operands[0], operands[1]
		if xIsTensor {
			a = in[0]
		}
		if yIsTensor {
			b = in[len(in)-1]
		}
		return list(f(p, a.(T), b.(T)))
	}, handles...))
}

// list returns a result as those of a Func.
func list(t *tensor.Tensor, err error) ([]*tensor.Tensor, error) {
	if err != nil {
		return nil, err
	}
	return []*tensor.Tensor{t}, nil
}

// one returns the only result.
func one(out []*Tensor, err error) (*Tensor, error) {
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

var names sync.Map // of functions, by address

// nameOf returns the name of a function: "compute.Relu".
func nameOf(f any) string {
	at := reflect.ValueOf(f).Pointer()
	if name, ok := names.Load(at); ok {
		return name.(string)
	}
	name := path.Base(runtime.FuncForPC(at).Name())
	names.Store(at, name)
	return name
}
