package cuda

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
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
	list := axesOf(func(int) bool { return true }, &src, without(dst, along), &index)
	const threads, some = 256, 4 // and elements of a thread, at least
	blocks := min(ceilDiv(countAlong(list), threads*some), b.multiprocessors*64)
	return b.launchIndex(q, scatterFamily, d, p, list, index.DType, line(blocks, threads))
}
