package pickle

import "sort"

// A memo stores values by number. Python numbers them from 0 without gaps, so they are in pages. Pages whose numbers
// all come from one run of repeated dicts (see template) are not stored. Numbers far beyond the count, which occur only
// in unusual files, are in a map, so that a high number does not allocate memory for the numbers below it.
type memo struct {
	pages  []*[memoPage]Value // zero where none is stored; nil where runs has them
	length int64              // numbers below are in pages or runs
	runs   []memoRun          // ascending, those of which a page is not stored
	open   memoRun            // begins at length and still grows, if each is not nil
	tail   []Value            // of the numbers behind open: a dict may still turn out to continue it
	sparse map[uint32]Value
	count  int64 // numbers in use
}

// A memoRun has the numbers of repeated dicts.
type memoRun struct {
	from, to int64
	handle   uint32  // of the first dict
	each     []Value // of each dict; zero for the dict itself
}

const (
	memoPage       = 256
	memoGap        = 1024 // a number up to twice the count plus this is dense
	costMemoSparse = 48
	costMemoRun    = 48
	costMemoPage   = 24
)

// at returns the value with a number of the run.
func (r *memoRun) at(i int64) Value {
	n := int64(len(r.each))
	if v := r.each[(i-r.from)%n]; v != 0 {
		return v
	}
	return pack(tagFolded, uint64(r.handle)+uint64((i-r.from)/n))
}

// get returns the value with a number, or the zero Value.
func (t *memo) get(i uint32) Value {
	if p := int(i / memoPage); p < len(t.pages) && t.pages[p] != nil && t.pages[p][i%memoPage] != 0 {
		return t.pages[p][i%memoPage]
	}
	return t.find(i)
}

// find is get for numbers that are not in a page.
func (t *memo) find(i uint32) Value {
	n := int64(i)
	if n < t.length {
		if t.pages[n/memoPage] == nil {
			k := sort.Search(len(t.runs), func(k int) bool { return t.runs[k].to > n })
			return t.runs[k].at(n)
		}
	} else if n < t.open.to {
		return t.open.at(n)
	} else if k := n - max(t.open.to, t.length); k < int64(len(t.tail)) {
		return t.tail[k]
	}
	return t.sparse[i]
}

// put stores v with a number and adds the cost to *memory.
func (t *memo) put(i uint32, v Value, memory *int64) {
	n := int64(i)
	if t.open.each != nil && n == t.open.to+int64(len(t.tail)) && len(t.tail) < len(t.open.each) {
		t.tail = append(t.tail, v)
		t.count++
		return
	}
	t.close(memory)
	if n == t.length && t.sparse == nil { // as Python writes it
		t.push(v, memory)
		t.count++
		return
	}
	if t.get(i) == 0 {
		t.count++
	}
	if n >= t.length && n > 2*t.count+memoGap {
		if t.sparse == nil {
			t.sparse = map[uint32]Value{}
		}
		t.sparse[i] = v
		*memory += costMemoSparse
		return
	}
	for n >= t.length {
		t.push(0, memory)
	}
	if t.pages[n/memoPage] == nil {
		t.restore(n/memoPage, memory)
	}
	t.pages[n/memoPage][n%memoPage] = v
	delete(t.sparse, i)
}

// push stores the value of the next number.
func (t *memo) push(v Value, memory *int64) {
	if t.length%memoPage == 0 {
		t.pages = append(t.pages, new([memoPage]Value))
		*memory += memoPage*costValue + costMemoPage
	}
	t.pages[t.length/memoPage][t.length%memoPage] = v
	t.length++
}

// restore stores a page that a run has.
func (t *memo) restore(page int64, memory *int64) {
	values := new([memoPage]Value)
	for i := range values {
		values[i] = t.get(uint32(page*memoPage + int64(i)))
	}
	t.pages[page] = values
	*memory += memoPage * costValue
}

// next returns the number that follows all others, if they have no gaps.
func (t *memo) next() int64 { return max(t.length, t.open.to) + int64(len(t.tail)) }

// repeat adds the numbers of a repeated dict. It returns false for a memo in which the next number is not the count.
func (t *memo) repeat(handle uint32, each []Value, memory *int64) bool {
	n := int64(len(each))
	if t.sparse != nil || t.next() != t.count {
		return false
	}
	if !t.continues(handle, each) {
		t.close(memory)
		t.open = memoRun{from: t.length, to: t.length, handle: handle, each: each}
	}
	t.open.to += n
	t.count += n
	return true
}

// continues reports whether a dict is the next one of the open run.
func (t *memo) continues(handle uint32, each []Value) bool {
	r := &t.open
	return len(t.tail) == 0 && len(r.each) == len(each) && len(each) > 0 && &r.each[0] == &each[0] &&
		r.handle+uint32((r.to-r.from)/int64(len(each))) == handle
}

// absorb makes a dict that was read opcode by opcode part of the open run, if its numbers are those of the run.
func (t *memo) absorb(dict Value, handle uint32) bool {
	r := &t.open
	n := len(r.each)
	if n == 0 || len(t.tail) != n || r.handle+uint32((r.to-r.from)/int64(n)) != handle {
		return false
	}
	for i, v := range t.tail {
		if want := r.each[i]; v != want && (want != 0 || v != dict) {
			return false
		}
	}
	r.to += int64(n)
	t.tail = t.tail[:0]
	return true
}

// close ends the open run.
func (t *memo) close(memory *int64) {
	r, kept := t.open, false
	t.open = memoRun{}
	for r.each != nil && t.length < r.to {
		if t.length%memoPage == 0 && r.to-t.length >= memoPage {
			t.pages = append(t.pages, nil)
			*memory += costMemoPage
			t.length += memoPage
			kept = true
			continue
		}
		t.push(r.at(t.length), memory)
	}
	if kept {
		t.runs = append(t.runs, r)
		*memory += costMemoRun
	}
	for _, v := range t.tail {
		t.push(v, memory)
	}
	t.tail = t.tail[:0]
}
