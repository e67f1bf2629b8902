package backendtest

import (
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

func checkSort(s *suite) {
	for _, d := range allTypes {
		for round := range 2 * (s.rounds + 1) {
			shape, axis := s.lines(round)
			descending := round%2 == 1
			t := s.trial("sort of %v, descending %v", d, descending)
			s.ordered(t, d, shape, axis, shape[axis], descending,
				func(q backend.Queue, values, indices *backend.Array, x backend.Array) error {
					return s.rig.Backend.Sort(q, descending, values, indices, x, axis)
				})
		}
	}
}

func checkTopK(s *suite) {
	for _, d := range allTypes {
		for round := range 2 * (s.rounds + 1) {
			shape, axis := s.lines(round)
			least := round%2 == 1
			k := min(shape[axis], pick(s.rng, 0, 1, 1, 2, 5, 8, 32, 33, 1000, shape[axis]))
			t := s.trial("topk of %v, least %v", d, least)
			s.ordered(t, d, shape, axis, k, !least, func(q backend.Queue, values, indices *backend.Array,
				x backend.Array,
			) error {
				return s.rig.Backend.TopK(q, least, values, indices, x, axis)
			})
		}
	}
}

// lines returns a shape and an axis of it.
func (s *suite) lines(round int) (shape []int, axis int) {
	shape = s.shapeOf(1+s.rng.IntN(4), 4000)
	if round < 2 {
		shape = []int{pick(s.rng, 4097, 10_000)}
	}
	return shape, s.rng.IntN(len(shape))
}

// ordered tries a call that puts the first k elements of each line, in order, into values, and where they were into
// indices; one of the two may be nil.
func (s *suite) ordered(
	t *trial, d dtype.DType, shape []int, axis, k int, descending bool,
	call func(q backend.Queue, values, indices *backend.Array, x backend.Array) error,
) {
	s.Helper()
	x := t.input("x", d, shape, pick(s.rng, s.anything(d), s.anything(d), s.uniform(d, 0, 9), s.sparse(d)))
	best, result := sorted(x, axis, k, descending), with(shape, axis, k)
	var values, indices *backend.Array
	which := s.rng.IntN(4) // mostly both
	if which != 0 {
		values = &t.output("values", d, result, moved(d, func(i int) []byte { return x.at(best[i].element) })).array
	}
	if which != 1 {
		indices = &t.output("indices", dtype.Int64, result, integers(dtype.Int64, func(i int) int64 {
			return int64(best[i].place)
		})).array
	}
	t.call(func(q backend.Queue) error { return call(q, values, indices, x.array) })
}

// A spot is where an element of a sorted line came from: its place in the line, and its number in row-major order.
type spot struct{ place, element int }

// sorted returns, for each element of the first k of each line in order, in row-major order, where it came from.
func sorted(x *operand, axis, k int, descending bool) []spot {
	shape, d := x.layout.shape, x.array.DType
	result := with(shape, axis, k)
	all, into := groups(shape, along(axis)), groups(result, along(axis))
	best := make([]spot, elements(result))
	for g, line := range all {
		order := make([]spot, len(line))
		for place, e := range line {
			order[place] = spot{place, e}
		}
		slices.SortStableFunc(order, func(a, b spot) int {
			c := compareElements(d, x.at(a.element), x.at(b.element))
			if descending {
				return -c
			}
			return c
		})
		for place, i := range into[g] {
			best[i] = order[place]
		}
	}
	return best
}

// moved wants the bytes that want returns, or of a NaN any NaN: sorting may go by way of other bits.
func moved(d dtype.DType, want func(i int) []byte) verdict {
	if !d.IsFloat() {
		return exactly(d, want)
	}
	return near(d, func(i int) answer { return exact(float(d, want(i))) })
}
