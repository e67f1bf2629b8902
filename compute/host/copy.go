package host

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// Fill copies one element that is repeated along every axis.
func (b *Backend) Fill(q backend.Queue, dst backend.Array, value dtype.Scalar) error {
	element := bytesOf(make([]uint64, 2))[:dst.DType.Size()]
	value.Put(element, dst.DType)
	return b.copy(q, "fill", dst, backend.Array{
		Bytes: element, DType: dst.DType, Shape: dst.Shape, Strides: make([]int, len(dst.Shape)),
	})
}

// Copy converts src to dst.
func (b *Backend) Copy(q backend.Queue, dst, src backend.Array) error {
	return b.copy(q, "copy", dst, src)
}

func (b *Backend) copy(q backend.Queue, name string, dst, src backend.Array) error {
	to, from := out(dst), in(src)
	p := anyOrder(dst.Shape, to, from)
	if p.n == 0 {
		return nil
	}
	c := copying{size: from.size, to: to.size}
	if to.dtype != from.dtype {
		c.conv = converterOf(to.dtype, from.dtype)
	}
	if p.transposes() {
		t := tilingOf(p, c)
		return b.launch(q, name, func(mem *[maxOperands][]byte) {
			b.parallelRanges(t.tasks(), grainBytes/t.taskBytes(), func(lo, hi int) { t.run(mem[0], mem[1], lo, hi) })
		}, to, from)
	}
	return b.launch(q, name, func(mem *[maxOperands][]byte) {
		b.parallelRanges(p.n, grainBytes/(c.size+c.to), func(lo, hi int) { c.run(&p, mem[0], mem[1], lo, hi) })
	}, to, from)
}

// A copying moves or converts elements.
type copying struct {
	size, to int // bytes of an element of the source, and of the destination
	conv     converter
}

// run copies the elements lo to hi-1.
func (c *copying) run(p *plan, dst, src []byte, lo, hi int) {
	work := workspaces.Get().(*workspace)
	defer workspaces.Put(work)
	w := writer{blockCursor: blockCursorOf(p, 0, dst, c.to, work)}
	r := reader{blockCursor: blockCursorOf(p, 1, src, c.size, work), constant: p.rank > 0 && p.stride(1) == 0}
	staged := w.staged() || r.staged()
	for lo < hi {
		n := p.length(lo, hi, staged)
		if c.conv != nil {
			c.conv(w.block(lo, n), r.block(lo, n))
			w.commit()
		} else if to, ok := w.inPlace(lo, n); ok {
			r.into(to, lo, n)
		} else {
			w.scatter(r.block(lo, n), lo)
		}
		lo += n
	}
}
