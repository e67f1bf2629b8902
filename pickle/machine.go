package pickle

import (
	"errors"
	"fmt"
	"io"
)

// A machine runs the opcodes of one pickle.
type machine struct {
	in     input
	doc    *Document
	fold   Fold
	limits Limits

	stack []Value
	marks []int // lengths that the stack had at the open marks, ascending
	fence int   // the last of marks, or 0: no opcode may reach below it
	memo  memo

	templates templates
	begun     int64 // offset of the last EMPTY_DICT

	emptyTuple Value // zero until first used
	allow      func() (int64, error)
	allowed    int64 // the last result of Options.Allow

	at       int64 // offset of the current opcode
	op       Opcode
	frameEnd int64 // end of the open frame
	inFrame  bool
}

// lookahead is the number of bytes that are buffered before an opcode runs, if the input has them: enough for every
// argument of fixed length.
const lookahead = 16

func newMachine(r io.Reader, o Options) *machine {
	limits := o.Limits.withDefaults()
	return &machine{
		in: newInput(r, limits.Bytes), doc: &Document{ids: map[string]uint32{}, depth: limits.Depth}, fold: o.Fold,
		limits: limits,
		allow:  o.Allow,
	}
}

// run runs opcodes up to STOP.
func (m *machine) run() error {
	if err := m.header(); err != nil {
		return err
	}
	for {
		if m.in.end-m.in.pos < lookahead {
			m.in.fill(lookahead)
		}
		m.at = m.in.offset()
		if m.in.pos == m.in.end {
			m.op = 0
			return m.endOfInput("before STOP")
		}
		m.op = Opcode(m.in.buf[m.in.pos])
		m.in.pos++
		if m.inFrame && m.at >= m.frameEnd {
			if m.at > m.frameEnd {
				return m.corrupt("follows an opcode that crossed the end of its frame, at offset %d", m.frameEnd)
			}
			m.inFrame = false
		}
		if m.op == opStop {
			return m.stop()
		}
		if err := m.step(); err != nil {
			return err
		}
		if m.doc.memory > m.allowed {
			if err := m.afford(m.doc.memory); err != nil {
				return err
			}
		}
	}
}

// header reads PROTO.
func (m *machine) header() error {
	if !m.in.fill(2) {
		return m.endOfInput("where a pickle starts with PROTO")
	}
	if m.op = Opcode(m.in.buf[0]); m.op != opProto {
		op := m.op
		m.op = 0
		return m.corrupt("byte 0x%02x where a pickle of protocol 2 to 5 starts with PROTO (0x80): no pickle, or one of "+
			"protocol 0 or 1", byte(op))
	}
	protocol := int(m.in.buf[1])
	if protocol < 2 || protocol > 5 {
		return m.refuse("declares protocol %d: want 2 to 5", protocol)
	}
	m.doc.protocol = protocol
	m.in.pos = 2
	return nil
}

// step runs the opcode m.op, whose byte is already read.
func (m *machine) step() error {
	switch m.op {
	case opMark:
		return m.mark()
	case opPop:
		return m.pop()
	case opPopMark:
		_, err := m.popMark()
		return err
	case opDup:
		if err := m.split(1); err != nil {
			return err
		}
		if len(m.stack) == m.fence {
			return m.underflow()
		}
		return m.push(m.stack[len(m.stack)-1])

	case opNone:
		return m.push(valueNone)
	case opNewTrue:
		return m.push(valueTrue)
	case opNewFalse:
		return m.push(valueFalse)
	case opBinInt, opBinInt1, opBinInt2, opBinFloat:
		return m.number()
	case opLong1, opLong4:
		return m.longInt()
	case opShortBinUnicode, opBinUnicode, opBinUnicode8:
		return m.text(tagStr)
	case opShortBinBytes, opBinBytes, opBinBytes8, opByteArray8:
		return m.text(tagBytes)

	case opEmptyDict:
		if done, err := m.repeated(); done || err != nil {
			return err
		}
		m.begun = m.at
		return m.container(tagDict, nil)
	case opEmptyList:
		return m.container(tagList, nil)
	case opEmptyTuple:
		return m.container(tagTuple, nil)
	case opTuple1:
		return m.shortTuple(1)
	case opTuple2:
		return m.shortTuple(2)
	case opTuple3:
		return m.shortTuple(3)
	case opTuple, opList, opDict:
		return m.fromMark()
	case opAppend, opAppends:
		return m.appendItems()
	case opSetItem, opSetItems:
		return m.setItems()

	case opBinGet, opLongBinGet:
		return m.get()
	case opMemoize, opBinPut, opLongBinPut:
		return m.put()
	case opFrame:
		return m.frame()
	case opProto:
		return m.corrupt("stands in the middle of the pickle")
	}
	return m.refuseOpcode()
}

