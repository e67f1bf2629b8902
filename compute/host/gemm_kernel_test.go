package host

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// randomFor returns a source of random numbers that the seed determines.
func randomFor(t testing.TB) *rand.Rand { return rand.New(rand.NewPCG(seed(t), 0)) }

// Every set of kernels that the processor can run computes what the definition says, for every depth and with edges.
func TestKernels(t *testing.T) {
	testKernels[float32](t)
	testKernels[float64](t)
	testKernels[int8](t)
	testKernels[uint64](t)
}

func testKernels[T number](t *testing.T) {
	r := randomFor(t)
	number := func() T { return T(float64(r.IntN(241)) / 8) } // sums of a hundred products are exact in float32
	fill := func(x []T) []T {
		for i := range x {
			x[i] = number()
		}
		return x
	}
	for _, set := range kernelSets[T]() {
		k, mr, nr := &set, set.tile.mr, set.tile.nr
		name := fmt.Sprintf("%T, %dx%d", *new(T), mr, nr)
		for depth := 1; depth < 40; depth++ {
			a, b := fill(make([]T, depth*mr)), fill(make([]T, depth*nr))
			ldc := nr + r.IntN(3)
			for _, add := range []bool{false, true} {
				c := fill(make([]T, mr*ldc))
				want := append([]T(nil), c...)
				for i := range mr {
					for j := range nr {
						sum := T(0)
						if add {
							sum = c[i*ldc+j]
						}
						for p := range depth {
							sum += a[p*mr+i] * b[p*nr+j]
						}
						want[i*ldc+j] = sum
					}
				}
				k.tile.run(depth, &a[0], &b[0], &c[0], ldc, add)
				compareNumbers(t, fmt.Sprintf("%s tile, k %d, add %v", name, depth, add), c, want)
			}
		}
		for n := range 101 {
			at := r.IntN(8)
			x, y := fill(make([]T, at+n))[at:], fill(make([]T, n))
			sum := T(0)
			for i := range x {
				sum += x[i] * y[i]
			}
			compareNumbers(t, fmt.Sprintf("%s dot of %d", name, n), []T{k.dot(x, y)}, []T{sum})
			rows := [4][]T{fill(make([]T, n)), fill(make([]T, n)), fill(make([]T, n)), x}
			by := [4]T{number(), number(), number(), number()}
			want := append([]T(nil), y...)
			for i := range want {
				for q := range rows {
					want[i] += rows[q][i] * by[q]
				}
			}
			k.axpy(y, &rows, &by)
			compareNumbers(t, fmt.Sprintf("%s axpy of %d", name, n), y, want)
		}
	}
}

func compareNumbers[T number](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
