package pickle

import (
	"encoding/binary"
	"slices"
)

// A template is the sequence of opcodes of a dict that was folded. Snapshots have millions of dicts whose opcodes are
// the same, except for some numbers and values of the memo. Such a dict is compared with the template and passed to
// Fold without running its opcodes one by one. It has no node; lists have runs of such dicts (see runs.go), and so has
// the memo.
type template struct {
	steps   []step
	longest int     // maximum bytes of a dict
	pairs   []Value // of the last dict that was compared
	memo    []Value // what each dict adds to the memo; zero for the dict itself
}

// A step compares bytes, and then reads a value or the number of a memo entry.
type step struct {
	want, mask uint64 // the next bytes, little-endian
	length     int    // of them
	then       int    // the index in template.pairs of the value that follows, or thenNothing or thenPut
}

const (
	thenNothing = -1
	thenPut     = -2
)

// Limits of templates.
const (
	maxTemplates     = 8
	maxTemplateBytes = 1024
	maxTemplateMemo  = memoPage
	learnings        = 4096 // dicts that templates are made of without a repetition
)

// templates are those of a machine. The ones that matched come first.
type templates struct {
	list     []*template
	matched  int // how many of list have matched
	failures int // templates made since the last match
}

// repeated reads a dict by a template, from the byte after EMPTY_DICT. It returns false if the dict must be read opcode
// by opcode; then nothing has changed.
func (m *machine) repeated() (done bool, err error) {
	t := &m.templates
	for i, x := range t.list {
		n, ok := m.compare(x)
		if !ok {
			continue
		}
		if i >= t.matched {
			t.matched++
		}
		copy(t.list[1:], t.list[:i]) // the one that matched comes first
		t.list[0] = x
		t.failures = 0
		return true, m.accept(x, n)
	}
	return false, nil
}

// compare compares the input with a template. It returns the number of bytes of the dict, without its EMPTY_DICT.
func (m *machine) compare(t *template) (n int, ok bool) {
	if m.in.end-m.in.pos < t.longest && !m.in.fill(t.longest) {
		return 0, false
	}
	b := m.in.buf[m.in.pos:m.in.end]
	number := m.memo.next()
	at := 0
	for i := range t.steps {
		s := &t.steps[i]
		if binary.LittleEndian.Uint64(b[at:])&s.mask != s.want {
			return 0, false
		}
		if at += s.length; s.then == thenNothing {
			continue
		}
		next := (*[lookahead]byte)(b[at:])
		if s.then >= 0 {
			v, width := m.scalar(next)
			if v == 0 {
				return 0, false
			}
			t.pairs[s.then] = v
			at += width
			continue
		}
		width, x := 2, int64(next[1])
		if Opcode(next[0]) == opLongBinPut {
			width, x = 5, int64(binary.LittleEndian.Uint32(next[1:]))
		} else if Opcode(next[0]) != opBinPut {
			return 0, false
		}
		if x != number {
			return 0, false
		}
		number++
		at += width
	}
	return at, !m.inFrame || m.in.offset()+int64(at) <= m.frameEnd
}

// scalar reads one opcode that pushes a number, a constant or an entry of the memo. It returns 0 for other opcodes.
func (m *machine) scalar(b *[lookahead]byte) (v Value, width int) {
	switch Opcode(b[0]) {
	case opBinInt1:
		return pack(tagInt, uint64(b[1])), 2
	case opBinInt2:
		return pack(tagInt, uint64(binary.LittleEndian.Uint16(b[1:]))), 3
	case opBinInt:
		return pack(tagInt, uint64(int32(binary.LittleEndian.Uint32(b[1:])))), 5
	case opLong1:
		n := int(b[1])
		if n == 0 || n > 8 {
			return 0, 0
		}
		unused := (64 - 8*n) & 63
		x := int64(binary.LittleEndian.Uint64(b[2:])<<unused) >> unused
		if n < 8 {
			return pack(tagInt, uint64(x)), 2 + n // of less than 60 bits
		}
		return m.doc.newInt(x), 2 + n
	case opBinGet:
		return m.memo.get(uint32(b[1])), 2
	case opLongBinGet:
		return m.memo.get(binary.LittleEndian.Uint32(b[1:])), 5
	case opNone:
		return valueNone, 1
	case opNewTrue:
		return valueTrue, 1
	case opNewFalse:
		return valueFalse, 1
	}
	return 0, 0
}

// accept folds a dict of n bytes that a template matches.
func (m *machine) accept(t *template, n int) error {
	if int64(len(m.doc.nodes))+m.doc.repeated >= m.limits.Nodes {
		return m.over("makes more than %d dicts, lists and tuples", m.limits.Nodes)
	}
	if number := m.memo.count + int64(len(t.memo)); number > m.limits.Memo {
		return m.over("puts memo entry %d: the limit is %d", m.limits.Memo, m.limits.Memo)
	}
	m.in.pos += n
	handle, ok := m.fold(m.doc, t.pairs)
	if ok && m.memo.repeat(handle, t.memo, &m.doc.memory) {
		m.doc.repeated++
		return m.pushFolded(handle)
	}
	v := pack(tagFolded, uint64(handle))
	if !ok {
		v = m.doc.newNode(tagDict)
		m.doc.extend(v, t.pairs)
	}
	for _, x := range t.memo {
		if x == 0 {
			x = v
		}
		m.memo.put(uint32(m.memo.next()), x, &m.doc.memory)
	}
	return m.push(v)
}

// folded is called when a dict was folded whose opcodes were run. The dict may continue a run, and its opcodes may be a
// template for later ones.
func (m *machine) folded(v Value, handle uint32, pairs []Value) {
	n := len(m.stack)
	if n == m.fence || m.stack[n-1] != v {
		return
	}
	if m.memo.absorb(v, handle) && n > m.fence+1 && m.stack[n-2].join(packRun(handle, 1)) {
		m.stack = m.stack[:n-1]
		m.doc.repeated++
	}
	t := &m.templates
	from := m.begun - m.in.base
	if from < 0 || int64(m.in.pos)-from > maxTemplateBytes || t.failures == learnings {
		return
	}
	t.failures++
	x := newTemplate(m.in.buf[from:m.in.pos], pairs, m.memo.next())
	if x == nil {
		return
	}
	for _, other := range t.list {
		if slices.Equal(other.memo, x.memo) {
			x.memo = other.memo // so that their dicts are of one run
		}
	}
	if len(t.list) < maxTemplates {
		t.list = append(t.list, nil)
	} else {
		t.matched = min(t.matched, maxTemplates/2)
	}
	copy(t.list[t.matched+1:], t.list[t.matched:])
	t.list[t.matched] = x
}
