package backendtest

import (
	"context"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// A model is the plainest backend: it waits for the stream, computes with the suite's own references, and writes the
// result. It is what mutants are made of, and shows that the suite asks for nothing that cannot be done.
type model struct {
	mu     sync.Mutex
	failed *backend.IndexError
}

func (m *model) Name() string { return "model" }
func (m *model) Close() error { return nil }

func (m *model) Failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		return nil
	}
	err := m.failed
	m.failed = nil
	return err
}

func (m *model) fail(op string, index int64, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = &backend.IndexError{Op: op, Index: index, Size: int64(size)}
	}
}

// extent is how many bytes from the start of its memory an array reaches.
func extent(a backend.Array) int {
	last := -1
	layoutOf(a).walk(func(_ int, _ []int, place int) { last = max(last, place) })
	return (last + 1) * a.DType.Size()
}

func layoutOf(a backend.Array) layout {
	return layout{shape: a.Shape, strides: a.Strides, offset: a.Offset}
}

// memory returns what an array's memory holds.
func memory(q backend.Queue, a backend.Array) []byte {
	b := make([]byte, extent(a))
	err := q.Stream.Sync(context.Background())
	switch {
	case err != nil:
	case a.Ptr == 0:
		copy(b, a.Bytes)
	default:
		err = q.Stream.CopyOut(b, a.Ptr)
	}
	if err != nil {
		panic(err)
	}
	return b
}

func load(q backend.Queue, a backend.Array) *operand {
	o := &operand{layout: layoutOf(a), array: a}
	o.elements = o.read(memory(q, a), a.DType.Size())
	return o
}

// store writes the elements that make makes.
func store(q backend.Queue, a backend.Array, make maker) error {
	size, b := a.DType.Size(), memory(q, a)
	layoutOf(a).walk(func(i int, _ []int, place int) { make(i, b[place*size:][:size]) })
	if a.Ptr == 0 {
		copy(a.Bytes, b)
		return nil
	}
	return q.Stream.CopyIn(a.Ptr, b)
}

// answers makes elements of answers.
func answers(d dtype.DType, f func(i int) answer) maker {
	return func(i int, b []byte) { putFloat(d, b, f(i).value) }
}

func numbers(f func(i int) int64) maker {
	return func(i int, b []byte) { putBits(b, uint64(f(i))) }
}

func refuse(ok bool) error {
	if ok {
		return nil
	}
	return &driver.Error{Call: "model", Code: driver.ErrUnsupported}
}

func (m *model) Fill(q backend.Queue, dst backend.Array, value dtype.Scalar) error {
	return store(q, dst, func(_ int, b []byte) { value.Put(b, dst.DType) })
}

func (m *model) Copy(q backend.Queue, dst, src backend.Array) error {
	x := load(q, src)
	return store(q, dst, func(i int, b []byte) { copy(b, convert(dst.DType, src.DType, x.at(i))) })
}

func (m *model) Arange(q backend.Queue, dst backend.Array, start, step dtype.Scalar) error {
	if d := dst.DType; d.IsFloat() {
		return store(q, dst, answers(d, func(i int) answer {
			return exact(computed(d).round(start.Float64() + float64(float64(i)*step.Float64())))
		}))
	}
	return store(q, dst, numbers(func(i int) int64 { return start.Int64() + int64(i)*step.Int64() }))
}

func (m *model) Random(q backend.Queue, dst backend.Array, r backend.Random) error {
	d := dst.DType
	switch {
	case r.Distribution == backend.Integers:
		return store(q, dst, numbers(func(i int) int64 { return randomInteger(r, i) }))
	case slices.Contains(floatTypes, d):
		return store(q, dst, answers(d, func(i int) answer { return randomFloat(d, r, i) }))
	}
	return refuse(false)
}

func (m *model) Unary(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) error {
	d := x.DType
	if !slices.Contains(unaryTypes(op), d) {
		return refuse(false)
	}
	return store(q, dst, derive(op.Predicate() || !d.IsFloat(), dst.DType, unaryVerdictOf(op, d, load(q, x))))
}

