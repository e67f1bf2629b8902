package host

import (
	"fmt"
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

var edges = []float64{
	0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat64, 0x1p-126, 0x1p-1022, math.MaxFloat64, 3, 1.0 / 3,
}

// vecBinary agrees with Go to the bit on random and edge values, for all small lengths at all alignments, in place
// too, and touches nothing else.
func TestVecBinary(t *testing.T) {
	testVecBinary[float32](t)
	testVecBinary[float64](t)
}

func testVecBinary[T float](t *testing.T) {
	r := randomFor(t)
	value := func() T {
		if r.IntN(3) == 0 {
			return T(edges[r.IntN(len(edges))])
		}
		return T(r.NormFloat64())
	}
	const guard = 12345
	for _, op := range []backend.BinaryOp{
		backend.Add, backend.Sub, backend.Mul, backend.Div, backend.Maximum, backend.Minimum,
	} {
		for n := range 101 {
			for form := range 3 { // elsewhere, in place of x, in place of y
				at, total := r.IntN(9), r.IntN(2)*streamSize
				dst, x, y := make([]T, at+n+9), make([]T, r.IntN(9)+n), make([]T, r.IntN(9)+n)
				x, y = x[len(x)-n:], y[len(y)-n:]
				for i := range n {
					x[i], y[i] = value(), value()
				}
				for i := range dst {
					dst[i] = guard
				}
				to := dst[at : at+n]
				switch form {
				case 1:
					copy(to, x)
					x = to
				case 2:
					copy(to, y)
					y = to
				}
				want := make([]T, n)
				plainBinary(op, want, x, y)
				vecBinary(op, to, x, y, total)
				for i, v := range to {
					if math.Float64bits(float64(v)) != math.Float64bits(float64(want[i])) && (v == v || want[i] == want[i]) {
						t.Fatalf("%T, %v of %d elements, form %d: element %d is %v, want %v", v, op, n, form, i, v, want[i])
					}
				}
				for i, v := range dst {
					if (i < at || i >= at+n) && v != guard {
						t.Fatalf("%T, %v of %d elements, form %d: wrote beside them", v, op, n, form)
					}
				}
			}
		}
	}
}

// All 16-bit floats, and float32 of every exponent and many fractions, are converted as package dtype does.
func TestVecHalf(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	r := randomFor(t)
	var singles []float32
	for high := range uint32(1 << 16) { // signs, exponents, and the bits of the fraction that bfloat16 keeps
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0x1000, 0x0fff, 0xffff, r.Uint32() & 0xffff} {
			singles = append(singles, math.Float32frombits(high<<16|low))
		}
	}
	for _, h := range all { // and halfway between neighbours
		x := dtype.F16(h).Float32()
		b := math.Float32bits(x)
		singles = append(singles, x, math.Float32frombits(b+0x0fff), math.Float32frombits(b+0x1000), math.Float32frombits(b+0x1001))
	}
	testWiden(t, "binary16", vecWidenF16, all, func(h uint16) float32 { return dtype.F16(h).Float32() })
	testWiden(t, "bfloat16", vecWidenBF16, all, func(h uint16) float32 { return dtype.BF16(h).Float32() })
	testRound(t, "binary16", vecRoundF16, singles, func(x float32) uint16 { return uint16(dtype.ToF16(x)) })
	testRound(t, "bfloat16", vecRoundBF16, singles, func(x float32) uint16 { return uint16(dtype.ToBF16(x)) })
}

func testWiden(t *testing.T, name string, convert func([]float32, []uint16), src []uint16, want func(uint16) float32) {
	check := func(src []uint16) {
		dst := make([]float32, len(src)+1)
		dst[len(src)] = 7
		convert(dst[:len(src)], src)
		for i, h := range src {
			if got, want := math.Float32bits(dst[i]), math.Float32bits(want(h)); got != want {
				t.Fatalf("%s %#04x is %#08x, want %#08x", name, h, got, want)
			}
		}
		if dst[len(src)] != 7 {
			t.Fatalf("%s: %d elements: wrote behind them", name, len(src))
		}
	}
	check(src)
	for n := range 101 {
		check(src[0x7bf0+n:][:n])
	}
}

func testRound(t *testing.T, name string, convert func([]uint16, []float32), src []float32, want func(float32) uint16) {
	check := func(src []float32) {
		dst := make([]uint16, len(src)+1)
		dst[len(src)] = 7
		convert(dst[:len(src)], src)
		for i, x := range src {
			if got, want := dst[i], want(x); got != want {
				t.Fatalf("%s of %v (%#08x) is %#04x, want %#04x", name, x, math.Float32bits(x), got, want)
			}
		}
		if dst[len(src)] != 7 {
			t.Fatalf("%s: %d elements: wrote behind them", name, len(src))
		}
	}
	check(src)
	for n := range 101 {
		check(src[1000+n:][:n])
	}
}

func BenchmarkVecBinary(b *testing.B) {
	const n = 1 << 24
	x, y, dst := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i], dst[i] = 1, 2, 3
	}
	run := func(name string, bytes int64, f func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(bytes)
			for b.Loop() {
				f()
			}
		})
	}
	for _, procs := range []int{1, 2} {
		host := &Backend{procs: procs}
		each := func(f func(lo, hi int)) func() { return func() { host.parallelRanges(n, 1<<14, f) } }
		run(fmt.Sprintf("copy/procs=%d", procs), 8*n, each(func(lo, hi int) { copy(dst[lo:hi], x[lo:hi]) }))
		run(fmt.Sprintf("go/procs=%d", procs), 12*n, each(func(lo, hi int) {
			d, x, y := dst[lo:hi], x[lo:hi], y[lo:hi]
			for i := range d {
				d[i] = x[i] + y[i]
			}
		}))
		for _, total := range []int{0, 4 * n} {
			run(fmt.Sprintf("add/streaming=%v/procs=%d", total > 0, procs), 12*n, each(func(lo, hi int) {
				vecBinary(backend.Add, dst[lo:hi], x[lo:hi], y[lo:hi], total)
			}))
		}
	}
	half := make([]uint16, n)
	run("widenF16", 6*n, func() { vecWidenF16(dst, half) })
	run("roundF16", 6*n, func() { vecRoundF16(half, dst) })
	run("widenBF16", 6*n, func() { vecWidenBF16(dst, half) })
	run("roundBF16", 6*n, func() { vecRoundBF16(half, dst) })
}
