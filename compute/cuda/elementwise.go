package cuda

import (
	"slices"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// Kernels that go through operands element by element come in pairs: one for operands that can be read 16 bytes at a
// time, and one for all others (kernels/elementwise.cuh). Each does many operations on one type.

// A kind is a pair of such kernels.
type kind int

const (
	unaryKind kind = iota
	predicateKind
	binaryKind
	compareKind
	moveKind
	fillKind
	whereKind
	nonzeroKind
	convert1Kind // by the size of the wider type; they have one walk kernel
	convert2Kind
	convert4Kind
	convert8Kind
	kindCount
)

var kinds = [kindCount]struct {
	module, vectors, walk string
	types                 []dtype.DType
}{
	unaryKind:     {"unary", "unary", "unary_walk", signedTypes},
	predicateKind: {"unary", "predicate", "predicate_walk", signedTypes},
	binaryKind:    {"binary", "binary", "binary_walk", signedTypes},
	compareKind:   {"binary", "compare", "compare_walk", signedTypes},
	moveKind:      {"move", "move", "move_walk", sizedTypes},
	fillKind:      {"move", "fill", "fill_walk", sizedTypes},
	whereKind:     {"move", "where", "where_walk", sizedTypes[:4]},
	nonzeroKind:   {"complex", "nonzero", "nonzero_walk", []dtype.DType{dtype.Complex64, dtype.Complex128}},
	convert1Kind:  {"convert", "convert1", "convert_walk", realTypes[:4]},
	convert2Kind:  {"convert", "convert2", "convert_walk", realTypes[:8]},
	convert4Kind:  {"convert", "convert4", "convert_walk", realTypes[:11]},
	convert8Kind:  {"convert", "convert8", "convert_walk", realTypes},
}

// The types that kernels are there for.
var (
	signedTypes = []dtype.DType{
		dtype.Int8, dtype.Int16, dtype.Int32, dtype.Int64, dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64,
	}
	sizedTypes = []dtype.DType{dtype.Uint8, dtype.Uint16, dtype.Uint32, dtype.Uint64, dtype.Complex128}
	realTypes  = []dtype.DType{ // by size
		dtype.Int8, dtype.Uint8, dtype.Float8E5M2, dtype.Float8E4M3FN, dtype.Int16, dtype.Uint16, dtype.Float16,
		dtype.BFloat16,
		dtype.Int32, dtype.Uint32, dtype.Float32, dtype.Int64, dtype.Uint64, dtype.Float64,
	}
)

// sized returns the type that stands for all of so many bytes.
func sized(size int) dtype.DType {
	switch size {
	case 1:
		return dtype.Uint8
	case 2:
		return dtype.Uint16
	case 4:
		return dtype.Uint32
	case 8:
		return dtype.Uint64
	}
	return dtype.Complex128
}

// signed returns the type whose kernels d uses: unsigned integers, and Bool, those of the signed integers of their
// size.
func signed(d dtype.DType) dtype.DType {
	switch d {
	case dtype.Bool, dtype.Uint8:
		return dtype.Int8
	case dtype.Uint16:
		return dtype.Int16
	case dtype.Uint32:
		return dtype.Int32
	case dtype.Uint64:
		return dtype.Int64
	}
	return d
}

var elementwise = newFamily(2*int(kindCount)*typeCount, unsafe.Sizeof(operands{}), func(i int) (module, kernel string) {
	k, d := &kinds[i/2/typeCount], dtype.DType(i/2%typeCount)
	if !slices.Contains(k.types, d) {
		return "", ""
	}
	kernel = k.vectors
	if i%2 == 1 {
		kernel = k.walk
	}
	return k.module + "_" + elements[d], kernel + "_" + elements[d]
})

// width is how many elements are in a vector, and depth how many vectors a thread does: V and U of the kernels.
func (k kind) width(d dtype.DType) int {
	switch {
	case k == convert1Kind || k == convert2Kind:
		return 8
	case k == convert4Kind:
		return 4
	case k == convert8Kind:
		return 2
	case (k == binaryKind || k == compareKind) && d.Size() == 1:
		return 8
	}
	return 16 / d.Size()
}

func (k kind) depth() int {
	if k == binaryKind || k == compareKind || k == whereKind {
		return 2
	}
	return 4
}

const (
	threads      = 256 // of a block
	walkElements = 4   // of a thread that walks
)

// operands is struct Operands of kernels/elementwise.cuh.
type operands struct {
	at     [maxOperands]driver.Pointer
	value  [2]uint64
	op     uint32
	splats uint32
	rest   uint32
	_      uint32
	walk   walk4
}

// run queues an operation of a kind on type d. The arrays are dst and the inputs, of one shape.
func (b *Backend) run(q backend.Queue, k kind, d dtype.DType, p *operands, arrays ...*backend.Array) error {
	if empty(arrays[0].Shape) {
		return nil
	}
	l := newLayout(arrays...)
	offsets := l.forward()
	var sizes [maxOperands]int
	for i, a := range arrays {
		sizes[i] = a.DType.Size()
		p.at[i] = at(*a) + driver.Pointer(offsets[i]*sizes[i])
	}
	if l.fits() {
		return b.runPart(q, k, d, p, &l, &sizes)
	}
	return b.runPieces(q, k, d, *p, l, sizes)
}

// runPieces does a layout that does not fit.
func (b *Backend) runPieces(
	q backend.Queue, k kind, d dtype.DType, p operands, l layout, sizes [maxOperands]int,
) error {
	return l.pieces(func(part *layout, offsets [maxOperands]int) error {
		moved := p
		for i := range l.operands {
			moved.at[i] += driver.Pointer(offsets[i] * sizes[i])
		}
		return b.runPart(q, k, d, &moved, part, &sizes)
	})
}

// runPart does a layout that fits.
func (b *Backend) runPart(
	q backend.Queue, k kind, d dtype.DType, p *operands, l *layout, sizes *[maxOperands]int,
) error {
	i := 2 * (int(k)*typeCount + int(d))
	n := l.elements()
	width := k.width(d)
	if n < width || !l.vectors(width, p, sizes) {
		p.walk.set(l)
		l.narrow(p.walk.strides[:l.operands])
		return launch(b, q, elementwise, i+1, line(ceilDiv(n, threads*walkElements), threads), *p)
	}
	p.rest = uint32(l.shape[0] % width)
	l.shape[0] /= width
	for k := range l.operands {
		if l.strides[k][0] == 0 {
			p.splats |= 1 << k
		}
		l.strides[k][0] *= width
	}
	p.walk.set(l)
	l.narrow(p.walk.strides[:l.operands])
	blocks := ceilDiv(n/width, threads*k.depth())
	if p.rest > 0 {
		blocks++ // that does what is less than a vector
	}
	return launch(b, q, elementwise, i, line(blocks, threads), *p)
}

// vectors reports whether the operands can be read and written by vectors of width elements along the first axis:
// whether they follow each other there or, of an input, stay where they are, and each vector is aligned to its size.
func (l *layout) vectors(width int, p *operands, sizes *[maxOperands]int) bool {
	if l.rank > 1 && l.shape[0]%width != 0 || l.strides[0][0] != 1 {
		return false
	}
	for k := range l.operands {
		switch l.strides[k][0] {
		case 0:
			continue
		case 1:
		default:
			return false
		}
		if p.at[k]%driver.Pointer(width*sizes[k]) != 0 {
			return false
		}
		for _, stride := range l.strides[k][1:l.rank] {
			if stride%width != 0 {
				return false
			}
		}
	}
	return true
}

func empty(shape []int) bool {
	for _, n := range shape {
		if n == 0 {
			return true
		}
	}
	return false
}
