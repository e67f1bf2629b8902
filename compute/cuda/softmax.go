package cuda

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// softmaxParams is struct Softmax of kernels/softmax.cu.
type softmaxParams struct {
	x, out, parts         driver.Pointer
	rows, n, chunk        int64
	xStride, outStride    int64
	splits, group, log, _ uint32
	kept                  axes[[2]strides]
}

var softmaxFamily = newFamily(rowKinds*typeCount, unsafe.Sizeof(softmaxParams{}), func(i int) (module, kernel string) {
	if d := dtype.DType(i % typeCount); isFloat(d) {
		return "softmax_" + elements[d], "softmax_" + rowNames[i/typeCount] + "_" + elements[d]
	}
	return "", ""
})

// Softmax reads rows that fit in a block's registers once, and others twice.
func (b *Backend) Softmax(q backend.Queue, log bool, dst, x backend.Array, along int) error {
	d := x.DType
	if !isFloat(d) || dst.DType != d {
		return unsupported("compute/cuda.Softmax", "%v to %v", x.DType, dst.DType)
	}
	if countOf(&dst) == 0 {
		return nil
	}
	kept := axesOf(func(k int) bool { return k != along }, &x, &dst)
	rows, n := countAlong(kept), dst.Shape[along]
	p := softmaxParams{
		x: at(x), out: at(dst), rows: int64(rows), n: int64(n),
		xStride: int64(x.Strides[along]), outStride: int64(dst.Strides[along]), splits: 1, kept: axes2(kept),
	}
	if log {
		p.log = 1
	}
	run := func(kernel, blocks, threads int) error {
		return launch(b, q, softmaxFamily, kernel*typeCount+int(d), line(blocks, threads), p)
	}
	if n > 1 && (p.xStride != 1 || p.outStride != 1) {
		others := min(32, powerAbove(rows))
		p.group = uint32(min(256/others, powerAbove(n)))
		return run(rowsColumns, ceilDiv(rows, 256/int(p.group)), 256)
	}
	units := inUnits(d, n, kept, at(x), at(dst)) || n > 256 && alignedAlike(d, kept, at(x), at(dst))
	plan := planRows(d, rows, n, units, 1024, b.multiprocessors)
	p.group = uint32(plan.group)
	if plan.splits == 0 {
		return run(plan.kernel, plan.blocks, plan.threads)
	}
	parts, free, err := scratch(q, int64(plan.blocks)*2*int64(wideSize(d)))
	if err != nil {
		return err
	}
	defer free()
	p.parts, p.splits, p.chunk = parts, uint32(plan.splits), int64(plan.chunk)
	if err := run(plan.kernel, plan.blocks, plan.threads); err != nil {
		return err
	}
	return run(rowsWrite, plan.blocks, plan.threads)
}

// inUnits reports whether rows of n elements, of the operands that begin at the pointers, can be moved 16 bytes at a
// time.
func inUnits(d dtype.DType, n int, kept []axis, pointers ...driver.Pointer) bool {
	v := 16 / d.Size()
	for _, p := range pointers {
		if p%16 != 0 {
			return false
		}
	}
	return n%v == 0 && divisible(kept, 0, v) && divisible(kept, 1, v)
}

// alignedAlike reports whether each row of one operand is aligned to 16 bytes as that of the other is, if not in whole
// units.
func alignedAlike(d dtype.DType, kept []axis, x, out driver.Pointer) bool {
	for _, a := range kept {
		if (a.stride[0]-a.stride[1])%(16/d.Size()) != 0 {
			return false
		}
	}
	return (x-out)%16 == 0
}

// wideSize is the size of the numbers that arithmetic on floats of type d is done in.
func wideSize(d dtype.DType) int { return max(4, d.Size()) }
