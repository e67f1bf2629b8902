package cuda

import (
	"slices"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// A matrix is one operand of a product, or the first of a batch: its address, and the elements from row to row and from
// column to column.
type matrix struct {
	at          driver.Pointer
	row, column int
}

// A matmul is dst = a @ b, of m by k and k by n, for each of a batch.
type matmul struct {
	d       dtype.DType
	m, n, k int
	dst     matrix
	a, b    matrix
	batch   layout // of dst, a and b
}

// MatMul computes dst = a @ b, by cuBLAS if it is there and the type is a float one, and else by a kernel of our own.
func (b *Backend) MatMul(q backend.Queue, dst, x, y backend.Array) error {
	d := dst.DType
	if !isNumber(d) {
		return unsupported("MatMul", "of %v", d)
	}
	if empty(dst.Shape) {
		return nil
	}
	p := newMatmul(&dst, &x, &y)
	if p.k == 0 {
		return b.Fill(q, dst, dtype.Scalar{})
	}
	if max(p.m, p.n, p.k) > maxElements {
		return unsupported("MatMul", "of matrices of %d x %d and %d x %d", p.m, p.k, p.k, p.n)
	}
	if isFloat(d) && b.blas.open() && p.batch.fits() {
		return b.library(q, p, dst, x, y)
	}
	return b.tiles(q, p)
}

func newMatmul(dst, x, y *backend.Array) matmul {
	last := len(dst.Shape) - 1
	view := func(a *backend.Array) matrix { return matrix{at(*a), a.Strides[last-1], a.Strides[last]} }
	p := matmul{
		d: dst.DType, m: dst.Shape[last-1], n: dst.Shape[last], k: x.Shape[last], dst: view(dst), a: view(x),
		b: view(y),
	}
	batch := [3]backend.Array{*dst, *x, *y}
	for i := range batch {
		batch[i].Shape, batch[i].Strides = batch[i].Shape[:last-1], batch[i].Strides[:last-1]
	}
	p.batch = newLayout(&batch[0], &batch[1], &batch[2])
	p.fold()
	return p
}

// fold makes rows of a batch: [batch, m, k] @ [k, n], as layers of networks are, is one product of batch*m rows if
// these follow each other in a and in dst.
func (p *matmul) fold() {
	l := &p.batch
	for axis := 0; axis < l.rank; {
		if l.strides[2][axis] == 0 && l.strides[0][axis] == p.m*p.dst.row && l.strides[1][axis] == p.m*p.a.row &&
			l.shape[axis] > 1 && p.m*l.shape[axis] <= maxElements {
			p.m *= l.shape[axis]
			l.drop(axis)
			axis = 0
			continue
		}
		axis++
	}
	l.merge()
}

// multiplication is struct MatMul of kernels/matmul.cu.
type multiplication struct {
	dst, a, b        driver.Pointer
	m, n, k          uint32
	aAlongK, bAlongK uint32
	tilesM, tilesN   uint32
	byM, byN         divisor
	_                uint32
	dstM, dstN       int64
	aM, aK, bK, bN   int64
	walk             walk[[3][backend.MaxRank]int64]
}

var multiplications = newFamily(typeCount, unsafe.Sizeof(multiplication{}), func(i int) (module, kernel string) {
	if d := dtype.DType(i); slices.Contains(signedTypes, d) {
		name := "matmul_" + elements[d]
		return name, name
	}
	return "", ""
})

const tileSide = 64 // of the kernel, in elements

// tiles computes p with a kernel of our own.
func (b *Backend) tiles(q backend.Queue, p matmul) error {
	tilesM, tilesN := ceilDiv(p.m, tileSide), ceilDiv(p.n, tileSide)
	if last := p.batch.rank - 1; p.batch.elements() > maxElements/(tilesM*tilesN) && p.batch.shape[last] > 1 {
		return b.halves(q, p, last)
	}
	w := multiplication{
		dst: p.dst.at, a: p.a.at, b: p.b.at, m: uint32(p.m), n: uint32(p.n), k: uint32(p.k),
		aAlongK: toUint32(magnitude(p.a.column) < magnitude(p.a.row)),
		bAlongK: toUint32(magnitude(p.b.row) < magnitude(p.b.column)),
		tilesM:  uint32(tilesM), tilesN: uint32(tilesN), byM: divide(tilesM), byN: divide(tilesN),
		dstM: int64(p.dst.row), dstN: int64(p.dst.column), aM: int64(p.a.row), aK: int64(p.a.column),
		bK: int64(p.b.row), bN: int64(p.b.column),
	}
	w.walk.set(&p.batch)
	for k := range w.walk.strides {
		for axis := range p.batch.rank {
			w.walk.strides[k][axis] = int64(p.batch.strides[k][axis])
		}
	}
	return launch(b, q, multiplications, int(signed(p.d)), line(tilesM*tilesN*p.batch.elements(), threads), w)
}

// halves computes the two halves of a batch that is too great for one launch.
func (b *Backend) halves(q backend.Queue, p matmul, axis int) error {
	length := p.batch.shape[axis]
	first, second := p, p.from(axis, length/2)
	first.batch.shape[axis] = length / 2
	second.batch.shape[axis] = length - length/2
	if err := b.tiles(q, first); err != nil {
		return err
	}
	return b.tiles(q, second)
}

// from is p with the batch moved by i along an axis.
func (p matmul) from(axis, i int) matmul {
	size := p.d.Size()
	p.dst.at += driver.Pointer(i * p.batch.strides[0][axis] * size)
	p.a.at += driver.Pointer(i * p.batch.strides[1][axis] * size)
	p.b.at += driver.Pointer(i * p.batch.strides[2][axis] * size)
	return p
}

func toUint32(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
