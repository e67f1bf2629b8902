package host

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// What planning makes of axes: lengths, and strides of two operands.
func TestPlanAxes(t *testing.T) {
	type want struct {
		lengths, first, second []int
	}
	for _, c := range []struct {
		name                 string
		shape, first, second []int
		want
	}{
		{"contiguous", []int{2, 3, 4}, []int{12, 4, 1}, []int{12, 4, 1}, want{[]int{24}, []int{1}, []int{1}}},
		{"no axes", nil, nil, nil, want{}},
		{"length 1", []int{1, 5, 1}, []int{99, 1, 0}, []int{7, 2, 7}, want{[]int{5}, []int{1}, []int{2}}},
		{"both transposed", []int{3, 4}, []int{1, 3}, []int{1, 3}, want{[]int{12}, []int{1}, []int{1}}},
		{"second transposed", []int{3, 4}, []int{4, 1}, []int{1, 3}, want{[]int{3, 4}, []int{4, 1}, []int{1, 3}}},
		{"broadcast rows", []int{3, 4}, []int{4, 1}, []int{0, 1}, want{[]int{3, 4}, []int{4, 1}, []int{0, 1}}},
		{"broadcast all", []int{3, 4}, []int{4, 1}, []int{0, 0}, want{[]int{12}, []int{1}, []int{0}}},
		{"turned", []int{3, 4}, []int{-4, -1}, []int{-4, -1}, want{[]int{12}, []int{1}, []int{1}}},
		{"gap", []int{3, 4}, []int{5, 1}, []int{5, 1}, want{[]int{3, 4}, []int{5, 1}, []int{5, 1}}},
		{"partly merged", []int{2, 3, 4}, []int{100, 4, 1}, []int{12, 4, 1}, want{[]int{2, 12}, []int{100, 1}, []int{12, 1}}},
	} {
		a := out(backend.Array{DType: dtype.Int8, Shape: c.shape, Strides: c.first})
		b := in(backend.Array{DType: dtype.Int8, Shape: c.shape, Strides: c.second})
		p := anyOrder(c.shape, a, b)
		got := want{p.lengths[:p.rank], p.strides[0][:p.rank], p.strides[1][:p.rank]}
		if !slices.Equal(got.lengths, c.lengths) || !slices.Equal(got.first, c.want.first) || !slices.Equal(got.second, c.want.second) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A plan in any order visits each element of both operands once, and the same one of both; in row-major order, in that.
func TestPlanVisitsAll(t *testing.T) {
	s := seed(t)
	r := rand.New(rand.NewPCG(s, 1))
	for range 2000 {
		var shape, strides [2][]int
		n, rank := 1, r.IntN(5)
		for k := range shape {
			shape[k], strides[k] = make([]int, rank), make([]int, rank)
		}
		for i := range rank {
			shape[0][i] = 1 + r.IntN(4)
			n *= shape[0][i]
		}
		for k := range strides {
			step := 1
			for _, i := range r.Perm(rank) {
				strides[k][i] = step
				step *= shape[0][i] + r.IntN(2)
				if r.IntN(3) == 0 {
					strides[k][i] = -strides[k][i]
				}
			}
		}
		a := out(backend.Array{DType: dtype.Int8, Shape: shape[0], Strides: strides[0]})
		b := in(backend.Array{DType: dtype.Int8, Shape: shape[0], Strides: strides[1]})
		// Where each element is in both, by hand.
		where := map[int]int{}
		var order []int
		for e := range n {
			x, y := a.first, b.first
			for i, rest := rank-1, e; i >= 0; i-- {
				x += rest % shape[0][i] * strides[0][i]
				y += rest % shape[0][i] * strides[1][i]
				rest /= shape[0][i]
			}
			where[x] = y
			order = append(order, x)
		}
		for name, p := range map[string]plan{"any": anyOrder(shape[0], a, b), "row-major": planOf(shape[0], nil, a, b)} {
			if p.n != n {
				t.Fatalf("%s order of %v: %d elements, want %d", name, shape[0], p.n, n)
			}
			ca, cb := cursorOf(&p, 0), cursorOf(&p, 1)
			start := r.IntN(n)
			seen := map[int]bool{}
			for e := range n {
				e = (start + e) % n // so that it seeks, and goes on from there
				ca.seek(e)
				cb.seek(e)
				x, _ := ca.run(1)
				y, _ := cb.run(1)
				if want, ok := where[x]; !ok || want != y || seen[x] {
					t.Fatalf("%s order of %v, strides %v: element %d is at %d and %d, want %d", name, shape[0], strides, e, x, y, want)
				}
				if name == "row-major" && order[e] != x {
					t.Fatalf("%v, strides %v: element %d is at %d, want %d", shape[0], strides, e, x, order[e])
				}
				seen[x] = true
			}
		}
	}
}
