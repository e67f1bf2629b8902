// Package dlpack passes tensors to and from other libraries in the same process, without a copy: DLPack,
// https://dmlc.github.io/dlpack, the structures that PyTorch, numpy, JAX, CuPy and others exchange.
//
// # Structures
//
// Those of version 1.1 (and of every 1.x, which differ in enumerations alone), with C's layout to the byte, and the older
// one without a version, which many libraries still speak. Pointers in them are numbers here: what they point to is
// another's, or is kept elsewhere.
//
// # Ownership
//
// A structure has a deleter, which its consumer calls once, when it needs the memory no more. Export makes one whose tensor
// keeps its storage until then. Import takes one over: its deleter is called when the last owner of the tensor is gone and
// the streams that used it are done; at once if the import fails.
//
// Deleters are C functions. Where Go code can be called by C (Linux on amd64 and arm64, without the build tag nocuda) one C
// function serves all exports, which it tells apart by their addresses; elsewhere an exported structure has none, can be
// imported again in this process, and its other users call Delete.
//
// # Order of work
//
// The structures know no streams. Export waits until the elements are there; a consumer calls the deleter when its own work
// is done. Who imports waits for the producer's work first.
//
// # Read-only memory
//
// A tensor can always be written to. So what is flagged read-only is copied by Import and given back at once.
package dlpack

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ashlar-go/ashlar/dtype"
)

// The version that Export writes. Import takes every minor one.
const (
	Major = 1
	Minor = 1
)

// Errors of Import and Export; the text says more.
var (
	ErrVersion = errors.New("another major version of DLPack")
	ErrDevice  = errors.New("memory of another device")
	ErrType    = errors.New("an element type that tensors have not")
	ErrInvalid = errors.New("not a valid DLPack tensor")
)

// A Version is DLPackVersion.
type Version struct{ Major, Minor uint32 }

// A DeviceType is DLDeviceType.
type DeviceType int32

// The device types that are known here.
const (
	CPU      DeviceType = 1
	CUDA     DeviceType = 2
	CUDAHost DeviceType = 3 // page-locked memory of the host
)

// A Device is DLDevice.
type Device struct {
	Type DeviceType
	ID   int32 // of CUDA the ordinal; of the host 0
}

// A TypeCode is DLDataTypeCode.
type TypeCode uint8

// The type codes that are known here. Those of 8-bit floats came with version 1.1.
const (
	Int          TypeCode = 0
	UInt         TypeCode = 1
	Float        TypeCode = 2
	BFloat       TypeCode = 4
	Complex      TypeCode = 5
	Bool         TypeCode = 6
	Float8E4M3FN TypeCode = 10
	Float8E5M2   TypeCode = 12
)

// A DataType is DLDataType.
type DataType struct {
	Code  TypeCode
	Bits  uint8
	Lanes uint16 // elements of a vector: 1
}

// A Tensor is DLTensor.
type Tensor struct {
	Data       uintptr // void *: an address of the device
	Device     Device
	NDim       int32
	DType      DataType
	Shape      uintptr // int64_t *, NDim of them
	Strides    uintptr // int64_t *, in elements; NULL: row by row
	ByteOffset uint64
}

// Flags are DLPACK_FLAG_BITMASK_*.
type Flags uint64

// The flags.
const (
	ReadOnly Flags = 1 << 0
	Copied   Flags = 1 << 1 // the producer made a copy for the consumer
)

// A Managed is DLManagedTensorVersioned.
type Managed struct {
	Version Version
	Context uintptr // void *: the producer's
	Deleter uintptr // void (*)(DLManagedTensorVersioned *); may be NULL
	Flags   Flags
	Tensor  Tensor
}

// A Legacy is DLManagedTensor, of DLPack before 1.0. PyTorch's and numpy's capsules named "dltensor" hold one.
type Legacy struct {
	Tensor  Tensor
	Context uintptr
	Deleter uintptr // void (*)(DLManagedTensor *); may be NULL
}

// Address returns what is handed to C.
func (m *Managed) Address() uintptr { return uintptr(unsafe.Pointer(m)) }

// Address returns what is handed to C.
func (m *Legacy) Address() uintptr { return uintptr(unsafe.Pointer(m)) }

// Delete does what a C consumer does by calling the deleter. It is for consumers in Go, once.
func (m *Managed) Delete() { remove(m.Deleter, m.Address()) }

// Delete does what a C consumer does by calling the deleter. It is for consumers in Go, once.
func (m *Legacy) Delete() { remove(m.Deleter, m.Address()) }

// typeOf returns the DLPack type of d: they have all that tensors have.
func typeOf(d dtype.DType) DataType {
	t := DataType{Bits: uint8(8 * d.Size()), Lanes: 1}
	switch {
	case d == dtype.Bool:
		t.Code = Bool
	case d == dtype.BFloat16:
		t.Code = BFloat
	case d == dtype.Float8E4M3FN:
		t.Code = Float8E4M3FN
	case d == dtype.Float8E5M2:
		t.Code = Float8E5M2
	case d.IsFloat():
		t.Code = Float
	case d.IsComplex():
		t.Code = Complex
	case d.Kind() == dtype.KindUnsigned:
		t.Code = UInt
	}
	return t
}

// dtype returns the element type.
func (t DataType) dtype() (dtype.DType, error) {
	for _, d := range dtype.All() {
		if typeOf(d) == t {
			return d, nil
		}
	}
	return dtype.Invalid, fmt.Errorf("dlpack: type code %d with %d bits and %d lanes: %w", t.Code, t.Bits, t.Lanes, ErrType)
}
