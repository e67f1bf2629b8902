package host

import (
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
)

// A reduction is of the axes in the middle of its groups. Element (o, r, c) belongs to result (o, c). Without inner
// axes columns is 1, and a result is made of elements that lie close together; else rows are added to rows.
//
// It is cut into tasks: one outer index, up to blockColumns columns, and part of the rows. How many rows that is
// depends on the shape alone, so that sums are the same whatever does the tasks. If it is not all rows, tasks leave
// partial results (8 or 16 bytes for at least partRows elements) that are combined in pairs, then pairs of pairs.
type reduction struct {
	reducer
	x, dst        plan
	rows, columns int
	width         int // columns of a task, but for the last
	height        int // rows of a task, but for the last
	across        int // tasks beside each other
	parts         int // tasks below each other
}

const (
	blockColumns = 1024
	partElements = 32 << 10
	partRows     = 256
	sumRows      = 32 // that are added one after the other; then sums of as many
)

// Reduce combines elements along the axes in which dst has length 1.
func (b *Backend) Reduce(q backend.Queue, op backend.ReduceOp, dst, x backend.Array) error {
	n := 1
	kept := func(axis int) bool { return dst.Shape[axis] == x.Shape[axis] }
	for axis, l := range x.Shape {
		if !kept(axis) {
			n *= l
		}
	}
	r, ok := reducerOf(op, x.DType, n)
	if !ok {
		return unsupported(op, x.DType)
	}
	return b.reduce(q, "reduce "+op.String(), r, dst, x, kept)
}

// ArgReduce finds the first of the greatest or least elements along axis.
func (b *Backend) ArgReduce(q backend.Queue, least bool, dst, x backend.Array, axis int) error {
	name := "argmax"
	if least {
		name = "argmin"
	}
	r, ok := argReducerOf(least, x.DType)
	if !ok {
		return unsupportedCall(name, x.DType)
	}
	return b.reduce(q, name, r, dst, x, func(a int) bool { return a != axis })
}

func (b *Backend) reduce(
	q backend.Queue, name string, r reducer, dst, x backend.Array, kept func(axis int) bool,
) error {
	to, from := out(dst), in(x)
	if to.length == 0 {
		return nil
	}
	d := reductionOf(r, &to, &from, kept)
	return b.launch(q, name, func(mem *[maxOperands][]byte) { d.run(b, mem[0], mem[1], &to, &from) }, to, from)
}

func reductionOf(r reducer, to, from *array, kept func(axis int) bool) *reduction {
	g := groupsOf(from, func(axis int) bool { return !kept(axis) })
	d := &reduction{reducer: r, rows: g.rows, columns: g.columns}
	d.x = planOf(from.dims(), g.order(), *from)
	d.dst = planOf(to.dims(), slices.Concat(g.outer, g.inner), *to)
	d.width = min(d.columns, blockColumns)
	d.height = partElements
	if d.columns > 1 {
		d.height = max(partElements/d.width, partRows)
	}
	d.across = (d.columns + d.width - 1) / d.width
	d.parts = max(1, (d.rows+d.height-1)/d.height)
	return d
}

// run does all tasks, then combines what they left.
func (d *reduction) run(b *Backend, dst, x []byte, to, from *array) {
	results := d.dst.n / d.columns * d.across // results of one task wide
	size := d.width * d.acc
	var partial []byte
	if d.parts > 1 {
		partial = bytesOf(make([]uint64, (results*d.parts*size+7)/8))
	}
	cost := max(1, min(d.rows, d.height)*d.width) * (from.size + moderate)
	b.parallelRanges(results*d.parts, max(1, grainBytes/cost), func(lo, hi int) {
		t := d.task(dst, x, to, from)
		defer t.close()
		for ; lo < hi; lo++ {
			acc := t.acc
			if d.parts > 1 {
				acc = partial[lo*size:][:size]
			}
			t.combine(acc, lo/d.parts, lo%d.parts)
			if d.parts == 1 {
				t.finish(acc, lo)
			}
		}
	})
	if d.parts == 1 {
		return
	}
	b.parallelRanges(results, max(1, grainBytes/(d.parts*size)), func(lo, hi int) {
		t := d.task(dst, x, to, from)
		defer t.close()
		for ; lo < hi; lo++ {
			acc := partial[lo*d.parts*size:][:d.parts*size]
			for step := size; step < len(acc); step *= 2 {
				for i := 0; i+step < len(acc); i += 2 * step {
					d.merge(acc[i:][:size], acc[i+step:][:size])
				}
			}
			t.finish(acc[:size], lo)
		}
	})
}

// A reduceTask is what doing tasks takes.
type reduceTask struct {
	*reduction
	work     *workspace
	x        reader
	dst      writer
	acc, sum []byte // of one task
}

func (d *reduction) task(dst, x []byte, to, from *array) *reduceTask {
	t := &reduceTask{reduction: d, work: workspaces.Get().(*workspace)}
	t.x = readerOf(&d.x, 0, x, from.dtype, d.in, t.work)
	t.dst = writerOf(&d.dst, 0, dst, to.dtype, d.out, t.work)
	t.dst.work = &t.work[1]
	t.acc = bytesOf(t.work[2][0][:])[:d.width*d.acc]
	t.sum = bytesOf(t.work[3][0][:])[:d.width*d.acc]
	return t
}

func (t *reduceTask) close() { workspaces.Put(t.work) }

// resultPosition returns the outer index and the columns of a result.
func (t *reduceTask) resultPosition(result int) (outer, column, n int) {
	column = result % t.across * t.width
	return result / t.across, column, min(t.width, t.columns-column)
}

// combine makes acc of one part of the elements of a result.
func (t *reduceTask) combine(acc []byte, result, part int) {
	outer, column, n := t.resultPosition(result)
	t.clear(acc)
	acc = acc[:n*t.reducer.acc]
	row := part * t.height
	end := min(row+t.height, t.rows)
	first := outer * t.rows * t.columns
	if t.columns == 1 {
		for row < end {
			m := t.reduction.x.length(first+row, first+end, true)
			t.line(acc, t.x.block(first+row, m), row)
			row += m
		}
		return
	}
	sum := t.sum[:n*t.reducer.acc]
	for row < end {
		t.clear(sum)
		for stop := min(row+sumRows, end); row < stop; {
			m := 1
			if n == t.columns {
				m = max(1, min(stop-row, pieceLen/n))
			}
			t.lines(sum, t.x.block(first+row*t.columns+column, m*n), row)
			row += m
		}
		t.merge(acc, sum)
	}
}

// finish makes elements of dst of acc.
func (t *reduceTask) finish(acc []byte, result int) {
	outer, column, n := t.resultPosition(result)
	t.result(t.dst.block(outer*t.columns+column, n), acc[:n*t.reducer.acc])
	t.dst.commit()
}
