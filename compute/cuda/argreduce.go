package cuda

import (
	"math"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// argReduceParams is struct ReduceArg of kernels/reduce_arg.cu.
type argReduceParams struct {
	x, from, values, out      driver.Pointer
	outputs, n, stride, chunk int64
	change                    uint64
	group, flags              uint32
	kept                      axes[[2]strides]
}

// The kernels: of elements, and of units in rows or columns.
var argReduceNames = [...]string{"argmax_1_", "argmax_rows_", "argmax_columns_"}

// Kernels are numbered by name and by type.
var argReduceFamily = newFamily(len(argReduceNames)*typeCount, unsafe.Sizeof(argReduceParams{}),
	func(i int) (module, kernel string) {
		if d := dtype.DType(i % typeCount); isNumber(d) {
			return "reduce_arg_" + elements[d], argReduceNames[i/typeCount] + elements[d]
		}
		return "", ""
	})

// ArgReduce finds where elements are in one launch, or in two where the results are few.
func (b *Backend) ArgReduce(q backend.Queue, least bool, dst, x backend.Array, along int) error {
	d := x.DType
	if d == dtype.Bool {
		d = dtype.Uint8
	}
	if !isNumber(d) || dst.DType != dtype.Int64 {
		return unsupported("compute/cuda.ArgReduce", "%v to %v", x.DType, dst.DType)
	}
	if countOf(&dst) == 0 {
		return nil
	}
	var folded []axis
	if n := x.Shape[along]; n > 1 {
		folded = []axis{{n: n, stride: [3]int{x.Strides[along]}}}
	}
	p := argReduceParams{x: at(x), out: at(dst)}
	if least {
		p.change = turningBits(d)
	}
	return b.argReduce(q, d, p, axesOf(func(k int) bool { return k != along }, &x, &dst), folded)
}

// argReduce fills in the rest of p and launches.
func (b *Backend) argReduce(q backend.Queue, d dtype.DType, p argReduceParams, kept, folded []axis) error {
	plan := planArgReduce(d, p.x, kept, folded, b.multiprocessors)
	p.outputs, p.n, p.chunk = plan.params.outputs, plan.params.n, plan.params.chunk
	p.group, p.flags = plan.params.group, plan.params.flags
	p.kept, p.stride = plan.params.kept, plan.params.folded.stride[0][0]
	kernel := int(d)
	if plan.units {
		kernel += typeCount
		if p.flags&reduceColumns != 0 {
			kernel += typeCount
		}
	}
	s := shape{grid: [3]uint32{uint32(plan.blocks), uint32(plan.splits)}, block: [3]uint32{reduceThreads}}
	if plan.splits == 1 {
		return launch(b, q, argReduceFamily, kernel, s, p)
	}
	outputs := countAlong(kept)
	parts, free, err := scratch(q, int64(outputs)*int64(plan.splits)*(8+int64(d.Size())))
	if err != nil {
		return err
	}
	defer free()
	first := p
	first.out, first.values = parts, parts+driver.Pointer(8*outputs*plan.splits)
	if err := launch(b, q, argReduceFamily, kernel, s, first); err != nil {
		return err
	}
	p.x, p.from = first.values, first.out
	return b.argReduce(q, d, p, leftAxes(kept), []axis{{n: plan.splits, stride: [3]int{outputs}}})
}

// planArgReduce gives a thread more units than a Reduce does, since it looks at some of them twice, but of rows that
// are not short leaves four threads or more to each, so that neighbours read neighbours.
func planArgReduce(d dtype.DType, x driver.Pointer, kept, folded []axis, multiprocessors int) reducePlan {
	v := min(8, 16/d.Size())
	few := min(32, max(8, countAlong(folded)/v/4))
	return planUnits(v, int(x)%(v*d.Size()) == 0, few, kept, folded, multiprocessors)
}

// turningBits is what turns the order of elements around, eight bytes of them: the signs, or all bits.
func turningBits(d dtype.DType) uint64 {
	if !isFloat(d) {
		return math.MaxUint64
	}
	bits := uint64(1) << (8*d.Size() - 1)
	for width := 8 * d.Size(); width < 64; width *= 2 {
		bits |= bits << width
	}
	return bits
}
