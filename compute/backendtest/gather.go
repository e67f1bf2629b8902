package backendtest

import (
	"math"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

var indexTypes = []dtype.DType{dtype.Int64, dtype.Int32}

// indices makes indices below n, and now and then, if wrong says so, others, of which it keeps a list.
func (s *suite) indices(t *trial, d dtype.DType, op string, n int, wrong bool) maker {
	outside := []int64{-1, int64(n), int64(n) + 1, -int64(n) - 1, math.MaxInt32, math.MinInt32}
	if d == dtype.Int64 {
		outside = append(outside, math.MaxInt64, math.MinInt64, 1<<32, 1<<32+int64(n)/2, -1<<32)
	}
	return func(i int, b []byte) {
		if n > 0 && (!wrong || !s.oneIn(9)) {
			putBits(b, uint64(s.rng.IntN(n)))
			return
		}
		v := pick(s.rng, outside...)
		putBits(b, uint64(v))
	}
}

// expectWrong tells a trial which of the indices it will be told of.
func (t *trial) expectWrong(op string, n int, index *operand) {
	for i := range elements(index.layout.shape) {
		if v := index.integer(i); v < 0 || v >= int64(n) {
			t.indices = append(t.indices, v)
			t.wrong = &backend.IndexError{Op: op, Index: v, Size: int64(n)}
		}
	}
}

// larger returns a shape that is at least as long as shape along every axis but one, which has length n.
func (s *suite) larger(shape []int, axis, n int) []int {
	out := with(shape, axis, n)
	for k := range out {
		if k != axis && s.oneIn(3) && elements(out) < 4000 {
			out[k] += s.rng.IntN(3)
		}
	}
	return out
}

// place returns the row-major number, in shape, of the element with these indices, but at along axis.
func place(shape, index []int, axis, at int) int {
	return rowMajor(shape, with(index, axis, at))
}

// indexOf returns the indices of the element with the row-major number i.
func indexOf(shape []int, i int) []int {
	index := make([]int, len(shape))
	for k := len(shape) - 1; k >= 0; k-- {
		index[k] = i % shape[k]
		i /= shape[k]
	}
	return index
}

// lengthOfAxis is a length to index into: short, long and, rarely, none.
func (s *suite) lengthOfAxis(wrong bool) int {
	if wrong && s.oneIn(8) {
		return 0
	}
	return pick(s.rng, 1, 2, 3, 7, 33, 257, 300)
}

func checkGather(s *suite) {
	for _, d := range dtype.All() {
		for round := range s.rounds + 1 {
			wrong := round == 0
			shape := s.shapeOf(1+s.rng.IntN(4), 1500)
			axis, n, indexType := s.rng.IntN(len(shape)), s.lengthOfAxis(wrong), pick(s.rng, indexTypes...)
			t := s.trial("gather of %v by %v", d, indexType)
			index := t.input("index", indexType, shape, s.indices(t, indexType, "gather", n, wrong))
			from := s.larger(shape, axis, n)
			x := t.input("x", d, from, s.anything(d))
			zero := make([]byte, d.Size())
			dst := t.output("dst", d, shape, exactly(d, func(i int) []byte {
				at := index.integer(i)
				if at < 0 || at >= int64(n) {
					return zero
				}
				return x.at(place(from, indexOf(shape, i), axis, int(at)))
			}))
			t.expectWrong("gather", n, index)
			t.call(func(q backend.Queue) error {
				return s.rig.Backend.Gather(q, dst.array, x.array, index.array, axis)
			})
		}
	}
}

func checkIndexSelect(s *suite) {
	for _, d := range dtype.All() {
		for round := range s.rounds + 1 {
			wrong := round == 0
			shape := s.shapeOf(1+s.rng.IntN(4), 1500)
			axis, n, indexType := s.rng.IntN(len(shape)), s.lengthOfAxis(wrong), pick(s.rng, indexTypes...)
			t := s.trial("index_select of %v by %v", d, indexType)
			index := t.input("index", indexType, shape[axis:axis+1], s.indices(t, indexType, "index_select", n, wrong))
			from := with(shape, axis, n)
			x := t.input("x", d, from, s.anything(d))
			zero := make([]byte, d.Size())
			dst := t.output("dst", d, shape, exactly(d, func(i int) []byte {
				at := indexOf(shape, i)
				v := index.integer(at[axis])
				if v < 0 || v >= int64(n) {
					return zero
				}
				return x.at(place(from, at, axis, int(v)))
			}))
			if elements(shape) > 0 {
				t.expectWrong("index_select", n, index)
			}
			t.call(func(q backend.Queue) error {
				return s.rig.Backend.IndexSelect(q, dst.array, x.array, index.array, axis)
			})
		}
	}
}

func checkScatterAdd(s *suite) {
	for _, d := range numberTypes {
		for round := range 2 * (s.rounds + 1) {
			wrong := round == 0
			shape := s.shapeOf(1+s.rng.IntN(4), 3000)
			axis, n, indexType := s.rng.IntN(len(shape)), s.lengthOfAxis(wrong), pick(s.rng, indexTypes...)
			t := s.trial("scatter_add of %v by %v", d, indexType)
			index := t.input("index", indexType, shape, s.indices(t, indexType, "scatter_add", n, wrong))
			make := s.anything(d)
			if d.IsFloat() {
				make = s.withSpecials(d, round == 1, s.uniform(d, -3, 3))
			}
			src := t.input("src", d, shape, make)
			into := s.larger(shape, axis, n)
			dst := t.add("dst", d, s.layout(into, false), make)
			all := map[int][]int{}
			for i := range elements(shape) {
				if at := index.integer(i); at >= 0 && at < int64(n) {
					p := place(into, indexOf(shape, i), axis, int(at))
					all[p] = append(all[p], i)
				}
			}
			if d.IsFloat() {
				dst.judge = near(d, func(i int) answer { return scattered(d, dst.float(i), src, all[i]) })
			} else {
				dst.judge = integers(d, func(i int) int64 {
					v := dst.integer(i)
					for _, k := range all[i] {
						v += src.integer(k)
					}
					return v
				})
			}
			t.expectWrong("scatter_add", n, index)
			t.call(func(q backend.Queue) error {
				return s.rig.Backend.ScatterAdd(q, dst.array, index.array, src.array, axis)
			})
		}
	}
}

// scattered is a float to which some are added in any order, each sum rounded to the type.
func scattered(d dtype.DType, v float64, src *operand, from []int) answer {
	absolute := math.Abs(v)
	for _, k := range from {
		v += src.float(k)
		absolute += math.Abs(src.float(k))
	}
	switch len(from) {
	case 0:
		return exact(v)
	case 1:
		return answer{value: computed(d).round(v), others: []float64{0 * v}}
	}
	return withTolerance(v, float64(len(from))*formats[d].epsilon()*absolute)
}
