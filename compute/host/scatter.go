package host

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// ScatterAdd adds along axis, in the order of src, so that results are the same each time. Elements apart from each
// other along other axes never meet: these are cut into tasks.
func (b *Backend) ScatterAdd(q backend.Queue, dst, index, src backend.Array, axis int) error {
	const name = "scatter_add"
	switch d := dst.DType; d {
	case dtype.Int8, dtype.Uint8: // wrapping sums have the same bits
		return scatterAdd(b, q, name, dst, index, src, axis, plus[uint8])
	case dtype.Int16, dtype.Uint16:
		return scatterAdd(b, q, name, dst, index, src, axis, plus[uint16])
	case dtype.Int32, dtype.Uint32:
		return scatterAdd(b, q, name, dst, index, src, axis, plus[uint32])
	case dtype.Int64, dtype.Uint64:
		return scatterAdd(b, q, name, dst, index, src, axis, plus[uint64])
	case dtype.Float32:
		return scatterAdd(b, q, name, dst, index, src, axis, plus[float32])
	case dtype.Float64:
		return scatterAdd(b, q, name, dst, index, src, axis, plus[float64])
	case dtype.Float16:
		return scatterAdd(b, q, name, dst, index, src, axis, func(a, b dtype.F16) dtype.F16 {
			return dtype.ToF16(a.Float32() + b.Float32())
		})
	case dtype.BFloat16:
		return scatterAdd(b, q, name, dst, index, src, axis, func(a, b dtype.BF16) dtype.BF16 {
			return dtype.ToBF16(a.Float32() + b.Float32())
		})
	default:
		return unsupportedCall(name, d)
	}
}

func plus[T number](a, b T) T { return a + b }

func scatterAdd[T any](
	b *Backend, q backend.Queue, name string, dst, index, src backend.Array, axis int, add func(a, b T) T,
) error {
	to, by, from := inout(dst), in(index), in(src)
	g := groupsOf(&from, singleAxis(axis))
	p := planOf(src.Shape, g.order(), to.without(axis), by, from)
	if p.n == 0 {
		return nil
	}
	const width = 256 // columns of a task
	across := (g.columns + width - 1) / width
	stride, limit := dst.Strides[axis], dst.Shape[axis]
	var zero T
	cost := 2*int(unsafe.Sizeof(zero)) + by.size + moderate
	return b.launch(q, name, func(mem *[maxOperands][]byte) {
		f := faults{at: p.n}
		b.parallelRanges(p.n/g.rows/g.columns*across, grainBytes/(g.rows*min(width, g.columns)*cost), func(lo, hi int) {
			work := workspaces.Get().(*workspace)
			defer workspaces.Put(work)
			s := scattering[T]{
				to: cursorOf(&p, 0), dst: viewOf[T](mem[0]), add: add, stride: stride, limit: limit, faults: &f,
				index: readerOf(&p, 1, mem[1], by.dtype, dtype.Int64, work),
				src:   readerOf(&p, 2, mem[2], from.dtype, from.dtype, work),
			}
			for ; lo < hi; lo++ {
				first, column := lo/across*g.rows*g.columns, lo%across*width
				if g.columns == 1 {
					s.run(first, first+g.rows)
					continue
				}
				for row := range g.rows {
					at := first + row*g.columns + column
					s.run(at, at+min(width, g.columns-column))
				}
			}
		})
		b.fail(&f, name, limit)
	}, to, by, from)
}

type scattering[T any] struct {
	to            cursor
	dst           []T
	index, src    reader
	add           func(a, b T) T
	stride, limit int
	faults        *faults
}

// run adds the elements lo to hi-1.
func (s *scattering[T]) run(lo, hi int) {
	for lo < hi {
		n := s.to.p.length(lo, hi, true)
		index, src := viewOf[int64](s.index.block(lo, n)), viewOf[T](s.src.block(lo, n))
		s.to.seek(lo)
		step := s.to.p.stride(0)
		for i := 0; i < n; {
			at, m := s.to.run(n - i)
			for ; m > 0; m-- {
				if j := index[i]; uint64(j) < uint64(s.limit) {
					p := &s.dst[at+int(j)*s.stride]
					*p = s.add(*p, src[i])
				} else {
					s.faults.add(lo+i, j)
				}
				at += step
				i++
			}
		}
		lo += n
	}
}
