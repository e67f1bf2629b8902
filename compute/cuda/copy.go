package cuda

import (
	"slices"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// Fill sets every element to value.
func (b *Backend) Fill(q backend.Queue, dst backend.Array, value dtype.Scalar) error {
	var p operands
	value.Put(unsafe.Slice((*byte)(unsafe.Pointer(&p.value)), unsafe.Sizeof(p.value)), dst.DType)
	return b.run(q, fillKind, sized(dst.DType.Size()), &p, &dst)
}

// Copy converts src to dst. What lies in one piece and needs no conversion the device copies without a kernel.
func (b *Backend) Copy(q backend.Queue, dst, src backend.Array) error {
	if empty(dst.Shape) {
		return nil
	}
	if src.DType == dtype.Bool && dst.DType != dtype.Bool {
		src.DType = dtype.Uint8 // 0 or 1
	}
	to, from := dst.DType, src.DType
	switch {
	case to == from, to.IsInteger() && from.IsInteger() && to.Size() == from.Size():
		return b.move(q, &dst, &src)
	case from.IsComplex() || to.IsComplex():
		return b.copyComplex(q, dst, src)
	}
	p := operands{op: uint32(to)}
	if from.IsInteger() && to.Kind() == dtype.KindSigned {
		p.op = uint32(sized(to.Size())) // the same bits
	}
	k := convert8Kind
	switch max(to.Size(), from.Size()) {
	case 1:
		k = convert1Kind
	case 2:
		k = convert2Kind
	case 4:
		k = convert4Kind
	}
	return b.run(q, k, from, &p, &dst, &src)
}

// copyComplex converts from or to a complex type, part by part.
func (b *Backend) copyComplex(q backend.Queue, dst, src backend.Array) error {
	switch {
	case dst.DType == dtype.Bool:
		return b.run(q, nonzeroKind, src.DType, &operands{}, &dst, &src)
	case !dst.DType.IsComplex():
		return b.Copy(q, dst, part(src, 0))
	case !src.DType.IsComplex():
		if err := b.Copy(q, part(dst, 0), src); err != nil {
			return err
		}
		return b.Fill(q, part(dst, 1), dtype.Scalar{})
	case len(dst.Shape) < backend.MaxRank:
		return b.Copy(q, parts(dst), parts(src))
	}
	if err := b.Copy(q, part(dst, 0), part(src, 0)); err != nil {
		return err
	}
	return b.Copy(q, part(dst, 1), part(src, 1))
}

// part is the real (0) or imaginary (1) parts of a complex array.
func part(a backend.Array, which int) backend.Array {
	a = parts(a)
	last := len(a.Shape) - 1
	a.Shape, a.Strides = a.Shape[:last], a.Strides[:last]
	a.Offset += which
	return a
}

// parts is a complex array as one of floats, with one more axis.
func parts(a backend.Array) backend.Array {
	if a.DType == dtype.Complex64 {
		a.DType = dtype.Float32
	} else {
		a.DType = dtype.Float64
	}
	strides := make([]int, len(a.Strides), len(a.Strides)+1)
	for i, s := range a.Strides {
		strides[i] = 2 * s
	}
	a.Offset *= 2
	a.Shape = append(a.Shape[:len(a.Shape):len(a.Shape)], 2)
	a.Strides = append(strides, 1)
	return a
}

// move copies elements as they are.
func (b *Backend) move(q backend.Queue, dst, src *backend.Array) error {
	l := newLayout(dst, src)
	offsets := l.forward()
	size := dst.DType.Size()
	to := at(*dst) + driver.Pointer(offsets[0]*size)
	from := at(*src) + driver.Pointer(offsets[1]*size)
	if l.rank == 1 && l.strides[0][0] == 1 && l.strides[1][0] == 1 {
		return q.Stream.Copy(to, from, int64(l.shape[0]*size))
	}
	if axis := l.transposed(); axis > 0 && l.fits() {
		return b.transpose(q, &l, axis, size, to, from)
	}
	return b.run(q, moveKind, sized(size), &operands{}, dst, src)
}

// transposed returns the axis along which src's elements follow each other if that is not the one along which dst's do,
// and both are long enough for tiles; else 0.
func (l *layout) transposed() int {
	const enough = 8
	if l.strides[0][0] != 1 || l.strides[1][0] == 1 || l.shape[0] < enough {
		return 0
	}
	for axis := 1; axis < l.rank; axis++ {
		if l.strides[1][axis] == 1 && l.shape[axis] >= enough {
			return axis
		}
	}
	return 0
}

// transposition is struct Transpose of kernels/move.cu.
type transposition struct {
	dst, src         driver.Pointer
	rows, columns    uint32
	dstStep, srcStep int64
	across, down     divisor
	tilesAcross      uint32
	tilesDown        uint32
	walk             walk2
}

// Kernels are numbered by size, and by whether they move words of 4 bytes.
var transposes = newFamily(2*typeCount, unsafe.Sizeof(transposition{}), func(i int) (module, kernel string) {
	d, words := dtype.DType(i%typeCount), i >= typeCount
	if !slices.Contains(sizedTypes, d) || words && d.Size() > 2 {
		return "", ""
	}
	kernel = "transpose_"
	if words {
		kernel = "transpose_words_"
	}
	return "move_" + elements[d], kernel + elements[d]
})

// transpose moves elements of which dst's follow each other along the first axis and src's along another.
func (b *Backend) transpose(q backend.Queue, l *layout, axis, size int, to, from driver.Pointer) error {
	side, kernel := 64, int(sized(size))
	switch {
	case size == 16:
		side = 32
	case size < 4 && l.words(axis, size, to, from):
		side, kernel = 32*4/size, kernel+typeCount
	}
	across, down := ceilDiv(l.shape[0], side), ceilDiv(l.shape[axis], side)
	p := transposition{
		dst: to, src: from, rows: uint32(l.shape[axis]), columns: uint32(l.shape[0]),
		dstStep: int64(l.strides[0][axis]), srcStep: int64(l.strides[1][0]),
		across: divide(across), down: divide(down), tilesAcross: uint32(across), tilesDown: uint32(down),
	}
	rest := *l
	rest.drop(axis)
	rest.drop(0)
	rest.merge()
	p.walk.set(&rest)
	rest.narrow(p.walk.strides[:])
	return launch(b, q, transposes, kernel, line(across*down*rest.elements(), threads), p)
}

// words reports whether a transposition can be done in words of 4 bytes.
func (l *layout) words(axis, size int, to, from driver.Pointer) bool {
	n := l.shape[0] | l.shape[axis]
	for k := range 2 {
		for a, stride := range l.strides[k][:l.rank] {
			if unit := (k == 0 && a == 0) || (k == 1 && a == axis); !unit {
				n |= stride
			}
		}
	}
	return (to|from)%4 == 0 && n%(4/size) == 0
}
