package compute

import (
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// An Operand is a *tensor.Tensor, or a number of any Go type or a dtype.Scalar. As in PyTorch a number affects type
// promotion only by its kind.
type Operand any

// ResultType returns the type to which operands are promoted, by PyTorch's rules (torch.result_type). Tensors with axes
// determine it. A tensor without axes, and after it a number, only raises the result to a higher kind (bool, integer,
// floating point, complex); a number raises it to int64, float32 or complex64.
func ResultType(operands ...Operand) (dtype.DType, error) {
	return resultType("result type", operands...)
}

// resultType is ResultType for an operation, which errors name.
func resultType(op string, operands ...Operand) (dtype.DType, error) {
	var ranks [3]dtype.DType // the types of tensors with axes, of tensors without, and of numbers
	for _, o := range operands {
		var d dtype.DType
		rank := 0
		switch t, ok := o.(*tensor.Tensor); {
		case ok && !t.Defined():
			return 0, newOpError(ErrType, op, "an operand is the undefined tensor")
		case ok:
			d = t.DType()
			if t.Rank() == 0 {
				rank = 1
			}
		default:
			rank = 2
			var err error
			if d, err = numberType(op, o); err != nil {
				return 0, err
			}
		}
		if ranks[rank] != dtype.Invalid {
			var err error
			if d, err = dtype.Promote(ranks[rank], d); err != nil {
				return 0, newOpError(ErrType, op, "%v", err)
			}
		}
		ranks[rank] = d
	}
	lower, err := lift(op, ranks[1], ranks[2])
	if err != nil {
		return 0, err
	}
	return lift(op, ranks[0], lower)
}

// lift returns the type higher, raised by lower if lower is of a higher kind.
func lift(op string, higher, lower dtype.DType) (dtype.DType, error) {
	switch {
	case lower == dtype.Invalid:
		return higher, nil
	case higher == dtype.Invalid:
		return lower, nil
	case higher.IsComplex(), higher.IsFloat() && !lower.IsComplex():
		return higher, nil
	case higher.IsFloat():
		if higher == dtype.Float64 {
			return dtype.Complex128, nil
		}
		return dtype.Complex64, nil
	case higher == dtype.Bool, lower.IsFloat(), lower.IsComplex():
		d, err := dtype.Promote(higher, lower)
		if err != nil {
			return 0, newOpError(ErrType, op, "%v", err)
		}
		return d, nil
	}
	return higher, nil
}

// numberType returns the type of a number in type promotion.
func numberType(op string, o Operand) (d dtype.DType, err error) {
	s, err := scalarOf(op, o)
	if err != nil {
		return 0, err
	}
	switch s.Kind() {
	case dtype.KindBool:
		return dtype.Bool, nil
	case dtype.KindFloat:
		return dtype.Float32, nil
	case dtype.KindComplex:
		return dtype.Complex64, nil
	}
	return dtype.Int64, nil
}

// scalarOf returns o as a number.
func scalarOf(op string, o Operand) (dtype.Scalar, error) {
	s, ok := dtype.ToScalar(o)
	if !ok {
		return s, newOpError(ErrType, op, "%T is neither a tensor nor a number", o)
	}
	return s, nil
}

// computable refuses the types that are only for storage.
func computable(op string, d dtype.DType) error {
	if d.IsComplex() || d == dtype.Float8E5M2 || d == dtype.Float8E4M3FN {
		return newOpError(ErrType, op, "%v has no arithmetic: cast it, for example to float32", d)
	}
	return nil
}

// tensors returns the operands as tensors of type d on p's device. Numbers become tensors without axes, and other types
// are cast. release releases the temporaries.
func tensors(
	op string, p *tensor.Place, d dtype.DType, operands ...Operand,
) (out []*tensor.Tensor, release func(), err error) {
	var temporaries []*tensor.Tensor
	release = func() {
		for _, t := range temporaries {
			t.Release()
		}
	}
	for _, o := range operands {
		t, ok := o.(*tensor.Tensor)
		switch {
		case !ok:
			var s dtype.Scalar
			if s, err = scalarOf(op, o); err == nil {
				t, err = tensor.FromScalar(temporary(p), d, s)
			}
		case t.DType() != d:
			t, err = t.Cast(temporary(p), d)
		default:
			out = append(out, t)
			continue
		}
		if err != nil {
			release()
			return nil, nil, err
		}
		temporaries = append(temporaries, t)
		out = append(out, t)
	}
	return out, release, nil
}

// onlyTensors returns the operands that are tensors.
func onlyTensors(operands []Operand) []*tensor.Tensor {
	var out []*tensor.Tensor
	for _, o := range operands {
		if t, ok := o.(*tensor.Tensor); ok {
			out = append(out, t)
		}
	}
	return out
}