// frame records the end of a frame: an opcode must start there.
func (m *machine) frame() error {
	arg, err := m.arg(8)
	if err != nil {
		return err
	}
	if m.inFrame {
		return m.corrupt("starts a frame inside the frame that ends at offset %d", m.frameEnd)
	}
	n := little(arg)
	if n > uint64(m.limits.Bytes) {
		return m.over("declares a frame of %d bytes: more than the %d that may be read", n, m.limits.Bytes)
	}
	m.inFrame = true
	m.frameEnd = m.in.offset() + int64(n)
	return nil
}

// stop finishes the document.
func (m *machine) stop() error {
	if err := m.splitAll(); err != nil {
		return err
	}
	if len(m.marks) > 0 {
		return m.corrupt("leaves %d marks open", len(m.marks))
	}
	if len(m.stack) != 1 {
		return m.corrupt("finds %d values on the stack, not one", len(m.stack))
	}
	m.doc.size = m.in.offset()
	if m.inFrame && m.frameEnd != m.doc.size {
		return m.corrupt("comes at %d bytes before the end of its frame", m.frameEnd-m.doc.size)
	}
	m.doc.root = m.stack[0]
	m.stack, m.memo = nil, memo{} // only the document is needed from here
	return m.check()
}

// arg returns the opcode's argument of n bytes. n is less than lookahead.
func (m *machine) arg(n int) ([]byte, error) {
	if m.in.buffered() < n {
		return nil, m.endOfInput("inside its argument")
	}
	return m.in.take(n), nil
}

// little decodes b, at most 8 bytes, as a little-endian number.
func little(b []byte) uint64 {
	var x uint64
	for i := len(b) - 1; i >= 0; i-- {
		x = x<<8 | uint64(b[i])
	}
	return x
}

func (m *machine) fail(code error, format string, args ...any) error {
	return &Error{Offset: m.at, Opcode: m.op, Reason: fmt.Sprintf(format, args...), Code: code}
}

func (m *machine) corrupt(format string, args ...any) error {
	return m.fail(ErrCorrupt, format, args...)
}

func (m *machine) over(format string, args ...any) error { return m.fail(ErrLimit, format, args...) }

func (m *machine) refuse(format string, args ...any) error {
	return m.fail(ErrRefused, format, args...)
}

func (m *machine) underflow() error {
	if len(m.marks) > 0 {
		return m.corrupt("finds too few values above the last mark")
	}
	return m.corrupt("finds too few values on the stack")
}

// endOfInput returns the error for the end of the input: why no more can be read, and where.
func (m *machine) endOfInput(where string) error {
	cutOff := ""
	if m.op != 0 {
		cutOff = "is cut off: "
	}
	switch err := m.in.err; {
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return m.fail(ErrTruncated, "%sthe input ends %s", cutOff, where)
	case err == ErrLimit:
		return m.over(cutOff+"the input is longer than the limit of %d bytes", m.limits.Bytes)
	default:
		return m.fail(err, "cannot be read: %v", err)
	}
}
