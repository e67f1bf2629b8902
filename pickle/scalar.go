package pickle

import "math"

// number runs the opcodes of numbers of fixed length.
func (m *machine) number() error {
	width := 4
	switch m.op {
	case opBinInt1:
		width = 1
	case opBinInt2:
		width = 2
	case opBinFloat:
		width = 8
	}
	arg, err := m.arg(width)
	if err != nil {
		return err
	}
	switch m.op {
	case opBinInt:
		return m.push(m.doc.newInt(int64(int32(little(arg)))))
	case opBinFloat:
		var bits uint64 // the only big-endian number
		for _, b := range arg {
			bits = bits<<8 | uint64(b)
		}
		return m.push(m.doc.newWide(tagFloat, bits))
	}
	return m.push(m.doc.newInt(int64(little(arg))))
}

// longInt runs LONG1 and LONG4: little-endian two's complement of any length. Bytes that only extend the sign are
// ignored, so a long encoding may still fit into 64 bits.
func (m *machine) longInt() error {
	width := 1
	if m.op == opLong4 {
		width = 4
	}
	arg, err := m.arg(width)
	if err != nil {
		return err
	}
	n := int64(little(arg))
	if n > math.MaxInt32 {
		return m.corrupt("declares a negative length")
	}
	const longest = 1 << 10 // bytes; no writer makes longer ones of small integers
	if n > longest {
		return m.fail(ErrRange, "has an integer of %d bytes: want 64 bits", n)
	}
	if !m.in.fill(int(n)) {
		return m.endOfInput("inside its argument")
	}
	b := m.in.take(int(n))
	if n == 0 {
		return m.push(m.doc.newInt(0))
	}
	sign := byte(0)
	if b[n-1]&0x80 != 0 {
		sign = 0xff
	}
	for len(b) > 0 && b[len(b)-1] == sign {
		b = b[:len(b)-1]
	}
	low := little(b[:min(len(b), 8)])
	if sign == 0 {
		if len(b) > 8 {
			return m.fail(ErrRange, "has an integer of %d bytes, above the largest of 64 bits", n)
		}
		return m.push(m.doc.newUint(low))
	}
	if len(b) < 8 {
		low |= math.MaxUint64 << (8 * len(b))
	}
	if len(b) > 8 || int64(low) >= 0 {
		return m.fail(ErrRange, "has an integer of %d bytes, below the smallest of 64 bits", n)
	}
	return m.push(m.doc.newInt(int64(low)))
}

// text runs the opcodes of str, bytes and bytearray.
func (m *machine) text(tag uint64) error {
	width := 1
	switch m.op {
	case opBinUnicode, opBinBytes:
		width = 4
	case opBinUnicode8, opBinBytes8, opByteArray8:
		width = 8
	}
	arg, err := m.arg(width)
	if err != nil {
		return err
	}
	n := little(arg)
	if n > uint64(m.limits.String) {
		return m.over("declares a length of %d bytes: the limit is %d", n, m.limits.String)
	}
	if n <= bufferSize {
		if m.in.buffered() < int(n) && !m.in.fill(int(n)) {
			return m.endOfInput("inside its argument")
		}
		return m.push(m.doc.intern(tag, m.in.take(int(n))))
	}
	b, ok := m.in.long(int64(n))
	if !ok {
		return m.endOfInput("inside its argument")
	}
	return m.push(m.doc.intern(tag, b))
}
