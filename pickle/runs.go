package pickle

import "slices"

// maxRun is the maximum number of dicts in one Value with tagRun.
const maxRun = 1<<28 - 1

func packRun(first uint32, dicts int) Value { return pack(tagRun, uint64(dicts)<<32|uint64(first)) }

// run returns the first handle and the number of dicts of a Value with tagRun.
func (v Value) run() (first uint32, dicts int) { return uint32(v.payload()), int(v.payload() >> 32) }

// join makes a later run a part of a run, if it continues it.
func (v *Value) join(later Value) bool {
	if v.tag() != tagRun || later.tag() != tagRun {
		return false
	}
	first, n := v.run()
	next, more := later.run()
	if first+uint32(n) != next || n+more > maxRun {
		return false
	}
	*v = packRun(first, n+more)
	return true
}

func hasRun(list []Value) bool {
	return slices.ContainsFunc(list, func(v Value) bool { return v.tag() == tagRun })
}

// appendExpanded appends a value, or the dicts of a run one by one.
func appendExpanded(list []Value, v Value) []Value {
	if v.tag() != tagRun {
		return append(list, v)
	}
	first, n := v.run()
	for i := range n {
		list = append(list, pack(tagFolded, uint64(first)+uint64(i)))
	}
	return list
}

// Runs calls f for the items of a list or tuple in order, until f returns false: for folded dicts with consecutive
// handles all at once, with the first handle and their number, and otherwise for each item, with 0 dicts.
func (d *Document) Runs(v Value, f func(item Value, first uint32, dicts int) bool) {
	var first uint32
	dicts := 0 // that f has not been called for
	for _, item := range d.raw(v) {
		next, n := uint32(0), 0
		if item.tag() == tagRun {
			next, n = item.run()
		} else if handle, folded := d.Folded(item); folded {
			next, n = handle, 1
		}
		if n > 0 && dicts > 0 && first+uint32(dicts) == next {
			dicts += n
			continue
		}
		if dicts > 0 && !f(0, first, dicts) {
			return
		}
		if first, dicts = next, n; n == 0 && !f(item, 0, 0) {
			return
		}
	}
	if dicts > 0 {
		f(0, first, dicts)
	}
}

// pushFolded pushes a folded dict without a node.
func (m *machine) pushFolded(handle uint32) error {
	v := packRun(handle, 1)
	if n := len(m.stack); n > m.fence && m.stack[n-1].join(v) {
		return nil
	}
	return m.push(v)
}

// split makes the n topmost values single ones, for opcodes that do not take runs.
func (m *machine) split(n int) error {
	for k := 1; k <= n && k <= len(m.stack)-m.fence; k++ {
		at := len(m.stack) - k
		if m.stack[at].tag() != tagRun {
			continue
		}
		first, dicts := m.stack[at].run()
		last := pack(tagFolded, uint64(first)+uint64(dicts)-1)
		if dicts == 1 {
			m.stack[at] = last
			continue
		}
		if err := m.push(0); err != nil {
			return err
		}
		m.stack[at] = packRun(first, dicts-1)
		copy(m.stack[at+2:], m.stack[at+1:])
		m.stack[at+1] = last
	}
	return nil
}

// splitAll makes all values above the last mark single ones.
func (m *machine) splitAll() error {
	above := m.stack[m.fence:]
	if !hasRun(above) {
		return nil
	}
	above = slices.Clone(above)
	m.stack = m.stack[:m.fence]
	for _, v := range above {
		first, dicts := v.run()
		if v.tag() != tagRun {
			dicts = 0
			if err := m.push(v); err != nil {
				return err
			}
		}
		for i := range dicts {
			if err := m.push(pack(tagFolded, uint64(first)+uint64(i))); err != nil {
				return err
			}
		}
	}
	return nil
}
