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
	n, length, stride      int64
	wide, op               uint32
	at                     axes[[3]strides]
}

// Elements are moved by their size.
var moved = map[int]dtype.DType{
	1: dtype.Uint8, 2: dtype.Uint16, 4: dtype.Uint32, 8: dtype.Uint64, 16: dtype.Complex128,
}

var gatherFamily = newFamily(typeCount, unsafe.Sizeof(indexParams{}), func(i int) (module, kernel string) {
	if d := dtype.DType(i); d.Valid() && moved[d.Size()] == d {
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
	list := axesOf(func(int) bool { return true }, &dst, without(x, along), &index)
	size := widest(list, x.DType.Size(), int(p.stride), p.from|p.to)
	p.stride /= int64(size / x.DType.Size())
	const threads, some = 256, 4 // and elements of a thread, of kernels/index.cu
	blocks := ceilDiv(countAlong(list), threads*some)
	return b.launchIndex(q, gatherFamily, moved[size], p, list, index.DType, line(blocks, threads))
}

// without is a with a stride of 0 along an axis: there the index says where elements are.
func without(a backend.Array, along int) *backend.Array {
	a.Strides = append([]int(nil), a.Strides...)
	a.Strides[along] = 0
	return &a
}

// widest makes the elements along the innermost axis of list larger ones, if they lie side by side in both operands and
// have one index. It returns their size; list counts in them then.
func widest(list []axis, size, stride int, pointers driver.Pointer) int {
	if len(list) == 0 || list[0].stride != [3]int{1, 1, 0} {
		return size
	}
	for wide := 16; wide > size; wide /= 2 {
		v := wide / size
		if list[0].n%v != 0 || stride%v != 0 || int(pointers)%wide != 0 || !divisible(list[1:], 0, v) ||
			!divisible(list[1:], 1, v) {
			continue
		}
		list[0].n /= v
		for k := range list[1:] {
			list[1+k].stride[0] /= v
			list[1+k].stride[1] /= v
		}
		return wide
	}
	return size
}

func isIndex(d dtype.DType) bool { return d == dtype.Int64 || d == dtype.Int32 }

// launchIndex fills in what Gather and ScatterAdd share, and launches the kernel of type d.
func (b *Backend) launchIndex(
	q backend.Queue, f *family, d dtype.DType, p indexParams, list []axis, index dtype.DType, s shape,
) error {
	p.n, p.at = int64(countAlong(list)), axes3(list)
	if index == dtype.Int64 {
		p.wide = 1
	}
	return launch(b, q, f, int(d), s, p)
}
