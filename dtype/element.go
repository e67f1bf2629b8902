package dtype

import "reflect"

// Go types of elements that Go has no type for. They hold the bits; conversions are methods.
type (
	F16      uint16 // of Float16
	BF16     uint16 // of BFloat16
	F8E5M2   uint8  // of Float8E5M2
	F8E4M3FN uint8  // of Float8E4M3FN
)

// An Element is a Go type of elements, or a type defined from one (type celsius float32).
type Element interface {
	~bool | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// Of returns the DType of T: Float16 for F16, Uint16 for uint16 and for every other type defined from it.
func Of[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case F16:
		return Float16
	case BF16:
		return BFloat16
	case F8E5M2:
		return Float8E5M2
	case F8E4M3FN:
		return Float8E4M3FN
	}
	return ofKind[reflect.TypeFor[T]().Kind()]
}

var ofKind = map[reflect.Kind]DType{
	reflect.Bool: Bool, reflect.Int8: Int8, reflect.Int16: Int16, reflect.Int32: Int32, reflect.Int64: Int64,
	reflect.Uint8: Uint8, reflect.Uint16: Uint16, reflect.Uint32: Uint32, reflect.Uint64: Uint64,
	reflect.Float32: Float32, reflect.Float64: Float64, reflect.Complex64: Complex64, reflect.Complex128: Complex128,
}

var goTypes = [count]reflect.Type{
	Bool: reflect.TypeFor[bool](), Int8: reflect.TypeFor[int8](), Int16: reflect.TypeFor[int16](),
	Int32: reflect.TypeFor[int32](), Int64: reflect.TypeFor[int64](), Uint8: reflect.TypeFor[uint8](),
	Uint16: reflect.TypeFor[uint16](), Uint32: reflect.TypeFor[uint32](), Uint64: reflect.TypeFor[uint64](),
	Float16: reflect.TypeFor[F16](), Float32: reflect.TypeFor[float32](), Float64: reflect.TypeFor[float64](),
	BFloat16: reflect.TypeFor[BF16](), Complex64: reflect.TypeFor[complex64](),
	Complex128: reflect.TypeFor[complex128](),
	Float8E5M2: reflect.TypeFor[F8E5M2](), Float8E4M3FN: reflect.TypeFor[F8E4M3FN](),
}

// GoType returns the Go type of d's elements: float32 for Float32, F16 for Float16. It panics if d is not valid.
func (d DType) GoType() reflect.Type {
	d.check("GoType")
	return goTypes[d]
}
