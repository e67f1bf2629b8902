// Package dtype defines the element types of tensors: their sizes, their names in other libraries, the Go types of
// their elements, and the conversion between any two.
//
// [Parse] finds a type by name, [Of] by Go type. [Convert] and [ConvertSlice] convert elements, and a [Scalar] is one
// number of any type. [Promote] returns the common type of two, by PyTorch's rules.
//
// The values of DType are those of PJRT's buffer types, which the dtypes of github.com/gomlx/gomlx share, so that a
// DType needs no translation.
//
// Elements are little-endian, the byte order of every machine with a supported device. A bool is a byte that is 0 or 1;
// another nonzero value is converted as 1. Every conversion has one defined result, the same on every backend: see
// Convert.
//
// All functions are pure and safe for concurrent use.
package dtype

import "fmt"

// A DType is the type of a tensor's elements. The zero value, Invalid, is not a type.
type DType uint8

// The types, with the numbers of PJRT_Buffer_Type.
const (
	Invalid      DType = 0
	Bool         DType = 1 // a byte, 0 or 1
	Int8         DType = 2
	Int16        DType = 3
	Int32        DType = 4
	Int64        DType = 5
	Uint8        DType = 6
	Uint16       DType = 7
	Uint32       DType = 8
	Uint64       DType = 9
	Float16      DType = 10 // IEEE 754 binary16
	Float32      DType = 11
	Float64      DType = 12
	BFloat16     DType = 13 // the upper half of a float32
	Complex64    DType = 14 // two float32: real, imaginary
	Complex128   DType = 15
	Float8E5M2   DType = 16 // five bits of exponent, two of mantissa, with infinities: OCP FP8
	Float8E4M3FN DType = 17 // four and three, no infinities, one NaN of each sign: OCP FP8

	count = 18 // one more than the largest
)

// All returns every type, in numerical order.
func All() []DType {
	all := make([]DType, 0, count-1)
	for d := Bool; d < count; d++ {
		all = append(all, d)
	}
	return all
}

// A Kind is a class of types.
type Kind uint8

// The kinds, in the order of PyTorch's promotion: each can represent the values of those before it.
const (
	KindInvalid  Kind = iota
	KindBool          // false and true
	KindUnsigned      // integers from 0
	KindSigned        // integers
	KindFloat         // floating-point numbers
	KindComplex       // complex numbers
)

// The properties of each type. The names are in names.go.
var facts = [count]struct {
	size int
	kind Kind
}{
	Bool: {1, KindBool}, Int8: {1, KindSigned}, Int16: {2, KindSigned}, Int32: {4, KindSigned}, Int64: {8, KindSigned},
	Uint8: {1, KindUnsigned}, Uint16: {2, KindUnsigned}, Uint32: {4, KindUnsigned}, Uint64: {8, KindUnsigned},
	Float16: {2, KindFloat}, Float32: {4, KindFloat}, Float64: {8, KindFloat}, BFloat16: {2, KindFloat},
	Complex64: {8, KindComplex}, Complex128: {16, KindComplex}, Float8E5M2: {1, KindFloat},
	Float8E4M3FN: {1, KindFloat},
}

// Valid reports whether d is one of the types above.
func (d DType) Valid() bool { return d > Invalid && d < count }

// Size returns the size of an element in bytes. It panics if d is not valid.
func (d DType) Size() int {
	d.check("Size")
	return facts[d].size
}

// Kind returns the class of d; KindInvalid if d is not valid.
func (d DType) Kind() Kind {
	if !d.Valid() {
		return KindInvalid
	}
	return facts[d].kind
}

// IsFloat reports whether d is a real floating-point type.
func (d DType) IsFloat() bool { return d.Kind() == KindFloat }

// IsInteger reports whether d is an integer type, signed or unsigned. Bool is not.
func (d DType) IsInteger() bool { return d.Kind() == KindSigned || d.Kind() == KindUnsigned }

// IsComplex reports whether d is a complex type.
func (d DType) IsComplex() bool { return d.Kind() == KindComplex }

func (d DType) check(call string) {
	if !d.Valid() {
		panic(fmt.Sprintf("dtype: %s of %d, which is no type", call, uint8(d)))
	}
}
