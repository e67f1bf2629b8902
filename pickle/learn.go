package pickle

import "math"

// A learner makes a template of the opcodes of a dict.
type learner struct {
	ops   []byte  // of the dict
	stack []item  // the keys and values so far
	puts  []int   // for each put, the index in stack of the item that it stores; -1 is the dict
	ends  [][]int // offsets of the opcodes: start, end, and kind
}

// An item is a key or a value: the opcodes of it from one offset to another, and whether some part is in the memo.
type item struct {
	from, to int
	single   bool // one opcode, of those that machine.scalar reads
	stored   bool
}

// newTemplate returns the template of the dict with these opcodes, or nil if it has parts that templates lack. Next is
// the number of the memo entry after the dict.
func newTemplate(ops []byte, pairs []Value, next int64) *template {
	l := &learner{ops: ops}
	if !l.read() || len(l.stack) != len(pairs) || len(l.puts) > maxTemplateMemo || len(l.puts) == 0 {
		return nil
	}
	t := &template{pairs: append([]Value(nil), pairs...)}
	for _, n := range l.puts {
		if n < 0 {
			t.memo = append(t.memo, 0)
		} else {
			t.memo = append(t.memo, pairs[n])
		}
	}
	for i, x := range l.stack {
		if i%2 == 0 && !x.single {
			return nil // a key that later dicts take from the memo
		}
	}
	first := next - int64(len(l.puts))
	if !l.steps(t, first) {
		return nil
	}
	t.longest += lookahead // so that a step may read eight bytes, and a scalar sixteen
	return t
}

// read divides the opcodes into keys and values. It returns false for an opcode that templates lack.
func (l *learner) read() bool {
	at := 0
	for at < len(l.ops) {
		op := Opcode(l.ops[at])
		width := l.width(at)
		if width == 0 || at+width > len(l.ops) {
			return false
		}
		switch op {
		case opEmptyDict:
			if at > 0 {
				return false
			}
		case opMark:
			if len(l.stack) > 0 || len(l.ends) > 0 && l.ends[len(l.ends)-1][2] == int(opMark) {
				return false
			}
		case opSetItems:
			return at+width == len(l.ops)
		case opMemoize, opBinPut, opLongBinPut:
			l.puts = append(l.puts, len(l.stack)-1)
			if n := len(l.stack); n > 0 {
				l.stack[n-1].to, l.stack[n-1].stored = at+width, true
			}
		case opTuple1, opTuple2, opTuple3:
			n := len(l.stack) - int(op-opTuple1) - 1
			if n < 0 {
				return false
			}
			whole := item{from: l.stack[n].from, to: at + width}
			for _, x := range l.stack[n:] {
				if x.stored {
					return false
				}
			}
			l.stack = append(l.stack[:n], whole)
		default:
			l.stack = append(l.stack, item{from: at, to: at + width, single: op != opShortBinUnicode && op != opBinUnicode})
		}
		l.ends = append(l.ends, []int{at, at + width, int(op)})
		at += width
	}
	return false
}

// width returns the length of an opcode with its argument, or 0 for one that templates lack.
func (l *learner) width(at int) int {
	rest := l.ops[at:]
	switch Opcode(rest[0]) {
	case opEmptyDict, opMark, opSetItems, opMemoize, opTuple1, opTuple2, opTuple3, opNone, opNewTrue, opNewFalse:
		return 1
	case opBinInt1, opBinGet, opBinPut:
		return 2
	case opBinInt2:
		return 3
	case opBinInt, opLongBinGet, opLongBinPut:
		return 5
	case opLong1, opShortBinUnicode:
		if len(rest) > 1 {
			return 2 + int(rest[1])
		}
	case opBinUnicode:
		if len(rest) > 4 {
			return int(min(5+little(rest[1:5]), math.MaxInt32))
		}
	}
	return 0
}

// steps sets the steps of a template. It returns false if the numbers of puts are not those that follow first.
func (l *learner) steps(t *template, first int64) bool {
	value := map[int]int{} // index in pairs by offset
	for i, x := range l.stack {
		if i%2 == 1 && x.single && !x.stored {
			value[x.from] = i
		}
	}
	from := 1 // after EMPTY_DICT
	for _, op := range l.ends[1:] {
		at, end := op[0], op[1]
		switch i, varies := value[at]; {
		case varies:
			t.add(l.ops[from:at], i)
			t.longest += 10
			from = end
		case op[2] == int(opBinPut) || op[2] == int(opLongBinPut):
			if little(l.ops[at+1:end]) != uint64(first) {
				return false
			}
			t.add(l.ops[from:at], thenPut)
			t.longest += 5
			from = end
			first++
		}
	}
	t.add(l.ops[from:], thenNothing)
	return true
}

// add adds steps that compare bytes, and then do something.
func (t *template) add(text []byte, then int) {
	t.longest += len(text)
	for len(text) > 8 {
		t.steps = append(t.steps, step{little(text[:8]), math.MaxUint64, 8, thenNothing})
		text = text[8:]
	}
	mask := uint64(math.MaxUint64)
	if n := len(text); n < 8 {
		mask = 1<<(8*n) - 1
	}
	t.steps = append(t.steps, step{little(text), mask, len(text), then})
}
