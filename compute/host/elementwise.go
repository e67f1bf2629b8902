package host

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// A loop computes a block of elements from blocks of the same length: dst[i] from in[0][i], in[1][i], and so on. Blocks
// hold elements of the types for which the loop was made. dst may be the memory of an input.
type loop func(dst []byte, in *[maxOperands - 1][]byte)

// unaryLoop and binaryLoop make loops of functions of slices. The functions must cut inputs to the length of dst, and
// must allow dst == x.
func unaryLoop[R, T any](f func(dst []R, x []T)) loop {
	return func(dst []byte, in *[maxOperands - 1][]byte) { f(viewOf[R](dst), viewOf[T](in[0])) }
}

func binaryLoop[R, T any](f func(dst []R, x, y []T)) loop {
	return func(dst []byte, in *[maxOperands - 1][]byte) { f(viewOf[R](dst), viewOf[T](in[0]), viewOf[T](in[1])) }
}

// computed returns the type in which elements of type d are computed.
func computed(d dtype.DType) dtype.DType {
	if d == dtype.Float16 || d == dtype.BFloat16 {
		return dtype.Float32
	}
	return d
}

// elementwise queues a loop over operands of one shape: dst, then inputs. cost is the time for an element beyond moving
// its bytes, in units of moving one byte.
func (b *Backend) elementwise(
	q backend.Queue, name string, run loop, cost int, dst backend.Array, inputs ...backend.Array,
) error {
	var operands [maxOperands]array
	operands[0] = out(dst)
	for i, x := range inputs {
		operands[1+i] = in(x)
	}
	used := operands[:1+len(inputs)]
	p := anyOrder(dst.Shape, used...)
	if p.n == 0 {
		return nil
	}
	for i := range used {
		cost += used[i].size
	}
	return b.launch(q, name, func(mem *[maxOperands][]byte) {
		b.parallelRanges(p.n, grainBytes/cost, func(lo, hi int) { runLoop(&p, used, mem, run, lo, hi) })
	}, used...)
}

// runLoop runs a loop over the elements lo to hi-1.
func runLoop(p *plan, operands []array, mem *[maxOperands][]byte, run loop, lo, hi int) {
	work := workspaces.Get().(*workspace)
	defer workspaces.Put(work)
	w := writerOf(p, 0, mem[0], operands[0].dtype, computed(operands[0].dtype), work)
	staged := w.staged()
	var readers [maxOperands - 1]reader
	inputs := readers[:len(operands)-1]
	for i := range inputs {
		d := operands[1+i].dtype
		inputs[i] = readerOf(p, 1+i, mem[1+i], d, computed(d), work)
		staged = staged || inputs[i].staged()
	}
	var blocks [maxOperands - 1][]byte
	for lo < hi {
		n := p.length(lo, hi, staged)
		for i := range inputs {
			blocks[i] = inputs[i].block(lo, n)
		}
		run(w.block(lo, n), &blocks)
		w.commit()
		lo += n
	}
}
