package host

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// A loop computes a block of elements from blocks of as many: dst[i] from in[0][i], in[1][i], ... Blocks hold elements of
// the types that the loop was made for. dst may be the very memory of an input.
type loop func(dst []byte, in *[maxOperands - 1][]byte)

// one and two make loops of functions of slices. These must cut inputs to dst's length, and be good for dst == x.
func one[R, T any](f func(dst []R, x []T)) loop {
	return func(dst []byte, in *[maxOperands - 1][]byte) { f(viewOf[R](dst), viewOf[T](in[0])) }
}

func two[R, T any](f func(dst []R, x, y []T)) loop {
	return func(dst []byte, in *[maxOperands - 1][]byte) { f(viewOf[R](dst), viewOf[T](in[0]), viewOf[T](in[1])) }
}

// computed returns the type that arithmetic on elements of type d is done in.
func computed(d dtype.DType) dtype.DType {
	if d == dtype.Float16 || d == dtype.BFloat16 {
		return dtype.Float32
	}
	return d
}

// elementwise queues a loop over operands of one shape: dst, then inputs. cost is what an element takes, where 1 is what
// moving a byte does, beyond its bytes.
func (b *Backend) elementwise(q backend.Queue, name string, run loop, cost int, dst backend.Array, inputs ...backend.Array) error {
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
		b.each(p.n, grainBytes/cost, func(lo, hi int) { sweep(&p, used, mem, run, lo, hi) })
	}, used...)
}

// sweep runs a loop over the elements lo to hi-1.
func sweep(p *plan, operands []array, mem *[maxOperands][]byte, run loop, lo, hi int) {
	work := workspaces.Get().(*pieces)
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
