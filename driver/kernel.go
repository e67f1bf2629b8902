package driver

import (
	"encoding/binary"
	"math"
)

// Kernels queues computation on streams. It is safe for concurrent use.
type Kernels interface {
	// Launch queues k on s, a stream of this device, and returns without waiting for it. The error matches
	// ErrUnsupported if the device cannot run this kind of kernel, and ErrInvalid if its shape or arguments do not fit
	// the function.
	Launch(s Stream, k Kernel) error

	// Load reads compiled code for the device: on CUDA, PTX text (a zero byte at its end is not needed) or a cubin. The
	// error matches ErrUnsupported on devices whose kernels are Go functions.
	Load(code []byte) (Module, error)
}

// A Module is compiled code on a device. It is safe for concurrent use.
type Module interface {
	// Function finds a kernel by its name in the code. The error matches ErrInvalid if there is none.
	Function(name string) (Function, error)

	// Close unloads the module. No function of it may be in use or launched again.
	Close() error
}

// A Function is one kernel of a Module.
type Function interface {
	Name() string
	Limits() Limits
}

// Limits are the limits of a launch of a Function.
type Limits struct {
	Threads       int   // threads of one block, at most
	Registers     int   // registers of one thread
	StaticShared  int64 // bytes of shared memory that a block has in any case
	DynamicShared int64 // bytes of shared memory that a launch may add
	Params        []int // sizes of the parameters, in bytes, in order; nil where the driver cannot tell
}

// A Kernel is a piece of work that a device does in stream order, with its accesses declared: the simulator checks
// them, and the others may ignore them. It is a Go function, compiled code, or a call of another library.
type Kernel struct {
	Name   string
	Reads  []Range
	Writes []Range

	// Func does the work on devices whose kernels are Go functions (host, sim). It may be nil. It runs while the device
	// holds its memory, and must not call the device or wait for its streams.
	Func func(Memory) error

	// Code is the function that does the work on devices that run compiled code, launched as Grid blocks of Block
	// threads (a zero in either counts as one) with Shared bytes of dynamic shared memory and Args as its parameters.
	Code   Function
	Grid   [3]uint32
	Block  [3]uint32
	Shared int64
	Args   []Arg

	// Call queues the work through another library, such as cuBLAS, on devices whose streams have handles. Launch calls
	// it, with the stream's handle (a CUstream), before it returns. The device is then current on the thread, and no
	// other work is queued to the stream. Call may queue only to that stream, and must not call the device. Launch
	// returns its error. If both are set, Code is used.
	Call func(stream uintptr) error
}

// A Range is Size bytes from Ptr.
type Range struct {
	Ptr  Pointer
	Size int64
}

// Overlaps reports whether r and other, ranges of one address space, share a byte. An empty range overlaps no range.
func (r Range) Overlaps(other Range) bool {
	if r.Size <= 0 || other.Size <= 0 {
		return false
	}
	if r.Ptr >= other.Ptr {
		return r.Ptr-other.Ptr < Pointer(other.Size)
	}
	return other.Ptr-r.Ptr < Pointer(r.Size)
}

// Memory is the device's memory as a Go kernel accesses it while it runs.
type Memory interface {
	// Load copies the bytes at p into dst, and Store copies src to p.
	Load(dst []byte, p Pointer) error
	Store(p Pointer, src []byte) error
}

// An Arg is one parameter of compiled code: a value with a size. Make it with one of the functions below.
type Arg struct {
	word  [8]byte
	size  int
	bytes []byte // of a structure longer than a word
}

// Size is the parameter's size in bytes.
func (a Arg) Size() int { return a.size }

// Bytes returns the bytes of the parameter in memory. The caller must not change them.
func (a *Arg) Bytes() []byte {
	if a.bytes != nil {
		return a.bytes
	}
	return a.word[:a.size]
}

func word(size int, v uint64) Arg {
	a := Arg{size: size}
	binary.NativeEndian.PutUint64(a.word[:], v) // devices and hosts that have such code are little-endian
	return a
}

// PointerArg is a device address: eight bytes.
func PointerArg(p Pointer) Arg { return word(8, uint64(p)) }

// Int32Arg is a 32-bit integer.
func Int32Arg(v int32) Arg { return word(4, uint64(uint32(v))) }

// Uint32Arg is a 32-bit integer.
func Uint32Arg(v uint32) Arg { return word(4, uint64(v)) }

// Int64Arg is a 64-bit integer.
func Int64Arg(v int64) Arg { return word(8, uint64(v)) }

// Uint64Arg is a 64-bit integer.
func Uint64Arg(v uint64) Arg { return word(8, v) }

// Float32Arg is a 32-bit floating-point number.
func Float32Arg(v float32) Arg { return word(4, uint64(math.Float32bits(v))) }

// Float64Arg is a 64-bit floating-point number.
func Float64Arg(v float64) Arg { return word(8, math.Float64bits(v)) }

// StructArg is a structure passed by value, with the layout that it has in memory. It keeps b.
func StructArg(b []byte) Arg { return Arg{size: len(b), bytes: b} }
