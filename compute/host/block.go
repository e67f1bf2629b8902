package host

import (
	"sync"

	"github.com/ashlar-go/ashlar/dtype"
)

// pieceLen is the number of elements that are gathered or converted at a time: few enough that the pieces of all
// operands stay in the first-level cache.
const pieceLen = 1024

// shortRow is the length of a plan's last axis below which pieces extend over many rows: gathering them costs less than
// starting anew for each row.
const shortRow = 64

// A converter is a function from dtype.Converter, or nil if nothing is to be converted.
type converter = func(dst, src []byte)

// converterOf returns the converter of aligned elements, with vector instructions if possible.
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

// A workspace has memory for one piece of each operand, as stored and as computed, aligned for every type.
type workspace [maxOperands][2][pieceLen * 16 / 8]uint64

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// A blockCursor visits an operand in blocks, for one part of a kernel.
type blockCursor struct {
	cursor
	mem          []byte
	size         int  // bytes of a stored element
	flat         bool // its elements are consecutive
	computedSize int  // bytes of an element as computed
	conv         converter
	work         *[2][pieceLen * 16 / 8]uint64
}

func blockCursorOf(p *plan, k int, mem []byte, size int, work *workspace) blockCursor {
	return blockCursor{
		cursor: cursorOf(p, k), mem: mem, size: size, computedSize: size, flat: p.flat(k),
		work: &work[k],
	}
}

// staged reports whether blocks may have at most a piece's length, or must end with a row.
func (l *blockCursor) staged() bool { return l.conv != nil || !l.flat && l.p.stride(l.k) != 1 }

// inPlace returns the operand's own memory of the n elements from lo, if they are consecutive there.
func (l *blockCursor) inPlace(lo, n int) ([]byte, bool) {
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

// storedPiece is the piece's memory for n stored elements, and computedPiece that for n elements as computed.
func (l *blockCursor) storedPiece(n int) []byte { return bytesOf(l.work[0][:])[:n*l.size] }

func (l *blockCursor) computedPiece(n int) []byte { return bytesOf(l.work[1][:])[:n*l.computedSize] }

// A reader is an operand that is read.
type reader struct {
	blockCursor
	same     []byte // repetitions of the element at sameAt, for operands that repeat one
	sameAt   int
	constant bool // a row repeats one element
}

// readerOf returns a reader that converts elements to the type to.
func readerOf(p *plan, k int, mem []byte, from, to dtype.DType, work *workspace) reader {
	r := reader{blockCursor: blockCursorOf(p, k, mem, from.Size(), work), constant: p.rank > 0 && p.stride(k) == 0}
	if from != to {
		r.conv, r.computedSize = converterOf(to, from), to.Size()
	}
	return r
}

// block returns the n elements from lo, which must not be changed and are valid until the next call. n is at most
// pieceLen, unless the plan's length returned more.
func (r *reader) block(lo, n int) []byte {
	if r.constant {
		if b := r.repeated(lo, n); b != nil {
			return b
		}
	}
	b, ok := r.inPlace(lo, n)
	if !ok {
		b = r.storedPiece(n)
		r.same = nil
		r.gather(b, lo, n)
	}
	if r.conv == nil {
		return b
	}
	w := r.computedPiece(n)
	r.conv(w, b)
	return w
}

// into copies the n elements from lo to dst, without conversion.
func (r *reader) into(dst []byte, lo, n int) {
	if r.constant {
		if b := r.repeated(lo, n); b != nil {
			copy(dst, b)
			return
		}
	}
	if b, ok := r.inPlace(lo, n); ok {
		copy(dst, b)
		return
	}
	r.gather(dst, lo, n)
}

// repeated returns n repetitions of the row's element, or nil if the n elements span several rows.
func (r *reader) repeated(lo, n int) []byte {
	r.seek(lo)
	last := r.p.rank - 1
	if n > pieceLen || r.index[last]+n > r.p.lengths[last] {
		return nil
	}
	if n*r.computedSize > len(r.same) || r.sameAt != r.at {
		b := r.storedPiece(n)
		copy(b, r.mem[r.at*r.size:(r.at+1)*r.size])
		for done := r.size; done < len(b); done *= 2 {
			copy(b[done:], b[:done])
		}
		if r.conv != nil {
			w := r.computedPiece(n)
			r.conv(w, b)
			b = w
		}
		r.same, r.sameAt = b, r.at
	}
	return r.same[:n*r.computedSize]
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
	blockCursor
	lo, n int
	out   []byte // destination of the last block, if it is not the block's own memory
	done  bool   // the last block needs no commit
}

// writerOf returns a writer that converts elements from the type from.
func writerOf(p *plan, k int, mem []byte, to, from dtype.DType, work *workspace) writer {
	w := writer{blockCursor: blockCursorOf(p, k, mem, to.Size(), work)}
	if from != to {
		w.conv, w.computedSize = converterOf(to, from), from.Size()
	}
	return w
}

// block returns memory for the n elements from lo. commit moves them to the operand.
func (w *writer) block(lo, n int) []byte {
	w.lo, w.n = lo, n
	out, ok := w.inPlace(lo, n)
	w.out, w.done = nil, false
	switch {
	case ok && w.conv == nil:
		w.done = true
		return out
	case ok:
		w.out = out
	}
	if w.conv == nil {
		return w.storedPiece(n)
	}
	return w.computedPiece(n)
}

// commit moves the elements of the last block to the operand.
func (w *writer) commit() {
	if w.done {
		return
	}
	b := w.storedPiece(w.n)
	if w.conv != nil {
		if w.out != nil {
			w.conv(w.out, w.computedPiece(w.n))
			return
		}
		w.conv(b, w.computedPiece(w.n))
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

// length returns the number of elements of the next block from lo, below hi: up to the end of the row if rows are long,
// and at most a piece if an operand is staged.
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
