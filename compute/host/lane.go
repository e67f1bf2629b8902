package host

import (
	"sync"

	"github.com/ashlar-go/ashlar/dtype"
)

// pieceLen is how many elements at a time are gathered or converted: few enough that the pieces of all operands stay in
// the first-level cache.
const pieceLen = 1024

// shortRow is the length of a plan's last axis below which pieces reach over many rows: gathering them costs less than to
// start anew for each row.
const shortRow = 64

// A converter is what dtype.Converter returns; nil where nothing is to be converted.
type converter = func(dst, src []byte)

// converterOf returns the converter of aligned elements, by vector instructions where there are some.
func converterOf(to, from dtype.DType) converter {
	switch {
	case to == dtype.Float32 && from == dtype.Float16:
		return func(dst, src []byte) { vecWidenF16(viewOf[float32](dst), viewOf[uint16](src)) }
	case to == dtype.Float16 && from == dtype.Float32:
		return func(dst, src []byte) { vecRoundF16(viewOf[uint16](dst), viewOf[float32](src)) }
	case to == dtype.Float32 && from == dtype.BFloat16:
		return func(dst, src []byte) { vecWidenBF16(viewOf[float32](dst), viewOf[uint16](src)) }
	case to == dtype.BFloat16 && from == dtype.Float32:
		return func(dst, src []byte) { vecRoundBF16(viewOf[uint16](dst), viewOf[float32](src)) }
	}
	return dtype.Converter(to, from)
}

// A pieces is memory for one piece of each operand, as it is stored and as it is computed with, aligned for every type.
type pieces [maxOperands][2][pieceLen * 16 / 8]uint64

var workspaces = sync.Pool{New: func() any { return new(pieces) }}

// A lane is an operand as one part of a kernel goes over it.
type lane struct {
	cursor
	mem  []byte
	size int  // bytes of an element as it is stored
	flat bool // its elements lie one after the other
	wide int  // bytes of an element as it is computed with
	conv converter
	work *[2][pieceLen * 16 / 8]uint64
}

func laneOf(p *plan, k int, mem []byte, size int, work *pieces) lane {
	return lane{cursor: cursorOf(p, k), mem: mem, size: size, wide: size, flat: p.flat(k), work: &work[k]}
}

// staged reports whether blocks longer than a piece are out of the question, or must end with a row.
func (l *lane) staged() bool { return l.conv != nil || !l.flat && l.p.stride(l.k) != 1 }

// here returns the operand's own memory of the elements from lo, if they lie there one after the other.
func (l *lane) here(lo, n int) ([]byte, bool) {
	at := l.p.first[l.k] + lo
	if !l.flat {
		if l.p.stride(l.k) != 1 {
			return nil, false
		}
		l.seek(lo)
		if last := l.p.rank - 1; l.index[last]+n > l.p.lengths[last] {
			return nil, false
		}
		at = l.at
	}
	return l.mem[at*l.size : (at+n)*l.size], true
}

// raw is the piece's memory as it is stored, final as it is computed with.
func (l *lane) raw(n int) []byte { return bytesOf(l.work[0][:])[:n*l.size] }

func (l *lane) final(n int) []byte { return bytesOf(l.work[1][:])[:n*l.wide] }

// A reader is an operand that is read.
type reader struct {
	lane
	same     []byte // what the piece holds many times: the element at sameAt, for operands that repeat one
	sameAt   int
	constant bool // all elements of a row are one
}

// readerOf makes a reader. What it reads is converted to the type to.
func readerOf(p *plan, k int, mem []byte, from, to dtype.DType, work *pieces) reader {
	r := reader{lane: laneOf(p, k, mem, from.Size(), work), constant: p.rank > 0 && p.stride(k) == 0}
	if from != to {
		r.conv, r.wide = converterOf(to, from), to.Size()
	}
	return r
}

// block returns the n elements from lo, which may not be changed and are good until the next call. There are at most
// pieceLen of them, unless the plan's length allowed for more.
func (r *reader) block(lo, n int) []byte {
	if r.constant {
		if b := r.repeated(lo, n); b != nil {
			return b
		}
	}
	b, ok := r.here(lo, n)
	if !ok {
		b = r.raw(n)
		r.same = nil
		r.gather(b, lo, n)
	}
	if r.conv == nil {
		return b
	}
	w := r.final(n)
	r.conv(w, b)
	return w
}

// into puts the n elements from lo into dst. Nothing is converted.
func (r *reader) into(dst []byte, lo, n int) {
	if r.constant {
		if b := r.repeated(lo, n); b != nil {
			copy(dst, b)
			return
		}
	}
	if b, ok := r.here(lo, n); ok {
		copy(dst, b)
		return
	}
	r.gather(dst, lo, n)
}

