package snapshottest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// A Pickler writes a pickle opcode by opcode, in protocol 2 to 5, for tests. It does not check that the opcodes fit
// together. Each method pushes a value, or does what the opcode of its name does.
type Pickler struct {
	w        io.Writer
	protocol int
	buf      []byte // not written yet: the open frame
	written  int64
	err      error
	count    uint32            // memo entries
	keys     map[string]uint32 // strings in the memo
}

const frameSize = 64 << 10

// NewPickler starts a pickle on w.
func NewPickler(w io.Writer, protocol int) *Pickler {
	if protocol < 2 || protocol > 5 {
		panic(fmt.Sprintf("snapshottest: protocol %d: want 2 to 5", protocol))
	}
	p := &Pickler{w: w, protocol: protocol, keys: map[string]uint32{}}
	p.write([]byte{0x80, byte(protocol)})
	return p
}

// Close ends the pickle and returns the first error of the writer.
func (p *Pickler) Close() error {
	p.buf = append(p.buf, '.')
	p.flush()
	return p.err
}

// Written returns the number of bytes written so far, without the open frame.
func (p *Pickler) Written() int64 { return p.written }

func (p *Pickler) write(b []byte) {
	if p.err == nil {
		_, p.err = p.w.Write(b)
	}
	p.written += int64(len(b))
}

// flush writes the buffer, as a frame if the protocol has frames.
func (p *Pickler) flush() {
	if p.protocol >= 4 {
		p.write(binary.LittleEndian.AppendUint64([]byte{0x95}, uint64(len(p.buf))))
	}
	p.write(p.buf)
	p.buf = p.buf[:0]
}

// op writes an opcode with its argument.
func (p *Pickler) op(code byte, arg ...byte) {
	if len(p.buf) >= frameSize {
		p.flush()
	}
	p.buf = append(append(p.buf, code), arg...)
}

// memoize puts the top of the stack into the memo and returns its number there.
func (p *Pickler) memoize() uint32 {
	n := p.count
	p.count++
	switch {
	case p.protocol >= 4:
		p.op(0x94)
	case n < 256:
		p.op('q', byte(n))
	default:
		p.op('r', binary.LittleEndian.AppendUint32(nil, n)...)
	}
	return n
}

// Get pushes a memo entry.
func (p *Pickler) Get(n uint32) {
	if n < 256 {
		p.op('h', byte(n))
	} else {
		p.op('j', binary.LittleEndian.AppendUint32(nil, n)...)
	}
}

// Dict and List push an empty container, memoised, and return its number in the memo.
func (p *Pickler) Dict() uint32 { p.op('}'); return p.memoize() }

// List pushes an empty list: see Dict.
func (p *Pickler) List() uint32 { p.op(']'); return p.memoize() }

// Mark, SetItems, Append, Appends and Tuple2 are the opcodes of these names.
func (p *Pickler) Mark() { p.op('(') }

// SetItems adds what is above the mark to the dict below it.
func (p *Pickler) SetItems() { p.op('u') }

// Append adds the top of the stack to the list below it.
func (p *Pickler) Append() { p.op('a') }

// Appends adds what is above the mark to the list below it.
func (p *Pickler) Appends() { p.op('e') }

// Tuple2 makes a tuple of the two topmost values.
func (p *Pickler) Tuple2() { p.op(0x86); p.memoize() }

// Key pushes a str, from the memo if it was written by Key before.
func (p *Pickler) Key(s string) {
	if n, ok := p.keys[s]; ok {
		p.Get(n)
		return
	}
	p.keys[s] = p.Str(s)
}

// Str pushes a new str and returns its number in the memo.
func (p *Pickler) Str(s string) uint32 {
	if p.protocol >= 4 && len(s) < 256 {
		p.op(0x8c, byte(len(s)))
	} else {
		p.op('X', binary.LittleEndian.AppendUint32(nil, uint32(len(s)))...)
	}
	p.buf = append(p.buf, s...)
	return p.memoize()
}

// Int pushes an int in its shortest form.
func (p *Pickler) Int(x int64) {
	switch {
	case x >= 0 && x < 1<<8:
		p.op('K', byte(x))
	case x >= 0 && x < 1<<16:
		p.op('M', byte(x), byte(x>>8))
	case x >= math.MinInt32 && x <= math.MaxInt32:
		p.op('J', binary.LittleEndian.AppendUint32(nil, uint32(x))...)
	default:
		b := binary.LittleEndian.AppendUint64(nil, uint64(x))
		for len(b) > 1 && int64(int8(b[len(b)-2]))>>7 == x>>63 && (b[len(b)-1] == 0 || b[len(b)-1] == 0xff) {
			b = b[:len(b)-1]
		}
		p.op(0x8a, append([]byte{byte(len(b))}, b...)...)
	}
}

// Uint pushes an int that may be too large for an int64.
func (p *Pickler) Uint(x uint64) {
	if x <= math.MaxInt64 {
		p.Int(int64(x))
		return
	}
	p.op(0x8a, append(binary.LittleEndian.AppendUint64([]byte{9}, x), 0)...)
}

// Float pushes a float.
func (p *Pickler) Float(x float64) {
	p.op('G', binary.BigEndian.AppendUint64(nil, math.Float64bits(x))...)
}

// Bool pushes a bool.
func (p *Pickler) Bool(b bool) {
	if b {
		p.op(0x88)
	} else {
		p.op(0x89)
	}
}

// None pushes None.
func (p *Pickler) None() { p.op('N') }
