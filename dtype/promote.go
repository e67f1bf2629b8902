package dtype

import "fmt"

// Promote returns the type to which tensors of types a and b are promoted, as torch.promote_types of PyTorch 2:
//
//   - Equal types are unchanged.
//   - The 8-bit floats combine only with themselves.
//   - Uint16, Uint32 and Uint64 combine with themselves and with real floating-point types, not with other integers,
//     Bool or complex types (c10/core/ScalarType.cpp calls this unfinished).
//   - A complex type takes precedence over the rest. The result is Complex128 if either type has parts of 64 bits.
//   - A floating-point type takes precedence over integers and Bool of any size. Of two the wider is the result; for
//     Float16 and BFloat16 it is Float32.
//   - Of two integer types the wider is the result; for Uint8 and Int8 it is Int16. Any integer type takes precedence
//     over Bool.
//
// The error is a *PromotionError, which names both.
func Promote(a, b DType) (DType, error) {
	a.check("Promote")
	b.check("Promote")
	if a.Kind() < b.Kind() {
		a, b = b, a
	}
	switch {
	case a == b:
		return a, nil
	case eightBits(a) || eightBits(b):
		return Invalid, &PromotionError{a, b}
	case lone(a) || lone(b):
		if a.IsFloat() {
			return a, nil
		}
		return Invalid, &PromotionError{a, b}
	case a.IsComplex():
		if a == Complex128 || b == Complex128 || b == Float64 {
			return Complex128, nil
		}
		return Complex64, nil
	case a.Kind() > b.Kind() && a.Kind() != KindSigned:
		return a, nil // a float and an integer or Bool, or Uint8 and Bool
	case a.Size() != b.Size():
		return wider(a, b), nil
	case a.IsFloat():
		return Float32, nil // Float16 and BFloat16
	case b == Bool:
		return a, nil
	}
	return Int16, nil // Int8 and Uint8
}

func eightBits(d DType) bool { return d == Float8E5M2 || d == Float8E4M3FN }

// lone reports whether d is one of the unsigned types that PyTorch knows but barely computes with.
func lone(d DType) bool { return d == Uint16 || d == Uint32 || d == Uint64 }

func wider(a, b DType) DType {
	if a.Size() > b.Size() {
		return a
	}
	return b
}

// A PromotionError reports two types without a common type.
type PromotionError struct{ A, B DType }

func (e *PromotionError) Error() string {
	return fmt.Sprintf("dtype: %v and %v have no type in common: convert one to the other first", e.A, e.B)
}
