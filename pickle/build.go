package pickle

import "slices"

// push puts a value on the stack.
func (m *machine) push(v Value) error {
	if len(m.stack) == cap(m.stack) {
		if err := m.deeper(); err != nil {
			return err
		}
	}
	m.stack = append(m.stack, v)
	return nil
}

// deeper doubles the full stack. It searches the stack for empty containers each time, which costs amortized constant
// time for each value.
func (m *machine) deeper() error {
	if int64(len(m.stack)) >= m.limits.Open {
		var empty int64
		for _, v := range m.stack {
			if v.hasNode() && m.doc.nodes[v.payload()]&nodeState == nodeEmpty {
				empty++
			}
		}
		if empty >= m.limits.Open {
			return m.over("finds %d empty dicts, lists and tuples on the stack: the limit is fewer than %d",
				empty, m.limits.Open)
		}
	}
	if err := m.afford(m.doc.memory + growth(m.stack)*costValue); err != nil {
		return err
	}
	m.stack = grow(m.stack, &m.doc.memory, costValue)
	return nil
}

// afford returns an error if the machine would need more memory than allowed. It asks Options.Allow for a new bound if
// needed.
func (m *machine) afford(memory int64) error {
	if memory <= m.allowed {
		return nil
	}
	m.allowed = m.limits.Memory
	if m.allow != nil {
		bytes, over := m.allow()
		m.allowed = min(m.allowed, bytes)
		if memory > bytes && bytes < m.limits.Memory {
			return m.fail(over, "needs more memory than %d bytes: %v", bytes, over)
		}
	}
	if memory > m.allowed {
		return m.over("needs more memory than %d bytes: the limit", m.limits.Memory)
	}
	return nil
}

func (m *machine) mark() error {
	if len(m.marks) >= m.limits.Depth {
		return m.over("opens more than %d marks", m.limits.Depth)
	}
	m.fence = len(m.stack)
	m.marks = append(m.marks, m.fence)
	return nil
}

// pop drops the top value, or a mark if that is on top, as Python does.
func (m *machine) pop() error {
	if err := m.split(1); err != nil {
		return err
	}
	if len(m.stack) > m.fence {
		m.stack = m.stack[:len(m.stack)-1]
		return nil
	}
	_, err := m.popMark()
	return err
}

// popMark removes the last mark and the values above it from the stack. The values are valid until the next push.
func (m *machine) popMark() ([]Value, error) {
	if len(m.marks) == 0 {
		return nil, m.corrupt("finds no open mark")
	}
	above := m.stack[m.fence:]
	m.stack = m.stack[:m.fence]
	m.marks = m.marks[:len(m.marks)-1]
	m.fence = 0
	if n := len(m.marks); n > 0 {
		m.fence = m.marks[n-1]
	}
	return above, nil
}

// take removes the top n values from the stack. They are valid until the next push.
func (m *machine) take(n int) ([]Value, error) {
	if err := m.split(n); err != nil {
		return nil, err
	}
	if len(m.stack)-m.fence < n {
		return nil, m.underflow()
	}
	top := m.stack[len(m.stack)-n:]
	m.stack = m.stack[:len(m.stack)-n]
	return top, nil
}

// container pushes a new list, tuple or dict. All empty tuples are the same value, as in Python.
func (m *machine) container(tag uint64, contents []Value) error {
	if int64(len(m.doc.nodes))+m.doc.repeated >= m.limits.Nodes {
		return m.over("makes more than %d dicts, lists and tuples", m.limits.Nodes)
	}
	if tag == tagTuple && len(contents) == 0 && m.emptyTuple != 0 {
		return m.push(m.emptyTuple)
	}
	if len(m.doc.nodes) == cap(m.doc.nodes) {
		if err := m.afford(m.doc.memory + growth(m.doc.nodes)*costNode); err != nil {
			return err
		}
	}
	v := m.doc.newNode(tag)
	if tag == tagTuple && len(contents) == 0 {
		m.emptyTuple = v
	}
	if err := m.fill(v, contents); err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) shortTuple(n int) error {
	items, err := m.take(n)
	if err != nil {
		return err
	}
	return m.container(tagTuple, items)
}

