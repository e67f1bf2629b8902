package cuda

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// normParams is struct Norm of kernels/norm.cu.
type normParams struct {
	x, out, weight, bias, parts driver.Pointer
	rows, n, chunk              int64
	eps                         float64
	splits, group, rms, _       uint32
	kept                        axes[[2]strides]
}

var normFamily = newFamily(rowsColumns*typeCount, unsafe.Sizeof(normParams{}), func(i int) (module, kernel string) {
	if d := dtype.DType(i % typeCount); isFloat(d) {
		return "norm_" + elements[d], "norm_" + rowNames[i/typeCount] + "_" + elements[d]
	}
	return "", ""
})

// Norm works on rows whose elements lie side by side; operands that are not so are copied first, and the result after.
func (b *Backend) Norm(
	q backend.Queue, rms bool, dst, x backend.Array, n int, weight, bias *backend.Array, eps float64,
) error {
	if !isFloat(x.DType) || dst.DType != x.DType {
		return unsupported("compute/cuda.Norm", "%v to %v", x.DType, dst.DType)
	}
	if countOf(&dst) == 0 {
		return nil
	}
	w := normWork{b: b, q: q, n: n}
	err := w.norm(rms, dst, x, weight, bias, eps)
	for _, free := range w.scratch {
		free()
	}
	return err
}

// A normWork is one call of Norm and the scratch memory that it uses.
type normWork struct {
	b       *Backend
	q       backend.Queue
	n       int // axes of a row
	scratch []func()
}

func (w *normWork) norm(rms bool, dst, x backend.Array, weight, bias *backend.Array, eps float64) error {
	out := dst
	var err error
	if !sideBySide(&dst, w.n) {
		if out, err = w.contiguousScratch(&dst); err != nil {
			return err
		}
	}
	p := normParams{eps: eps, splits: 1}
	if rms {
		p.rms = 1
	}
	if x, err = w.contiguous(x, w.n); err != nil {
		return err
	}
	if weight != nil {
		a, err := w.contiguous(*weight, w.n)
		if err != nil {
			return err
		}
		p.weight = at(a)
	}
	if bias != nil {
		a, err := w.contiguous(*bias, w.n)
		if err != nil {
			return err
		}
		p.bias = at(a)
	}
	if err := w.rows(&p, out, x); err != nil {
		return err
	}
	if out.Ptr != dst.Ptr {
		return w.b.Copy(w.q, dst, out)
	}
	return nil
}

// rows normalizes the rows of x.
func (w *normWork) rows(p *normParams, out, x backend.Array) error {
	d, first := x.DType, len(x.Shape)-w.n
	kept := axesOf(func(k int) bool { return k < first }, &x, &out)
	rows, n := countAlong(kept), 1
	for _, length := range x.Shape[first:] {
		n *= length
	}
	p.x, p.out, p.rows, p.n, p.kept = at(x), at(out), int64(rows), int64(n), axes2(kept)
	threads := 512
	if d.Size() == 2 {
		threads = 1024
	}
	plan := planRows(d, rows, n, inUnits(d, n, kept, p.x, p.out, p.weight, p.bias), threads, w.b.multiprocessors)
	p.group = uint32(plan.group)
	if plan.splits > 0 {
		parts, err := w.takeScratch(int64(plan.blocks) * 3 * int64(wideSize(d)))
		if err != nil {
			return err
		}
		p.parts, p.splits, p.chunk = parts, uint32(plan.splits), int64(plan.chunk)
	}
	run := func(kernel int) error {
		return launch(w.b, w.q, normFamily, kernel*typeCount+int(d), line(plan.blocks, plan.threads), *p)
	}
	if err := run(plan.kernel); err != nil || plan.splits == 0 {
		return err
	}
	return run(rowsWrite)
}

// sideBySide reports whether the elements of the last n axes lie side by side, in their order.
func sideBySide(a *backend.Array, n int) bool {
	step := 1
	for k := len(a.Shape) - 1; k >= len(a.Shape)-n; k-- {
		if a.Shape[k] != 1 && a.Strides[k] != step {
			return false
		}
		step *= a.Shape[k]
	}
	return true
}

// contiguous returns a, or a copy of it whose elements lie side by side.
func (w *normWork) contiguous(a backend.Array, n int) (backend.Array, error) {
	if sideBySide(&a, n) {
		return a, nil
	}
	c, err := w.contiguousScratch(&a)
	if err != nil {
		return c, err
	}
	return c, w.b.Copy(w.q, c, a)
}

// contiguousScratch returns scratch memory as an array like a without gaps.
func (w *normWork) contiguousScratch(a *backend.Array) (backend.Array, error) {
	c := packed(a.Shape...)
	c.DType = a.DType
	var err error
	c.Ptr, err = w.takeScratch(int64(countOf(a)) * int64(a.DType.Size()))
	return c, err
}

func (w *normWork) takeScratch(size int64) (driver.Pointer, error) {
	p, free, err := scratch(w.q, size)
	if err == nil {
		w.scratch = append(w.scratch, free)
	}
	return p, err
}
