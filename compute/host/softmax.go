package host

import (
	"math"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// Softmax reads each line three times: for its greatest element, for the sum, and for the results. Elements of lines
// along an axis that is not the innermost are taken column by column, many columns at a time.
func (b *Backend) Softmax(q backend.Queue, log bool, dst, x backend.Array, axis int) error {
	name := "softmax"
	if log {
		name = "log_softmax"
	}
	switch computed(x.DType) {
	case dtype.Float32:
		return softmax[float32](b, q, name, log, dst, x, axis)
	case dtype.Float64:
		return softmax[float64](b, q, name, log, dst, x, axis)
	}
	return unsupportedCall(name, x.DType)
}

func softmax[T float](b *Backend, q backend.Queue, name string, log bool, dst, x backend.Array, axis int) error {
	to, from := out(dst), in(x)
	g := groupsOf(&from, singleAxis(axis))
	p := planOf(x.Shape, g.order(), to, from)
	if p.n == 0 {
		return nil
	}
	width := min(g.columns, blockColumns)
	across := (g.columns + width - 1) / width
	tasks := p.n / g.rows / g.columns * across
	return b.launch(q, name, func(mem *[maxOperands][]byte) {
		b.parallelRanges(tasks, grainBytes/(g.rows*width*slow), func(lo, hi int) {
			work := workspaces.Get().(*workspace)
			defer workspaces.Put(work)
			d := computed(x.DType)
			s := softmaxTask[T]{
				x: readerOf(&p, 1, mem[1], from.dtype, d, work), dst: writerOf(&p, 0, mem[0], to.dtype, d, work),
				log: log, rows: g.rows, columns: g.columns,
				greatest: viewOf[T](bytesOf(work[2][0][:]))[:width],
				sums:     viewOf[float64](bytesOf(work[3][0][:]))[:width],
				parts:    viewOf[float64](bytesOf(work[3][1][:]))[:width],
			}
			for ; lo < hi; lo++ {
				first, column := lo/across*g.rows*g.columns, lo%across*width
				if g.columns == 1 {
					s.line(first)
				} else {
					s.lines(first+column, min(width, g.columns-column))
				}
			}
		})
	}, to, from)
}

type softmaxTask[T float] struct {
	x             reader
	dst           writer
	log           bool
	rows, columns int
	greatest      []T       // of each column
	sums, parts   []float64 // of exp(x-greatest), all and of the last rows
}

// line does the elements from first, one after the other.
func (s *softmaxTask[T]) line(first int) {
	end := first + s.rows
	greatest, sum := least[T](), 0.0
	s.blocks(first, end, func(_ int, x []T) { greatest = lineMax(greatest, x, 0) })
	s.blocks(first, end, func(_ int, x []T) { sum += sumOfExp(x, greatest) })
	logSum := T(backend.ExactLog(sum))
	s.blocks(first, end, func(lo int, x []T) {
		to := viewOf[T](s.dst.block(lo, len(x)))[:len(x)]
		for i, v := range x {
			if s.log {
				to[i] = v - greatest - logSum
			} else {
				to[i] = T(math.Exp(float64(v-greatest)) / sum)
			}
		}
		s.dst.commit()
	})
}

// sumOfExp returns the sum of exp(x-greatest), as four that are independent of each other.
func sumOfExp[T float](x []T, greatest T) float64 {
	var s [4]float64
	for i, v := range x {
		s[i&3] += math.Exp(float64(v - greatest))
	}
	return s[0] + s[1] + (s[2] + s[3])
}

// blocks calls f for the elements lo to hi-1.
func (s *softmaxTask[T]) blocks(lo, hi int, f func(lo int, x []T)) {
	for lo < hi {
		n := s.x.p.length(lo, hi, true)
		f(lo, viewOf[T](s.x.block(lo, n)))
		lo += n
	}
}

// lines does n columns from first.
func (s *softmaxTask[T]) lines(first, n int) {
	greatest, sums := s.greatest[:n], s.sums[:n]
	for i := range greatest {
		greatest[i], sums[i] = least[T](), 0
	}
	s.each(first, n, func(_ int, x []T) { maxOf(greatest, greatest, x) })
	parts, row := s.parts[:n], 0 // long sums in one go lose digits
	clear(parts)
	s.each(first, n, func(_ int, x []T) {
		for i, v := range x {
			parts[i] += math.Exp(float64(v - greatest[i]))
		}
		if row++; row%partRows == 0 || row == s.rows {
			for i, v := range parts {
				sums[i] += v
			}
			clear(parts)
		}
	})
	if s.log {
		for i := range sums {
			sums[i] = backend.ExactLog(sums[i])
		}
	}
	s.each(first, n, func(lo int, x []T) {
		to := viewOf[T](s.dst.block(lo, n))[:len(x)]
		for i, v := range x {
			if s.log {
				to[i] = v - greatest[i] - T(sums[i])
			} else {
				to[i] = T(math.Exp(float64(v-greatest[i])) / sums[i])
			}
		}
		s.dst.commit()
	})
}

// each calls f for the n elements from first, and those of the rows below.
func (s *softmaxTask[T]) each(first, n int, f func(lo int, x []T)) {
	for range s.rows {
		f(first, viewOf[T](s.x.block(first, n))[:n])
		first += s.columns
	}
}
