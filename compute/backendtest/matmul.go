package backendtest

import (
	"math"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

var matrixLengths = []int{1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129, 257}

func checkMatMul(s *suite) {
	for _, d := range numberTypes {
		for round := range 3*s.rounds + 6 {
			m, n, k := pick(s.rng, matrixLengths...), pick(s.rng, matrixLengths...), pick(s.rng, matrixLengths...)
			var batch []int
			switch round {
			case 0:
				k = 0
			case 1: // long sums
				m, n, k = 1+s.rng.IntN(4), 1+s.rng.IntN(4), pick(s.rng, 1025, 4097, 20_000)
			case 2: // a matrix with a vector, from either side
				m, n, k = 1, pick(s.rng, 255, 257, 1025), 1+s.rng.IntN(130)
				if s.oneIn(2) {
					m, n = n, m
				}
			case 3:
				batch = []int{2, 3}
			case 4:
				m, n, k = pick(s.rng, 0, 3), pick(s.rng, 0, 3), pick(s.rng, 0, 3)
			case 6: // short sums, which allow no error that a long one may have
				m, n, k = 8, 9, 1+s.rng.IntN(3)
			default:
				if s.oneIn(2) {
					batch = s.shapeOf(1+s.rng.IntN(3), 6)
				}
			}
			for m*n*k*max(1, elements(batch)) > 120_000 {
				m, n, k = (m+1)/2, (n+1)/2, (k*3+3)/4
			}
			make := s.anything(d)
			if d.IsFloat() {
				make = s.withSpecials(d, round == 5, s.uniform(d, -2, 2))
			}
			s.matmul(d, batch, m, n, k, make)
		}
	}
}

func (s *suite) matmul(d dtype.DType, batch []int, m, n, k int, make maker) {
	s.Helper()
	t := s.trial("matmul of %v", d)
	shape := func(rows, columns int) []int { return append(append([]int{}, batch...), rows, columns) }
	a := t.input("a", d, shape(m, k), make)
	b := t.input("b", d, shape(k, n), make)
	// The elements that are multiplied for element i of the result.
	term := func(i, j int) (int, int) {
		column, row, product := i%n, i/n%m, i/n/m
		return (product*m+row)*k + j, (product*k+j)*n + column
	}
	dst := t.output("dst", d, shape(m, n), nil)
	if d.IsFloat() {
		c, fa, fb := computed(d), decoded(a), decoded(b)
		dst.judge = near(d, func(i int) answer {
			sum, absolute := 0.0, 0.0
			for j := range k {
				x, y := term(i, j)
				sum += fa[x] * fb[y]
				absolute += math.Abs(fa[x] * fb[y])
			}
			return withTolerance(sum, float64(k+2)*c.epsilon()*absolute)
		})
	} else {
		dst.judge = integers(d, func(i int) int64 {
			var sum int64
			for j := range k {
				x, y := term(i, j)
				sum += a.integer(x) * b.integer(y)
			}
			return sum
		})
	}
	t.call(func(q backend.Queue) error { return s.rig.Backend.MatMul(q, dst.array, a.array, b.array) })
}

// decoded returns an operand's floats.
func decoded(o *operand) []float64 {
	all := make([]float64, elements(o.layout.shape))
	for i := range all {
		all[i] = o.float(i)
	}
	return all
}
