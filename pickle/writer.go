package pickle

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"unicode/utf8"
)

// A Writer writes one pickle in protocol 4, value by value. It uses only opcodes that PyTorch's memory viewer knows
// (except for Bytes and strings over 4 GiB, which only Python can read). A caller writes a container by beginning it,
// writing its elements, and ending it; a Writer does not check that the calls match. Memoized values stay in memory
// until Close, so a caller memoizes only values that repeat. Otherwise a Writer holds one frame of 64 KiB, or the
// longest string.
//
// After the first error of the underlying writer nothing more is written, and Close returns that error.
type Writer struct {
	w     io.Writer
	frame []byte // not written yet
	memo  Memo   // the next number
	names map[string]Memo
	near  [256]name // cache of names, by a cheap hash: most names repeat
	plain plainWriter
	err   error
}

// A name is a str in the memo.
type name struct {
	s    string
	memo Memo // plus 1; 0 means no name
}

// A Memo is the number of a written value in the memo of the pickle.
type Memo uint32

// Batch is the number of items of a list, or pairs of a dict, that are written between a mark and its APPENDS, as in
// Python. PyTorch's viewer cannot handle many more than 100,000.
const Batch = 1000

const frameSize = 64 << 10

// NewWriter begins a pickle on w.
func NewWriter(w io.Writer) *Writer {
	p := &Writer{w: w, names: map[string]Memo{}, frame: make([]byte, 0, frameSize+512)}
	p.write([]byte{byte(opProto), 4})
	return p
}

// Close ends the pickle and returns the first error. It does not close the underlying writer.
func (p *Writer) Close() error {
	p.frame = append(p.frame, byte(opStop))
	p.flush()
	return p.err
}

// Err returns the first error.
func (p *Writer) Err() error { return p.err }

func (p *Writer) write(b []byte) {
	if p.err == nil {
		var n int
		if n, p.err = p.w.Write(b); p.err == nil && n < len(b) {
			p.err = io.ErrShortWrite
		}
	}
}

func (p *Writer) flush() {
	var head [9]byte
	head[0] = byte(opFrame)
	binary.LittleEndian.PutUint64(head[1:], uint64(len(p.frame)))
	p.write(head[:])
	p.write(p.frame)
	p.frame = p.frame[:0]
}

// op writes an opcode. Its argument follows in the same frame.
func (p *Writer) op(o Opcode) {
	if len(p.frame) >= frameSize {
		p.flush()
	}
	p.frame = append(p.frame, byte(o))
}

// op1, op2 and op4 write an opcode with an argument of 1, 2 or 4 bytes.
func (p *Writer) op1(o Opcode, x byte) {
	p.op(o)
	p.frame = append(p.frame, x)
}

func (p *Writer) op2(o Opcode, x uint16) {
	p.op(o)
	p.frame = binary.LittleEndian.AppendUint16(p.frame, x)
}

func (p *Writer) op4(o Opcode, x uint32) {
	p.op(o)
	p.frame = binary.LittleEndian.AppendUint32(p.frame, x)
}

// Put stores the last written or begun value in the memo.
func (p *Writer) Put() Memo {
	if p.memo == math.MaxUint32 && p.err == nil {
		p.err = errors.New("pickle: more than 2^32-1 values in the memo")
	}
	p.op(opMemoize)
	p.memo++
	return p.memo - 1
}

// Get writes a value of the memo again. A reader makes it the same object.
func (p *Writer) Get(m Memo) {
	if m < 256 {
		p.op1(opBinGet, byte(m))
		return
	}
	p.op4(opLongBinGet, uint32(m))
}

// BeginDict begins an empty dict. Put may follow, then Fill.
func (p *Writer) BeginDict() { p.op(opEmptyDict) }

// BeginList begins an empty list. Put may follow, then Fill.
func (p *Writer) BeginList() { p.op(opEmptyList) }

// Fill starts adding to the list or dict that was begun last; EndList or EndDict ends it. A container may be filled
// several times, which is necessary above Batch items. An empty one need not be filled.
func (p *Writer) Fill() { p.op(opMark) }

// EndDict adds the keys and values written since Fill.
func (p *Writer) EndDict() { p.op(opSetItems) }

// EndList adds the values written since Fill.
func (p *Writer) EndList() { p.op(opAppends) }

// List writes a list of n items in batches, calling item for each.
func (p *Writer) List(n int, item func(i int)) {
	p.BeginList()
	p.items(n, item)
}

