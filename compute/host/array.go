package host

import (
	"fmt"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// maxOperands is the largest number of operands of a kernel: a result and three inputs, or two results and an input.
const maxOperands = 4

// An array is an operand of a kernel: the memory from its lowest to its highest element.
type array struct {
	dtype       dtype.DType
	size        int // bytes of an element
	rank        int
	shape       [backend.MaxRank]int
	strides     [backend.MaxRank]int
	first       int // position of the element with indices 0, in elements from the lowest
	ptr         driver.Pointer
	bytes       []byte // the memory; if nil it is length bytes from ptr
	length      int
	read, write bool
}

// in returns an operand that a kernel reads, out one that it writes, and inout one that it reads and writes.
func in(a backend.Array) array { return span(a, true, false) }

func out(a backend.Array) array { return span(a, false, true) }

func inout(a backend.Array) array { return span(a, true, true) }

func span(a backend.Array, read, write bool) array {
	o := array{dtype: a.DType, size: a.DType.Size(), rank: len(a.Shape), read: read, write: write}
	copy(o.shape[:], a.Shape)
	copy(o.strides[:], a.Strides)
	n, low, high := 1, 0, 0
	for i, l := range a.Shape {
		n *= l
		if reach := (l - 1) * a.Strides[i]; reach < 0 {
			low += reach
		} else {
			high += reach
		}
	}
	if n == 0 {
		return o
	}
	o.first, o.length = -low, (high-low+1)*o.size
	at := (a.Offset + low) * o.size
	if a.Bytes != nil {
		o.bytes = a.Bytes[at : at+o.length : at+o.length]
	}
	if a.Ptr != 0 {
		o.ptr = a.Ptr + driver.Pointer(at)
	}
	if write && n*o.size != o.length {
		o.read = true // the bytes between the elements are stored again with them
	}
	return o
}

// dims returns the operand's shape.
func (o *array) dims() []int { return o.shape[:o.rank] }

// without returns the operand with every index of an axis referring to the first.
func (o array) without(axis int) array {
	o.strides[axis] = 0
	return o
}

// launch queues f, which gets the memory of the operands. The driver reports panics of f.
func (b *Backend) launch(q backend.Queue, name string, f func(mem *[maxOperands][]byte), operands ...array) error {
	k := driver.Kernel{Name: name}
	for i := range operands {
		o := &operands[i]
		r := driver.Range{Ptr: o.ptr, Size: int64(o.length)}
		if r.Ptr == 0 || r.Size == 0 {
			continue
		}
		if o.read {
			k.Reads = append(k.Reads, r)
		}
		if o.write {
			k.Writes = append(k.Writes, r)
		}
	}
	k.Func = func(m driver.Memory) error {
		var mem [maxOperands][]byte
		for i := range operands {
			if err := operands[i].load(m, &mem[i]); err != nil {
				return err
			}
		}
		f(&mem)
		for i := range operands {
			if err := operands[i].store(m, mem[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return b.kernels.Launch(q.Stream, k)
}

// direct reports whether a kernel works in the operand's memory itself: Go code can access it, and the elements are
// aligned, which those of a mapped file may not be.
func (o *array) direct() bool {
	return o.bytes != nil && uintptr(unsafe.Pointer(unsafe.SliceData(o.bytes)))%uintptr(min(o.size, 8)) == 0
}

func (o *array) load(m driver.Memory, to *[]byte) error {
	if o.length == 0 || o.direct() {
		*to = o.bytes
		return nil
	}
	*to = bytesOf(make([]uint64, (o.length+7)/8))[:o.length]
	switch {
	case !o.read:
		return nil
	case o.bytes != nil:
		copy(*to, o.bytes)
		return nil
	}
	return m.Load(*to, o.ptr)
}

func (o *array) store(m driver.Memory, from []byte) error {
	switch {
	case !o.write || o.length == 0 || o.direct():
		return nil
	case o.bytes != nil:
		copy(o.bytes, from)
		return nil
	}
	return m.Store(o.ptr, from)
}

// viewOf returns b as elements.
func viewOf[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))/unsafe.Sizeof(zero))
}

// bytesOf returns s as bytes.
func bytesOf[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(zero))
}

// unsupported returns the error of an operation that does not support a type.
func unsupported(op fmt.Stringer, d dtype.DType) error { return unsupportedCall(op.String(), d) }

func unsupportedCall(op string, d dtype.DType) error {
	return &driver.Error{
		Call: "host backend: " + op, Code: driver.ErrUnsupported, Detail: fmt.Sprintf("elements of type %v", d),
	}
}