func (m *model) Binary(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) error {
	d := x.DType
	if !slices.Contains(binaryTypes(op), d) {
		return refuse(false)
	}
	a, b := load(q, x), load(q, y)
	switch {
	case op.Predicate() || d == dtype.Bool:
		judge := binaryVerdict(op, d, a, b)
		return store(q, dst, numbers(func(i int) int64 { return truth(judge(i, []byte{1}) == "") }))
	case d.IsFloat():
		return store(q, dst, answers(d, func(i int) answer { return binaryFloat(op, d, a.float(i), b.float(i)) }))
	}
	return store(q, dst, numbers(func(i int) int64 { return binaryInteger(op, d, a.integer(i), b.integer(i)) }))
}

// unaryVerdictOf returns op of each element of x as an answer or as an integer.
func unaryVerdictOf(op backend.UnaryOp, d dtype.DType, x *operand) func(i int) (answer, int64) {
	if d.IsFloat() && !op.Predicate() {
		return func(i int) (answer, int64) { return unaryFloat(op, d, x.float(i)), 0 }
	}
	if op.Predicate() || d == dtype.Bool {
		judge := unaryVerdict(op, d, x.at)
		return func(i int) (answer, int64) { return answer{}, truth(judge(i, []byte{1}) == "") }
	}
	return func(i int) (answer, int64) { return answer{}, unaryInteger(op, d, x.integer(i)) }
}

func derive(integers bool, d dtype.DType, f func(i int) (answer, int64)) maker {
	if integers {
		return numbers(func(i int) int64 { _, v := f(i); return v })
	}
	return answers(d, func(i int) answer { a, _ := f(i); return a })
}

func (m *model) Where(q backend.Queue, dst, cond, x, y backend.Array) error {
	c, a, b := load(q, cond), load(q, x), load(q, y)
	return store(q, dst, func(i int, out []byte) {
		copy(out, b.at(i))
		if c.at(i)[0] != 0 {
			copy(out, a.at(i))
		}
	})
}

func (m *model) Reduce(q backend.Queue, op backend.ReduceOp, dst, x backend.Array) error {
	d := x.DType
	if types, _ := reduceTypes(op); !slices.Contains(types, d) {
		return refuse(false)
	}
	all, a := groups(x.Shape, func(k int) bool { return dst.Shape[k] == 1 }), load(q, x)
	if dst.DType.IsFloat() {
		return store(q, dst, answers(d, func(i int) answer { return reduceFloats(op, d, a, all[i]) }))
	}
	return store(q, dst, numbers(func(i int) int64 { return reduceIntegers(op, d, a, all[i]) }))
}

func (m *model) ArgReduce(q backend.Queue, least bool, dst, x backend.Array, axis int) error {
	a, all := load(q, x), groups(x.Shape, along(axis))
	return store(q, dst, numbers(func(i int) int64 {
		best := 0
		for k, e := range all[i] {
			b := all[i][best]
			if beats(x.DType, least, compareElements(x.DType, a.at(e), a.at(b)), a.at(e), a.at(b)) {
				best = k
			}
		}
		return int64(best)
	}))
}

func (m *model) Softmax(q backend.Queue, log bool, dst, x backend.Array, axis int) error {
	if !slices.Contains(floatTypes, x.DType) {
		return refuse(false)
	}
	a := load(q, x)
	want := softmaxAnswers(log, a, axis)
	return store(q, dst, answers(x.DType, func(i int) answer { return want[i] }))
}

func (m *model) Norm(q backend.Queue, rms bool, dst, x backend.Array, n int, weight, bias *backend.Array, eps float64) error {
	if !slices.Contains(floatTypes, x.DType) {
		return refuse(false)
	}
	var w, b *operand
	if weight != nil {
		w = load(q, *weight)
	}
	if bias != nil {
		b = load(q, *bias)
	}
	want := normAnswers(rms, load(q, x), n, w, b, eps)
	return store(q, dst, answers(x.DType, func(i int) answer { return want[i] }))
}

