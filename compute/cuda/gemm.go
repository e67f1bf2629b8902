package cuda

import (
	"sync"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// cuBLAS knows matrices whose columns, or if it is told so rows, lie in one piece. It is asked for the transposed
// product, dst' = b' @ a', since a matrix of ours with rows in one piece is to it a transposed one with columns in one
// piece.

// workspaceSize is the scratch memory that cuBLAS gets: what NVIDIA recommends, by compute capability.
func (b *Backend) workspaceSize() int64 {
	if b.dev.Info().Compute >= 90 {
		return 32 << 20
	}
	return 4 << 20
}

// library computes p by cuBLAS, with copies of operands that lie in no way that it knows.
func (b *Backend) library(q backend.Queue, p matmul, dst, x, y backend.Array) error {
	if _, _, ok := p.dst.leading(p.m, p.n); !ok {
		return b.through(q, dst, func(whole backend.Array) error { return b.MatMul(q, whole, x, y) })
	}
	if _, _, ok := p.a.leading(p.m, p.k); !ok {
		return b.packed(q, x, func(x backend.Array) error { return b.MatMul(q, dst, x, y) })
	}
	if _, _, ok := p.b.leading(p.k, p.n); !ok {
		return b.packed(q, y, func(y backend.Array) error { return b.MatMul(q, dst, x, y) })
	}
	workspace, err := q.Scratch.Alloc(q.Stream, b.workspaceSize())
	if err != nil {
		return err
	}
	defer q.Scratch.Free(workspace)
	count, strides, rest := 1, [3]int{}, p
	if axis := p.longest(); axis >= 0 {
		count = p.batch.shape[axis]
		for k := range strides {
			strides[k] = p.batch.strides[k][axis]
		}
		rest.batch.drop(axis)
	}
	return rest.each(rest.batch.rank-1, func(p matmul) error { return b.gemm(q, p, count, strides, workspace.Ptr) })
}

// longest returns the longest axis of the batch that can be one call's: along which nothing goes backward. -1 if none
// is.
func (p *matmul) longest() int {
	best := -1
	for axis := range p.batch.rank {
		s := &p.batch.strides
		if min(s[0][axis], s[1][axis], s[2][axis]) >= 0 && (best < 0 || p.batch.shape[axis] > p.batch.shape[best]) {
			best = axis
		}
	}
	return best
}

// each calls visit for every one of the batch.
func (p matmul) each(axis int, visit func(matmul) error) error {
	if axis < 0 {
		return visit(p)
	}
	for i := range p.batch.shape[axis] {
		if err := p.from(axis, i).each(axis-1, visit); err != nil {
			return err
		}
	}
	return nil
}

// leading says how cuBLAS can read a matrix of ours of so many rows and columns: the elements from one row (or, if
// columns lie in one piece, from one column) to the next.
func (m matrix) leading(rows, columns int) (distance int, byColumns, ok bool) {
	fits := func(step, along, length, lines int) (int, bool) {
		if length > 1 && step != 1 {
			return 0, false
		}
		if lines == 1 {
			along = length
		}
		return along, along >= length && along <= maxStride
	}
	if distance, ok = fits(m.column, m.row, columns, rows); ok {
		return distance, false, true
	}
	distance, ok = fits(m.row, m.column, rows, columns)
	return distance, true, ok
}

// packed calls use with a copy of a in scratch memory, whose rows lie in one piece. Axes of the batch along which a
// stays where it is do so in the copy.
func (b *Backend) packed(q backend.Queue, a backend.Array, use func(backend.Array) error) error {
	small, large, size := compact(a)
	p, free, err := scratch(q, int64(size*a.DType.Size()))
	if err != nil {
		return err
	}
	defer free()
	small.Ptr, large.Ptr = p, p
	once := a
	once.Shape = small.Shape
	if err := b.Copy(q, small, once); err != nil {
		return err
	}
	return use(large)
}

// through calls use with an array like dst in scratch memory, whose rows lie in one piece, and copies that to dst.
func (b *Backend) through(q backend.Queue, dst backend.Array, use func(backend.Array) error) error {
	_, whole, size := compact(dst)
	p, free, err := scratch(q, int64(size*dst.DType.Size()))
	if err != nil {
		return err
	}
	defer free()
	whole.Ptr = p
	if err := use(whole); err != nil {
		return err
	}
	return b.Copy(q, dst, whole)
}

// compact returns row-major arrays of as many elements as a has: once, in which axes along which a stays where it is
// have length 1, and all, of a's shape, which has strides of 0 there; and how many elements they have.
func compact(a backend.Array) (once, all backend.Array, size int) {
	rank := len(a.Shape)
	shape, strides := make([]int, rank), make([]int, rank)
	size = 1
	for axis := rank - 1; axis >= 0; axis-- {
		shape[axis] = 1
		if a.Strides[axis] != 0 || axis >= rank-2 {
			shape[axis] = a.Shape[axis]
			strides[axis] = size
			size *= shape[axis]
		}
	}
	once = backend.Array{DType: a.DType, Shape: shape, Strides: strides}
	all = once
	all.Shape = a.Shape
	return once, all, size
}

// gemm queues one call: count products, with so many elements from one to the next.
func (b *Backend) gemm(q backend.Queue, p matmul, count int, strides [3]int, workspace driver.Pointer) error {
	// If dst has columns in one piece, the product is that of the transposed matrices the other way round.
	if _, byColumns, _ := p.dst.leading(p.m, p.n); byColumns {
		p.m, p.n = p.n, p.m
		p.a, p.b = p.b.transposed(), p.a.transposed()
		p.dst = p.dst.transposed()
		strides[1], strides[2] = strides[2], strides[1]
	}
	ldc, _, _ := p.dst.leading(p.m, p.n)
	lda, aByColumns, _ := p.a.leading(p.m, p.k)
	ldb, bByColumns, _ := p.b.leading(p.k, p.n)
	call := gemmCalls.Get().(*gemmCall)
	defer gemmCalls.Put(call)
	call.gemmArguments = gemmArguments{
		transA: bByColumns, transB: aByColumns, m: p.n, n: p.m, k: p.k, a: p.b.at, lda: ldb, strideA: strides[2],
		b: p.a.at, ldb: lda, strideB: strides[1], c: p.dst.at, ldc: ldc, strideC: strides[0], count: count, d: p.d,
		workspace: workspace, workspaceSize: b.workspaceSize(),
	}
	call.blas = &b.blas
	return b.kernels.Launch(q.Stream, driver.Kernel{Name: "cublasGemmStridedBatchedEx", Call: call.queue})
}

func (m matrix) transposed() matrix { return matrix{m.at, m.column, m.row} }

// gemmArguments are what cuBLAS is asked, in its words: c = op(a) op(b), of m by k and k by n, columns in one piece,
// count times.
type gemmArguments struct {
	transA, transB            bool
	m, n, k, lda, ldb, ldc    int
	a, b, c                   driver.Pointer
	strideA, strideB, strideC int
	count                     int
	d                         dtype.DType
	workspace                 driver.Pointer
	workspaceSize             int64
}

// A gemmCall is a call of cuBLAS on its way through a launch, which is over when that returns.
type gemmCall struct {
	gemmArguments
	blas  *blas
	queue func(stream uintptr) error
}

var gemmCalls = sync.Pool{New: func() any {
	c := &gemmCall{}
	c.queue = func(stream uintptr) error { return c.blas.gemm(stream, &c.gemmArguments) }
	return c
}}
