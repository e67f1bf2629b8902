package pickle

// A memo stores values by number. Python numbers them from 0 without gaps, so they are in a slice. Numbers far beyond
// the count, which occur only in unusual files, are in a map, so that a high number does not allocate memory for the
// numbers below it.
type memo struct {
	dense  []Value // zero where no value is stored
	sparse map[uint32]Value
	count  int64 // numbers in use
}

const (
	memoGap        = 1024 // a number up to twice the count plus this is dense
	costMemoSparse = 48
)

// get returns the value with a number, or the zero Value.
func (t *memo) get(i uint32) Value {
	if int64(i) < int64(len(t.dense)) {
		if v := t.dense[i]; v != 0 {
			return v
		}
	}
	return t.sparse[i]
}

// put stores v with a number and adds the cost to *memory.
func (t *memo) put(i uint32, v Value, memory *int64) {
	if int64(i) == int64(len(t.dense)) && t.sparse == nil { // as Python writes it
		if len(t.dense) == cap(t.dense) {
			t.dense = grow(t.dense, memory, costValue)
		}
		t.dense = append(t.dense, v)
		t.count++
		return
	}
	if t.get(i) == 0 {
		t.count++
	}
	if int64(i) >= int64(len(t.dense)) && int64(i) > 2*t.count+memoGap {
		if t.sparse == nil {
			t.sparse = map[uint32]Value{}
		}
		t.sparse[i] = v
		*memory += costMemoSparse
		return
	}
	for int64(i) >= int64(len(t.dense)) {
		if len(t.dense) == cap(t.dense) {
			t.dense = grow(t.dense, memory, costValue)
		}
		t.dense = append(t.dense, 0)
	}
	t.dense[i] = v
	delete(t.sparse, i)
}