// items fills the last begun list.
func (p *Writer) items(n int, item func(i int)) {
	for i := range n {
		if i%Batch == 0 {
			if i > 0 {
				p.EndList()
			}
			p.Fill()
		}
		item(i)
	}
	if n > 0 {
		p.EndList()
	}
}

// Tuple writes a tuple of n items, calling item for each.
func (p *Writer) Tuple(n int, item func(i int)) {
	small := [...]Opcode{opEmptyTuple, opTuple1, opTuple2, opTuple3}
	if n >= len(small) {
		p.op(opMark)
	}
	for i := range n {
		item(i)
	}
	if n < len(small) {
		p.op(small[n])
	} else {
		p.op(opTuple)
	}
}

// None writes None.
func (p *Writer) None() { p.op(opNone) }

// Bool writes a bool.
func (p *Writer) Bool(b bool) {
	if b {
		p.op(opNewTrue)
	} else {
		p.op(opNewFalse)
	}
}

// Int writes an int in the shortest form.
func (p *Writer) Int(x int64) {
	switch {
	case x>>8 == 0:
		p.op1(opBinInt1, byte(x))
	case x>>16 == 0:
		p.op2(opBinInt2, uint16(x))
	case x == int64(int32(x)):
		p.op4(opBinInt, uint32(x))
	default:
		n := 5
		for n < 8 && x>>(8*n-1) != x>>63 {
			n++
		}
		p.long(uint64(x), n)
	}
}

// Uint writes an int up to 2^64-1. PyTorch's viewer reads those above 2^53 with rounding.
func (p *Writer) Uint(x uint64) {
	if x <= math.MaxInt64 {
		p.Int(int64(x))
		return
	}
	p.long(x, 9)
}

// long writes the lowest n bytes of x. A ninth byte is zero.
func (p *Writer) long(x uint64, n int) {
	p.op1(opLong1, byte(n))
	for range n {
		p.frame = append(p.frame, byte(x))
		x >>= 8
	}
}

// Float writes a float.
func (p *Writer) Float(x float64) {
	p.op(opBinFloat)
	p.frame = binary.BigEndian.AppendUint64(p.frame, math.Float64bits(x))
}

// Name writes a str that repeats, such as a key. Later calls with the same string refer to the memo.
func (p *Writer) Name(s string) {
	slot := &p.near[0]
	if n := len(s); n > 0 {
		slot = &p.near[(n*31+int(s[0])*7+int(s[n-1]))%len(p.near)]
	}
	if slot.memo > 0 && slot.s == s {
		p.Get(slot.memo - 1)
		return
	}
	m, ok := p.names[s]
	if ok {
		p.Get(m)
	} else {
		p.Str(s)
		m = p.Put()
		p.names[s] = m
	}
	*slot = name{s, m + 1}
}

// Str writes a str. Python refuses a str that is not UTF-8, so invalid bytes of s become U+FFFD; surrogates, which
// Python writes and reads, are kept.
func (p *Writer) Str(s string) {
	if !utf8.ValidString(s) {
		s = string(readable(s))
	}
	p.length(uint64(len(s)), opShortBinUnicode, opBinUnicode, opBinUnicode8)
	p.frame = append(p.frame, s...)
}

// readable returns s with the bytes that Python would reject replaced.
func readable(s string) []byte {
	out := make([]byte, 0, len(s))
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r != utf8.RuneError || n > 1:
			out = append(out, s[:n]...)
		case len(s) >= 3 && s[0] == 0xed && s[1] >= 0xa0 && s[1] <= 0xbf && s[2] >= 0x80 && s[2] <= 0xbf:
			n = 3
			out = append(out, s[:n]...)
		default:
			out = utf8.AppendRune(out, utf8.RuneError)
		}
		s = s[n:]
	}
	return out
}

// Bytes writes a bytes value.
func (p *Writer) Bytes(b []byte) {
	p.length(uint64(len(b)), opShortBinBytes, opBinBytes, opBinBytes8)
	p.frame = append(p.frame, b...)
}

// length writes the shortest of three opcodes that can hold a length.
func (p *Writer) length(n uint64, short, usual, long Opcode) {
	switch {
	case n <= math.MaxUint8:
		p.op1(short, byte(n))
	case n <= math.MaxUint32:
		p.op4(usual, uint32(n))
	default:
		p.op(long)
		p.frame = binary.LittleEndian.AppendUint64(p.frame, n)
	}
}
