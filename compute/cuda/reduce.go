package cuda

import (
	"math"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// reduceParams is struct Reduce of kernels/reduce.cu.
type reduceParams struct {
	x, out                    driver.Pointer
	outputs, n, chunk, splits int64 // splits: results in all, if what splits have is wanted
	count                     float64
	change, finish            uint64
	group, flags, kind, _     uint32
	kept                      axes[[2]strides]
	folded                    axes[[1]strides]
}

// Flags of reduceParams.
const (
	reduceRoot = 1 << iota
	reduceMean
	reduceColumns
	reducePeel
)

// The operations that kernels know.
const (
	reduceSum = iota
	reduceProd
	reduceMax
	reduceAny
	reduceKinds
)

var reduceNames = [reduceKinds]string{"sum", "prod", "max", "any"}

// Kernels are numbered by operation, by whether they load units, and by type.
var reduceFamily = newFamily(reduceKinds*2*typeCount, unsafe.Sizeof(reduceParams{}),
	func(i int) (module, kernel string) {
		d, kind, units := dtype.DType(i%typeCount), i/typeCount/2, i/typeCount%2 == 1
		if !isNumber(d) || kind == reduceAny && d.Kind() != dtype.KindUnsigned || units && unitLanes(kind, d) == 1 {
			return "", ""
		}
		form := "_1_"
		if units {
			form = "_v_"
		}
		return "reduce_" + elements[d], reduceNames[kind] + form + elements[d]
	})

// unitLanes is how many elements a unit has, 1 if no kernel loads units.
func unitLanes(kind int, d dtype.DType) int {
	switch {
	case kind == reduceProd, kind != reduceAny && d.IsInteger() && d.Size() < 4 && d != dtype.Uint8:
		return 1
	case d.Size() == 1:
		return 8
	}
	return 16 / d.Size()
}

// A reduction is what a launch of one of the kernels is to do, whatever the shape.
type reduction struct {
	kind           int
	element        dtype.DType // the module's
	partial        dtype.DType // what splits leave
	result         dtype.DType
	change, finish uint64
	before         uint32 // of any: elements are turned around
	flags          uint32
	count          int // for the mean
}

// reductionOf finds the kernel for an operation; the second result is false if there is none.
func reductionOf(op backend.ReduceOp, d dtype.DType) (r reduction, known bool) {
	if d != dtype.Bool && !isNumber(d) {
		return r, false
	}
	r.element = d
	if d == dtype.Bool {
		r.element = dtype.Uint8
	}
	wide := dtype.Int64
	if isFloat(d) {
		wide = dtype.Float32
		if d == dtype.Float64 {
			wide = d
		}
	}
	switch op {
	case backend.Sum, backend.Prod:
		r.partial, r.result = wide, wide
		if isFloat(d) {
			r.result = d
		}
		if op == backend.Prod {
			r.kind = reduceProd
		}
		return r, true
	case backend.Mean, backend.Norm2:
		r.partial, r.result, r.flags = wide, d, reduceMean
		if op == backend.Norm2 {
			r.flags, r.change = reduceRoot, math.MaxUint64
		}
		return r, isFloat(d)
	case backend.Max, backend.Min:
		r.kind, r.partial, r.result = reduceMax, r.element, d
		if isFloat(d) {
			r.partial = wide
		}
		if op == backend.Min {
			r.change = turning(d)
		}
		return r, true
	case backend.Any, backend.AllTrue:
		r.kind, r.partial, r.result = reduceAny, dtype.Uint8, dtype.Bool
		r.element = unsignedOf(d)
		r.change = math.MaxUint64
		if isFloat(d) {
			r.change = math.MaxUint64 >> (65 - 8*d.Size()) // not the sign
		}
		if op == backend.AllTrue {
			r.before, r.finish = 1, 1
		}
		return r, true
	}
	return r, false
}

// turning is what turns the order of numbers around: the sign bit, as they are computed with, or all bits.
func turning(d dtype.DType) uint64 {
	switch {
	case d == dtype.Float64:
		return 1 << 63
	case isFloat(d):
		return 1 << 31
	}
	return math.MaxUint64
}

// unsignedOf is the unsigned type of d's size.
func unsignedOf(d dtype.DType) dtype.DType {
	return map[int]dtype.DType{1: dtype.Uint8, 2: dtype.Uint16, 4: dtype.Uint32, 8: dtype.Uint64}[d.Size()]
}

// again is the reduction of what the splits of r left, and r becomes that of a split.
func (r *reduction) again() reduction {
	next := *r
	next.element = r.partial
	switch r.kind {
	case reduceSum:
		next.change = 0
		r.flags = 0
	case reduceAny:
		next.change, next.before = 1, 0
		r.finish = 0
	case reduceMax:
		if next.change != 0 {
			next.change = turning(next.element)
		}
	}
	r.result = r.partial
	return next
}

// Reduce combines elements in one launch, or in two where the results are few.
func (b *Backend) Reduce(q backend.Queue, op backend.ReduceOp, dst, x backend.Array) error {
	r, known := reductionOf(op, x.DType)
	if !known || dst.DType != r.result {
		return unsupported("compute/cuda.Reduce", "%v of %v to %v", op, x.DType, dst.DType)
	}
	if countOf(&dst) == 0 {
		return nil
	}
	reduced := func(k int) bool { return dst.Shape[k] == 1 }
	from := at(x)
	folded := axesOf(reduced, &x)
	for i, a := range folded { // the order of elements does not matter
		if a.stride[0] < 0 && a.n > 0 {
			from += driver.Pointer((a.n - 1) * a.stride[0] * x.DType.Size())
			folded[i].stride[0] = -a.stride[0]
		}
	}
	folded = merged(folded)
	r.count = countAlong(folded)
	kept := axesOf(func(k int) bool { return !reduced(k) }, &x, &dst)
	return b.reduce(q, r, from, at(dst), kept, folded)
}

// reduce combines the elements along folded, axes of x, for each of those along kept, axes of x and out.
func (b *Backend) reduce(q backend.Queue, r reduction, x, out driver.Pointer, kept, folded []axis) error {
	p := planReduce(r.kind, r.element, x, kept, folded, b.multiprocessors)
	if p.splits == 1 {
		return b.launchReduce(q, r, &p, x, out)
	}
	outputs := countAlong(kept)
	parts, free, err := scratch(q, int64(outputs)*int64(p.splits)*int64(r.partial.Size()))
	if err != nil {
		return err
	}
	defer free()
	next := r.again()
	p.params.splits = int64(outputs)
	if err := b.launchReduce(q, r, &p, x, parts); err != nil {
		return err
	}
	return b.reduce(q, next, parts, out, leftAxes(kept), []axis{{n: p.splits, stride: [3]int{outputs}}})
}

// leftAxes is axes whose first operand is what was left of the axes given: elements side by side in their order.
func leftAxes(kept []axis) []axis {
	list, step := make([]axis, len(kept)), 1
	for k, a := range kept {
		list[k] = a
		list[k].stride[0] = step
		step *= a.n
	}
	return list
}

func (b *Backend) launchReduce(q backend.Queue, r reduction, p *reducePlan, x, out driver.Pointer) error {
	params := p.params
	params.x, params.out = x, out
	params.count, params.change, params.finish = float64(r.count), r.change, r.finish
	params.flags |= r.flags
	switch {
	case r.kind == reduceAny:
		params.kind = r.before
	case r.result == dtype.Float16:
		params.kind = 1
	case r.result == dtype.BFloat16:
		params.kind = 2
	}
	kernel := r.kind * 2 * typeCount
	if p.units {
		kernel += typeCount
	}
	s := shape{grid: [3]uint32{uint32(p.blocks), uint32(p.splits)}, block: [3]uint32{reduceThreads}}
	return launch(b, q, reduceFamily, kernel+int(r.element), s, params)
}