// fromMark runs TUPLE, LIST and DICT: it makes a container of the values above the mark.
func (m *machine) fromMark() error {
	if m.op == opDict {
		if err := m.splitAll(); err != nil {
			return err
		}
	}
	items, err := m.popMark()
	if err != nil {
		return err
	}
	switch m.op {
	case opTuple:
		return m.container(tagTuple, items)
	case opList:
		return m.container(tagList, items)
	}
	return m.container(tagDict, items)
}

// appendItems runs APPEND and APPENDS.
func (m *machine) appendItems() error {
	more, err := m.more(1)
	if err != nil {
		return err
	}
	if len(m.stack) == m.fence {
		return m.underflow()
	}
	list := m.stack[len(m.stack)-1]
	if list.tag() != tagList {
		return m.corrupt("adds to a %v, not to a list", list.Kind())
	}
	m.doc.extend(list, more)
	return nil
}

// setItems runs SETITEM and SETITEMS.
func (m *machine) setItems() error {
	more, err := m.more(2)
	if err != nil {
		return err
	}
	if len(m.stack) == m.fence {
		return m.underflow()
	}
	dict := m.stack[len(m.stack)-1]
	if dict.tag() == tagFolded || dict.tag() == tagRun {
		return m.refuse("adds to a dict that was already complete")
	}
	if dict.tag() != tagDict {
		return m.corrupt("sets items of a %v, not of a dict", dict.Kind())
	}
	return m.fill(dict, more)
}

// more returns the values to add: n values for APPEND and SETITEM, or those above the mark for APPENDS and SETITEMS.
func (m *machine) more(n int) ([]Value, error) {
	if m.op == opSetItems {
		if err := m.splitAll(); err != nil {
			return nil, err
		}
	}
	if m.op == opAppends || m.op == opSetItems {
		return m.popMark()
	}
	return m.take(n)
}

// fill adds contents to v, or folds the dict v.
func (m *machine) fill(v Value, contents []Value) error {
	if v.tag() != tagDict {
		m.doc.extend(v, contents)
		return nil
	}
	if len(contents)%2 != 0 {
		return m.corrupt("finds a key without a value")
	}
	for i := 0; i < len(contents); i += 2 {
		if t := contents[i].tag(); t == tagList || t == tagDict || t == tagFolded {
			return m.corrupt("finds a %v as a key", contents[i].Kind())
		}
	}
	if len(contents) == 0 {
		return nil
	}
	switch n := &m.doc.nodes[v.payload()]; {
	case *n&nodeState == nodeFolded:
		return m.refuse("adds to a dict that was already complete")
	case m.fold != nil && *n&nodeState == nodeEmpty && m.op != opSetItem:
		if handle, ok := m.fold(m.doc, slices.Clip(contents)); ok {
			*n = node(handle)<<2 | nodeFolded
			m.folded(v, handle, contents)
			return nil
		}
	}
	m.doc.extend(v, contents)
	return nil
}

// get pushes a value of the memo.
func (m *machine) get() error {
	width := 1
	if m.op == opLongBinGet {
		width = 4
	}
	arg, err := m.arg(width)
	if err != nil {
		return err
	}
	i := uint32(little(arg))
	v := m.memo.get(i)
	if v == 0 {
		return m.corrupt("asks for memo entry %d, which does not exist", i)
	}
	return m.push(v)
}

// put stores the top of the stack in the memo.
func (m *machine) put() error {
	i := uint64(m.memo.count)
	if m.op != opMemoize {
		width := 1
		if m.op == opLongBinPut {
			width = 4
		}
		arg, err := m.arg(width)
		if err != nil {
			return err
		}
		i = little(arg)
	}
	if err := m.split(1); err != nil {
		return err
	}
	if len(m.stack) == m.fence {
		return m.underflow()
	}
	if i >= uint64(m.limits.Memo) {
		return m.over("puts memo entry %d: the limit is %d", i, m.limits.Memo)
	}
	m.memo.put(uint32(i), m.stack[len(m.stack)-1], &m.doc.memory)
	return nil
}
