// Package dlpack exchanges tensors with other libraries in the same process, without a copy, by DLPack
// (https://dmlc.github.io/dlpack), the structures of PyTorch, NumPy, JAX, CuPy and others.
//
// The package has the structures of version 1.1, in C's layout, and the older DLManagedTensor without a version, which
// many libraries still use. Other 1.x versions differ only in enumerations. Pointers in the structures are Go uintptrs.
//
// # Ownership
//
// A structure has a deleter, which its consumer calls once, when it no longer needs the memory. [Export] returns a
// structure that keeps the tensor's storage until then. [Import] takes ownership of a structure. The deleter is called
// after the last owner has released the tensor and the streams that used it are done, or at once if the import fails.
//
// Deleters are C functions. On Linux on amd64 and arm64, without the build tag nocuda, one C function serves all
// exports and identifies each by its address. Elsewhere an exported structure has no deleter: it can be imported in
// this process, and other users call Delete.
//
// # Order of work
//
// The structures have no streams. Export waits until the elements are written; a consumer calls the deleter after its
// own work is done. Before Import, the caller waits for the producer's work.
//
// # Read-only memory
//
// Tensors are always writable, so Import copies memory that is flagged read-only and then calls the deleter at once.
package dlpack

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ashlar-go/ashlar/dtype"
)

// The version that Export writes. Import accepts every minor version.
const (
	Major = 1
	Minor = 1
)

// Errors of Import and Export match one of these.
var (
	ErrVersion = errors.New("unsupported major version of DLPack")
	ErrDevice  = errors.New("memory of another device")
	ErrType    = errors.New("an element type without a dtype")
	ErrInvalid = errors.New("not a valid DLPack tensor")
)

// A Version is DLPackVersion.
type Version struct{ Major, Minor uint32 }

// A DeviceType is DLDeviceType.
type DeviceType int32

// The supported device types.
const (
	CPU      DeviceType = 1
	CUDA     DeviceType = 2
	CUDAHost DeviceType = 3 // page-locked memory of the host
)

// A Device is DLDevice.
type Device struct {
	Type DeviceType
	ID   int32 // the ordinal of a CUDA device, 0 for the host
}

// A TypeCode is DLDataTypeCode.
type TypeCode uint8

// The supported type codes. Those of 8-bit floats are new in version 1.1.
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
	Strides    uintptr // int64_t *, in elements; NULL: row-major
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
	Context uintptr // void *: for the producer
	Deleter uintptr // void (*)(DLManagedTensorVersioned *); may be NULL
	Flags   Flags
	Tensor  Tensor
}

// A Legacy is DLManagedTensor, of DLPack before 1.0. PyTorch's and NumPy's capsules named "dltensor" hold one.
type Legacy struct {
	Tensor  Tensor
	Context uintptr
	Deleter uintptr // void (*)(DLManagedTensor *); may be NULL
}

// Address returns the address to pass to C.
func (m *Managed) Address() uintptr { return uintptr(unsafe.Pointer(m)) }

// Address returns the address to pass to C.
func (m *Legacy) Address() uintptr { return uintptr(unsafe.Pointer(m)) }

// Delete calls the deleter, as a C consumer does. A consumer in Go calls it once.
func (m *Managed) Delete() { remove(m.Deleter, m.Address()) }

// Delete calls the deleter, as a C consumer does. A consumer in Go calls it once.
func (m *Legacy) Delete() { remove(m.Deleter, m.Address()) }

// typeOf returns the DLPack type of d, which exists for every d.
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
	return dtype.Invalid, fmt.Errorf("dlpack: type code %d with %d bits and %d lanes: %w", t.Code, t.Bits, t.Lanes,
		ErrType)
}