func (m *model) Gather(q backend.Queue, dst, x, index backend.Array, axis int) error {
	a, by := load(q, x), load(q, index)
	return store(q, dst, func(i int, b []byte) {
		clear(b)
		if at := by.integer(i); at < 0 || at >= int64(x.Shape[axis]) {
			m.fail("gather", at, x.Shape[axis])
		} else {
			copy(b, a.at(place(x.Shape, indexOf(dst.Shape, i), axis, int(at))))
		}
	})
}

func (m *model) IndexSelect(q backend.Queue, dst, x, index backend.Array, axis int) error {
	a, by := load(q, x), load(q, index)
	return store(q, dst, func(i int, b []byte) {
		clear(b)
		spot := indexOf(dst.Shape, i)
		if at := by.integer(spot[axis]); at < 0 || at >= int64(x.Shape[axis]) {
			m.fail("index_select", at, x.Shape[axis])
		} else {
			copy(b, a.at(place(x.Shape, spot, axis, int(at))))
		}
	})
}

func (m *model) ScatterAdd(q backend.Queue, dst, index, src backend.Array, axis int) error {
	d, into, by, from := dst.DType, load(q, dst), load(q, index), load(q, src)
	for i := range elements(src.Shape) {
		at := by.integer(i)
		if at < 0 || at >= int64(dst.Shape[axis]) {
			m.fail("scatter_add", at, dst.Shape[axis])
			continue
		}
		p := place(dst.Shape, indexOf(src.Shape, i), axis, int(at))
		if d.IsFloat() {
			putFloat(d, into.at(p), computed(d).round(into.float(p)+from.float(i)))
		} else {
			putBits(into.at(p), uint64(into.integer(p)+from.integer(i)))
		}
	}
	return store(q, dst, func(i int, b []byte) { copy(b, into.at(i)) })
}

func (m *model) Sort(q backend.Queue, descending bool, values, indices *backend.Array, x backend.Array, axis int) error {
	return m.TopK(q, !descending, values, indices, x, axis)
}

// TopK sorts, and uses a little scratch, so that what becomes of it can be tested.
func (m *model) TopK(q backend.Queue, least bool, values, indices *backend.Array, x backend.Array, axis int) error {
	if !slices.Contains(allTypes, x.DType) {
		return refuse(false)
	}
	block, err := q.Scratch.Alloc(q.Stream, 64)
	if err != nil {
		return err
	}
	defer q.Scratch.Free(block)
	a := load(q, x)
	for _, out := range []*backend.Array{values, indices} {
		if out == nil {
			continue
		}
		best := sorted(a, axis, out.Shape[axis], !least)
		err := store(q, *out, func(i int, b []byte) {
			if out == indices {
				putBits(b, uint64(best[i].place))
			} else {
				copy(b, a.at(best[i].element))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *model) MatMul(q backend.Queue, dst, a, b backend.Array) error {
	d, x, y := dst.DType, load(q, a), load(q, b)
	if !slices.Contains(numberTypes, d) {
		return refuse(false)
	}
	rank := len(dst.Shape)
	rows, columns, n := dst.Shape[rank-2], dst.Shape[rank-1], a.Shape[rank-1]
	return store(q, dst, func(i int, out []byte) {
		column, row, product := i%columns, i/columns%rows, i/columns/rows
		total, whole := 0.0, int64(0)
		for j := range n {
			p, r := (product*rows+row)*n+j, (product*n+j)*columns+column
			if d.IsFloat() {
				total += x.float(p) * y.float(r)
			} else {
				whole += x.integer(p) * y.integer(r)
			}
		}
		if d.IsFloat() {
			putFloat(d, out, total)
		} else {
			putBits(out, uint64(whole))
		}
	})
}

var _ backend.Backend = (*model)(nil)
