package cuda

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// indexParams is struct Gather of kernels/index.cu, where from is x and to is out, and ScatterAdd of index_add.cu,
// where they are src and out.
type indexParams struct {
	from, to, index, fault driver.Pointer
	length, stride         int64
	wide, op               uint32
	walk                   walk3
}

// Elements are moved by their size.
var movedAs = map[int]dtype.DType{
	1: dtype.Uint8, 2: dtype.Uint16, 4: dtype.Uint32, 8: dtype.Uint64, 16: dtype.Complex128,
}

var gatherFamily = newFamily(typeCount, unsafe.Sizeof(indexParams{}), func(i int) (module, kernel string) {
	if d := dtype.DType(i); d.Valid() && movedAs[d.Size()] == d {
		return "index_" + elements[d], "gather_" + elements[d]
	}
	return "", ""
})

// Gather moves elements.
func (b *Backend) Gather(q backend.Queue, dst, x, index backend.Array, along int) error {
	return b.gather(q, faultGather, dst, x, index, along)
}

// IndexSelect is Gather with an index that is the same along the other axes. Rows are moved in pieces of up to 16
// bytes.
func (b *Backend) IndexSelect(q backend.Queue, dst, x, index backend.Array, along int) error {
	spread := make([]int, len(dst.Shape))
	spread[along] = index.Strides[0]
	index.Shape, index.Strides = dst.Shape, spread
	return b.gather(q, faultIndexSelect, dst, x, index, along)
}

func (b *Backend) gather(q backend.Queue, op uint32, dst, x, index backend.Array, along int) error {
	if dst.DType != x.DType || !isIndex(index.DType) {
		return unsupported("compute/cuda.Gather", "%v to %v by %v", x.DType, dst.DType, index.DType)
	}
	if countOf(&dst) == 0 {
		return nil
	}
	p := indexParams{
		from: at(x), to: at(dst), index: at(index), fault: b.fault.pointer(),
		length: int64(x.Shape[along]), stride: int64(x.Strides[along]), op: op,
	}
	l := newLayout(&dst, without(x, along), &index)
	size := l.widest(x.DType.Size(), int(p.stride), p.from|p.to)
	p.stride /= int64(size / x.DType.Size())
	return l.pieces(func(part *layout, offsets [maxOperands]int) error {
		moved := p
		moved.to += driver.Pointer(offsets[0] * size)
		moved.from += driver.Pointer(offsets[1] * size)
		moved.index += driver.Pointer(offsets[2] * index.DType.Size())
		return b.launchIndex(q, gatherFamily, movedAs[size], &moved, part, index.DType)
	})
}

// without is a with a stride of 0 along an axis: there the index says where elements are.
func without(a backend.Array, along int) *backend.Array {
	a.Strides = append([]int(nil), a.Strides...)
	a.Strides[along] = 0
	return &a
}

// widest makes the elements along the first axis larger ones, if they lie side by side in both operands and have one
// index. It returns their size; l counts in them then. A step of stride elements is along the axis of the index.
func (l *layout) widest(size, stride int, pointers driver.Pointer) int {
	if l.strides[0][0] != 1 || l.strides[1][0] != 1 || l.strides[2][0] != 0 {
		return size
	}
	for wide := 16; wide > size; wide /= 2 {
		v := wide / size
		if l.shape[0]%v != 0 || stride%v != 0 || int(pointers)%wide != 0 || !l.divisible(0, v) || !l.divisible(1, v) {
			continue
		}
		l.shape[0] /= v
		for axis := 1; axis < l.rank; axis++ {
			l.strides[0][axis] /= v
			l.strides[1][axis] /= v
		}
		return wide
	}
	return size
}

// divisible reports whether v divides an operand's strides along all axes but the first.
func (l *layout) divisible(operand, v int) bool {
	for _, stride := range l.strides[operand][1:l.rank] {
		if stride%v != 0 {
			return false
		}
	}
	return true
}

func isIndex(d dtype.DType) bool { return d == dtype.Int64 || d == dtype.Int32 }

// launchIndex fills in what Gather and ScatterAdd share, and launches the kernel of type d for a layout that fits.
func (b *Backend) launchIndex(
	q backend.Queue, f *family, d dtype.DType, p *indexParams, l *layout, index dtype.DType,
) error {
	p.walk.set(l)
	l.narrow(p.walk.strides[:])
	if index == dtype.Int64 {
		p.wide = 1
	}
	const threads, some = 256, 4 // and elements of a thread, of kernels/index.cu and index_add.cu
	return launch(b, q, f, int(d), line(ceilDiv(l.elements(), threads*some), threads), *p)
}