// repeated returns n times the one element that the row has; nil if n elements are of more than one row.
func (r *reader) repeated(lo, n int) []byte {
	r.seek(lo)
	last := r.p.rank - 1
	if n > pieceLen || r.index[last]+n > r.p.lengths[last] {
		return nil
	}
	if n*r.wide > len(r.same) || r.sameAt != r.at {
		b := r.raw(n)
		copy(b, r.mem[r.at*r.size:(r.at+1)*r.size])
		for done := r.size; done < len(b); done *= 2 {
			copy(b[done:], b[:done])
		}
		if r.conv != nil {
			w := r.final(n)
			r.conv(w, b)
			b = w
		}
		r.same, r.sameAt = b, r.at
	}
	return r.same[:n*r.wide]
}

// gather copies the n elements from lo to dst.
func (r *reader) gather(dst []byte, lo, n int) {
	r.seek(lo)
	switch r.size {
	case 1:
		gather(&r.cursor, viewOf[uint8](dst), viewOf[uint8](r.mem))
	case 2:
		gather(&r.cursor, viewOf[uint16](dst), viewOf[uint16](r.mem))
	case 4:
		gather(&r.cursor, viewOf[uint32](dst), viewOf[uint32](r.mem))
	case 8:
		gather(&r.cursor, viewOf[uint64](dst), viewOf[uint64](r.mem))
	default:
		gather(&r.cursor, viewOf[[2]uint64](dst), viewOf[[2]uint64](r.mem))
	}
}

func gather[T any](c *cursor, dst, src []T) {
	stride := c.p.stride(c.k)
	for len(dst) > 0 {
		at, m := c.run(len(dst))
		row := dst[:m]
		dst = dst[m:]
		if stride == 1 {
			copy(row, src[at:at+m])
			continue
		}
		for i := range row {
			row[i] = src[at]
			at += stride
		}
	}
}

// A writer is an operand that is written.
type writer struct {
	lane
	lo, n int
	out   []byte // where block's elements are to go, if not to where they are
	gone  bool   // nothing is left to be done for the last block
}

// writerOf makes a writer of elements that are computed as the type from.
func writerOf(p *plan, k int, mem []byte, to, from dtype.DType, work *pieces) writer {
	w := writer{lane: laneOf(p, k, mem, to.Size(), work)}
	if from != to {
		w.conv, w.wide = converterOf(to, from), from.Size()
	}
	return w
}

// block returns memory for the n elements from lo. They are where they belong after commit.
func (w *writer) block(lo, n int) []byte {
	w.lo, w.n = lo, n
	out, ok := w.here(lo, n)
	w.out, w.gone = nil, false
	switch {
	case ok && w.conv == nil:
		w.gone = true
		return out
	case ok:
		w.out = out
	}
	if w.conv == nil {
		return w.raw(n)
	}
	return w.final(n)
}

// commit puts the elements of the last block where they belong.
func (w *writer) commit() {
	if w.gone {
		return
	}
	b := w.raw(w.n)
	if w.conv != nil {
		if w.out != nil {
			w.conv(w.out, w.final(w.n))
			return
		}
		w.conv(b, w.final(w.n))
	}
	w.scatter(b, w.lo)
}

// scatter copies src to the elements from lo.
func (w *writer) scatter(src []byte, lo int) {
	w.seek(lo)
	switch w.size {
	case 1:
		scatter(&w.cursor, viewOf[uint8](w.mem), viewOf[uint8](src))
	case 2:
		scatter(&w.cursor, viewOf[uint16](w.mem), viewOf[uint16](src))
	case 4:
		scatter(&w.cursor, viewOf[uint32](w.mem), viewOf[uint32](src))
	case 8:
		scatter(&w.cursor, viewOf[uint64](w.mem), viewOf[uint64](src))
	default:
		scatter(&w.cursor, viewOf[[2]uint64](w.mem), viewOf[[2]uint64](src))
	}
}

func scatter[T any](c *cursor, dst, src []T) {
	stride := c.p.stride(c.k)
	for len(src) > 0 {
		at, m := c.run(len(src))
		row := src[:m]
		src = src[m:]
		if stride == 1 {
			copy(dst[at:at+m], row)
			continue
		}
		for _, v := range row {
			dst[at] = v
			at += stride
		}
	}
}

// length returns how many elements from lo, and below hi, make the next block for the lanes given: up to the end of the
// row if rows are long, at most a piece if one of the lanes needs it.
func (p *plan) length(lo, hi int, staged bool) int {
	n := hi - lo
	if row := p.row(); p.rank > 1 {
		if row < shortRow {
			staged = true
		} else {
			n = min(n, row-lo%row)
		}
	}
	if staged {
		n = min(n, pieceLen)
	}
	return n
}
