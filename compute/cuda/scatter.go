package cuda

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

var scatterFamily = newFamily(typeCount, unsafe.Sizeof(indexParams{}), func(i int) (module, kernel string) {
	if d := dtype.DType(i); isFloat(d) || d.Kind() == dtype.KindUnsigned {
		return "index_add_" + elements[d], "scatter_add_" + elements[d]
	}
	return "", ""
})

// ScatterAdd adds atomically. The hardware's additions of float32 take subnormal numbers for zeros.
func (b *Backend) ScatterAdd(q backend.Queue, dst, index, src backend.Array, along int) error {
	d := src.DType
	if !isNumber(d) || dst.DType != d || !isIndex(index.DType) {
		return unsupported("compute/cuda.ScatterAdd", "%v to %v by %v", src.DType, dst.DType, index.DType)
	}
	if countOf(&src) == 0 {
		return nil
	}
	if !isFloat(d) {
		d = unsignedOf(d)
	}
	p := indexParams{
		from: at(src), to: at(dst), index: at(index), fault: b.fault.pointer(),
		length: int64(dst.Shape[along]), stride: int64(dst.Strides[along]), op: faultScatterAdd,
	}
	l := newLayout(&src, without(dst, along), &index)
	sizes := [3]int{src.DType.Size(), dst.DType.Size(), index.DType.Size()}
	return l.pieces(func(part *layout, offsets [maxOperands]int) error {
		moved := p
		moved.from += driver.Pointer(offsets[0] * sizes[0])
		moved.to += driver.Pointer(offsets[1] * sizes[1])
		moved.index += driver.Pointer(offsets[2] * sizes[2])
		return b.launchIndex(q, scatterFamily, d, &moved, part, index.DType)
	})
}
