package dtype_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// elements returns elements of d: all there are of 16 bits or fewer; else those where something changes for another
// type, and some by chance.
func elements(d dtype.DType, r *rand.Rand) []byte {
	var out []byte
	if d == dtype.Bool {
		return []byte{0, 1}
	}
	if d.Size() <= 2 {
		for i := range 1 << (8 * d.Size()) {
			out = binary.LittleEndian.AppendUint16(out, uint16(i))[:len(out)+d.Size()]
		}
		return out
	}
	edges := []float64{0, math.Inf(1), math.NaN(), math.MaxFloat32, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-310}
	for e := -160; e <= 130; e++ {
		edges = append(edges, math.Ldexp(1, e), math.Ldexp(1.5, e), math.Ldexp(1+0x1p-11+0x1p-40, e))
	}
	for _, f := range formats { // what each narrow format rounds otherwise
		for range 40 {
			mid := f.midpoint(r.IntN(len(f.values)))
			edges = append(edges, mid, math.Nextafter(mid, 0), math.Nextafter(mid, math.Inf(1)), wide(math.Nextafter32(float32(mid), 0)))
		}
	}
	for _, x := range slices.Clone(edges) {
		edges = append(edges, -x, math.Nextafter(x, 0), wide(math.Nextafter32(float32(x), 0)))
	}
	for i, x := range edges {
		n := number{re: x, im: edges[(i*7)%len(edges)]}
		out = encode(out, d, n)
		if d.IsInteger() { // the edges saturate: the same in integers
			bits := r.Uint64() >> r.IntN(64)
			mask := uint64(1)<<r.IntN(64) - 1
			for _, u := range []uint64{bits, -bits, mask, ^mask, bits &^ mask, bits&^mask | mask>>1 + 1, bits&^mask | mask>>1, bits&^mask | mask>>1 + 2} {
				out = binary.LittleEndian.AppendUint64(out, u)[:len(out)+d.Size()]
			}
		}
	}
	for range 1000 * d.Size() {
		out = append(out, byte(r.Uint32()))
	}
	return out
}

// Every pair of types: all elements of the small types, the edges of the large ones, against the oracle; from and to
// memory that is aligned and that is not, and one by one.
func TestConvertEveryPair(t *testing.T) {
	r := testkit.Rand(t)
	for _, from := range dtype.All() {
		src := elements(from, r)
		n := len(src) / from.Size()
		numbers := make([]number, n)
		for i := range numbers {
			numbers[i] = decode(from, src[i*from.Size():])
		}
		for _, to := range dtype.All() {
			var want []byte
			if to == from {
				want = src
			} else {
				for _, x := range numbers {
					want = encode(want, to, x)
				}
			}
			if from == dtype.Complex64 && to == dtype.Float32 || from == dtype.Complex128 && to == dtype.Float64 ||
				to == dtype.Complex64 && from == dtype.Float32 || to == dtype.Complex128 && from == dtype.Float64 {
				want = moved(want, to, src, from)
			}
			got := make([]byte, n*to.Size())
			if done := dtype.Convert(got, to, src, from); done != n {
				t.Fatalf("%v to %v: %d elements of %d", from, to, done, n)
			}
			compare(t, "Convert", to, from, src, got, want)

			part := min(n, 700)
			odd := append([]byte{0}, src[:part*from.Size()]...)[1:]
			out := make([]byte, part*to.Size()+2)
			dtype.Convert(out[1:len(out)-1], to, odd, from)
			compare(t, "Convert, not aligned", to, from, src, out[1:len(out)-1], want[:part*to.Size()])
			if out[0] != 0 || out[len(out)-1] != 0 {
				t.Errorf("%v to %v: wrote beyond dst", from, to)
			}
			if isFloaty(from) && isFloaty(to) && from.Size() == to.Size() {
				continue // a Scalar does not keep what is in a NaN
			}
			var one [16]byte
			for i := range part {
				clear(one[:])
				from.Load(src[i*from.Size():]).Put(one[:], to)
				if w := want[i*to.Size():][:to.Size()]; !bytes.Equal(one[:to.Size()], w) && !math.IsNaN(numbers[i].re) && !math.IsNaN(numbers[i].im) {
					t.Fatalf("Put: %v %x to %v: %x, want %x", from, src[i*from.Size():][:from.Size()], to, one[:to.Size()], w)
				}
			}
		}
	}
}

func isFloaty(d dtype.DType) bool { return d.IsFloat() || d.IsComplex() }

// moved sets the real parts of want to the bits that src has, where the format stays.
func moved(want []byte, to dtype.DType, src []byte, from dtype.DType) []byte {
	part := min(to.Size(), from.Size())
	for i := range len(src) / from.Size() {
		copy(want[i*to.Size():][:part], src[i*from.Size():])
	}
	return want
}

func compare(t *testing.T, what string, to, from dtype.DType, src, got, want []byte) {
	t.Helper()
	wrong := 0
	for i := range len(want) / to.Size() {
		g, w := got[i*to.Size():][:to.Size()], want[i*to.Size():][:to.Size()]
		if !bytes.Equal(g, w) {
			if wrong++; wrong < 5 {
				t.Errorf("%s: %v %x to %v: %x, want %x", what, from, src[i*from.Size():][:from.Size()], to, g, w)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%s: %v to %v: %d of %d wrong", what, from, to, wrong, len(want)/to.Size())
	}
}

// Rounding changes at the numbers of a format, at the midpoints between them, and nowhere else: both, and their
// neighbours, of either sign, for every number of every narrow format, from float32 and from float64.
func TestRoundingToNarrow(t *testing.T) {
	to32 := map[dtype.DType]func(float32) int{
		dtype.Float16:      func(x float32) int { return int(dtype.ToF16(x)) },
		dtype.BFloat16:     func(x float32) int { return int(dtype.ToBF16(x)) },
		dtype.Float8E5M2:   func(x float32) int { return int(dtype.ToF8E5M2(x)) },
		dtype.Float8E4M3FN: func(x float32) int { return int(dtype.ToF8E4M3FN(x)) },
	}
	to64 := map[dtype.DType]func(float64) int{
		dtype.Float16:      func(x float64) int { return int(dtype.F16FromFloat64(x)) },
		dtype.BFloat16:     func(x float64) int { return int(dtype.BF16FromFloat64(x)) },
		dtype.Float8E5M2:   func(x float64) int { return int(dtype.F8E5M2FromFloat64(x)) },
		dtype.Float8E4M3FN: func(x float64) int { return int(dtype.F8E4M3FNFromFloat64(x)) },
	}
	inf := math.Inf(1)
	for d, f := range formats {
		points := []float64{inf, math.NaN(), math.MaxFloat64, 5e-324}
		for code := range f.values {
			points = append(points, f.values[code], f.midpoint(code))
		}
		var src32 []float32
		var src64, exact []float64
		for _, x := range points {
			y := float32(x)
			for _, z := range []float64{x, -x} {
				toward := math.Copysign(inf, z)
				src64 = append(src64, z, math.Nextafter(z, 0), math.Nextafter(z, toward), z*(1+0x1p-30), z*(1-0x1p-30), z*(1+0x1p-25), z*(1-0x1p-25))
			}
			if wide(y) == x || x != x {
				for _, z := range []float32{y, -y} {
					src32 = append(src32, z, math.Nextafter32(z, 0), math.Nextafter32(z, float32(math.Copysign(inf, wide(z)))))
				}
			}
		}
		bulk := make([]byte, len(src32)*d.Size())
		b32 := make([]byte, 0, 4*len(src32))
		for _, x := range src32 {
			b32 = binary.LittleEndian.AppendUint32(b32, math.Float32bits(x))
			exact = append(exact, wide(x))
		}
		dtype.Convert(bulk, d, b32, dtype.Float32)
		wrong := 0
		for i, x := range exact {
			want := nearest(f, number{re: x})
			got := int(bulk[i*d.Size()])
			if d.Size() == 2 {
				got |= int(bulk[i*2+1]) << 8
			}
			if (to32[d](src32[i]) != want || got != want) && wrong < 5 {
				wrong++
				t.Errorf("%v of the float32 %x: %#x, converted %#x, want %#x", d, x, to32[d](src32[i]), got, want)
			}
		}
		for _, x := range src64 {
			if got, want := to64[d](x), nearest(f, number{re: x}); got != want && wrong < 5 {
				wrong++
				t.Errorf("%v of the float64 %x: %#x, want %#x", d, x, got, want)
			}
		}
	}
}

// Some values by hand, in case the oracle has the same error.
func TestNarrowByHand(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"1 as float16", int(dtype.ToF16(1)), 0x3c00},
		{"65504 as float16", int(dtype.ToF16(65504)), 0x7bff},
		{"65519 as float16", int(dtype.ToF16(65519)), 0x7bff},
		{"65520 as float16", int(dtype.ToF16(65520)), 0x7c00},
		{"-2^-24 as float16", int(dtype.ToF16(-0x1p-24)), 0x8001},
		{"2^-25 as float16, a tie with 0", int(dtype.ToF16(0x1p-25)), 0},
		{"1+2^-11 as float16, a tie", int(dtype.F16FromFloat64(1 + 0x1p-11)), 0x3c00},
		{"a little more, which float32 forgets", int(dtype.F16FromFloat64(1 + 0x1p-11 + 0x1p-40)), 0x3c01},
		{"the same, by way of float32", int(dtype.ToF16(float32(1 + 0x1p-11 + 0x1p-40))), 0x3c00},
		{"1+2^-8 as bfloat16, a tie", int(dtype.ToBF16(1 + 0x1p-8)), 0x3f80},
		{"1+3*2^-8 as bfloat16, a tie", int(dtype.ToBF16(1 + 3*0x1p-8)), 0x3f82},
		{"the greatest float32 as bfloat16", int(dtype.ToBF16(math.MaxFloat32)), 0x7f80},
		{"448 as e4m3", int(dtype.ToF8E4M3FN(448)), 0x7e},
		{"464 as e4m3, a tie", int(dtype.ToF8E4M3FN(464)), 0x7e},
		{"464.1 as e4m3", int(dtype.ToF8E4M3FN(464.1)), 0x7f},
		{"-infinity as e4m3", int(dtype.ToF8E4M3FN(float32(math.Inf(-1)))), 0xff},
		{"57344 as e5m2", int(dtype.ToF8E5M2(57344)), 0x7b},
		{"61440 as e5m2, a tie", int(dtype.ToF8E5M2(61440)), 0x7c},
		{"2^-10 as e4m3, a tie with 0", int(dtype.ToF8E4M3FN(0x1p-10)), 0},
		{"2^-17 as e5m2, a tie with 0", int(dtype.ToF8E5M2(0x1p-17)), 0},
		{"-NaN as float16", int(dtype.ToF16(math.Float32frombits(0xff800001))), 0xfe00},
		{"-NaN as bfloat16", int(dtype.ToBF16(math.Float32frombits(0xff800001))), 0xffc0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", c.what, c.got, c.want)
		}
	}
}

func TestConvertAsPyTorch(t *testing.T) {
	for _, line := range golden(t, "casts.txt") {
		from, to := parse(t, line[0]), parse(t, line[1])
		src, want := bits(t, line[2]), bits(t, line[3])
		got := make([]byte, len(want))
		dtype.Convert(got, to, src, from)
		if x := decode(from, src); isFloaty(from) && isFloaty(to) && (math.IsNaN(x.re) || math.IsNaN(x.im)) {
			if y := decode(to, got); math.IsNaN(y.re) != math.IsNaN(x.re) { // PyTorch makes several
				t.Errorf("%v %s to %v: %x", from, line[2], to, got)
			}
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%v %s to %v: %x, PyTorch has %x (low byte first)", from, line[2], to, got, want)
		}
	}
}

// bits returns the bytes of a number written with the high byte first.
func bits(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(b)
	return b
}

func TestConvertSlice(t *testing.T) {
	halves := make([]dtype.F16, 3)
	dtype.ConvertSlice(halves, []float32{1, -2, 0.5})
	if want := []dtype.F16{0x3c00, 0xc000, 0x3800}; !slices.Equal(halves, want) {
		t.Errorf("%#x", halves)
	}
	back := make([]celsius, 3)
	dtype.ConvertSlice(back, halves)
	if want := []celsius{1, -2, 0.5}; !slices.Equal(back, want) {
		t.Error(back)
	}
	dtype.ConvertSlice([]int8{}, []complex128(nil))
}

// A bool of another value than 0 and 1 counts as 1.
func TestConvertOddBool(t *testing.T) {
	dst := make([]byte, 6)
	dtype.Convert(dst, dtype.Int16, []byte{0, 1, 255}, dtype.Bool)
	if !bytes.Equal(dst, []byte{0, 0, 1, 0, 1, 0}) {
		t.Error(dst)
	}
	if !dtype.Bool.Load([]byte{7}).Bool() {
		t.Error("7 is false")
	}
}

func TestConvertRefuses(t *testing.T) {
	for what, f := range map[string]func(){
		"dst too long":     func() { dtype.Convert(make([]byte, 5), dtype.Float16, make([]byte, 8), dtype.Float32) },
		"dst too short":    func() { dtype.Convert(make([]byte, 2), dtype.Float16, make([]byte, 8), dtype.Float32) },
		"half an element":  func() { dtype.Convert(make([]byte, 4), dtype.Float16, make([]byte, 7), dtype.Float32) },
		"no type":          func() { dtype.Converter(dtype.Invalid, dtype.Float32) },
		"Load of nothing":  func() { dtype.Float32.Load([]byte{1, 2, 3}) },
		"Put into nothing": func() { dtype.ScalarOf(1).Put(make([]byte, 7), dtype.Complex64) },
		"Size of no type":  func() { dtype.DType(18).Size() },
		"ScalarOf text":    func() { dtype.ScalarOf("1") },
	} {
		testkit.WantPanic(t, what, "", f)
	}
}

// Conversions of several steps share no memory with each other.
func TestConvertAtOnce(t *testing.T) {
	const n = 5000
	src := make([]uint16, n)
	want := make([]dtype.BF16, n)
	for i := range src {
		src[i], want[i] = uint16(i), dtype.BF16FromFloat64(float64(i))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				got := make([]dtype.BF16, n)
				if dtype.ConvertSlice(got, src); !slices.Equal(got, want) {
					t.Error("another result at once")
				}
			}
		})
	}
	all.Wait()
}

func TestConverterDoesNotAllocate(t *testing.T) {
	src, dst := make([]byte, 4096), make([]byte, 4096)
	for _, pair := range [][2]dtype.DType{{dtype.Float16, dtype.Float32}, {dtype.Uint16, dtype.Float16}} {
		to, from := pair[0], pair[1]
		n := len(src) / max(to.Size(), from.Size())
		convert := dtype.Converter(to, from)
		if got := testing.AllocsPerRun(100, func() { convert(dst[:n*to.Size()], src[:n*from.Size()]) }); got >= 1 {
			t.Errorf("%v to %v: %v allocations", from, to, got)
		}
	}
}

func BenchmarkConverter(b *testing.B) {
	for _, pair := range [][2]dtype.DType{
		{dtype.Float16, dtype.Float32},
		{dtype.Float32, dtype.Float16},
		{dtype.BFloat16, dtype.Float32},
		{dtype.Float32, dtype.BFloat16},
		{dtype.Float64, dtype.Float32},
		{dtype.Float32, dtype.Float64},
		{dtype.Float32, dtype.Int32},
		{dtype.Float32, dtype.Int64},
		{dtype.Float32, dtype.Uint8},
		{dtype.Int32, dtype.Float32},
		{dtype.Float8E4M3FN, dtype.Float32},
		{dtype.Float32, dtype.Float8E4M3FN},
		{dtype.BFloat16, dtype.Float16},
		{dtype.Float16, dtype.Float64},
	} {
		to, from := pair[0], pair[1]
		for _, n := range []int{1, 16384} {
			b.Run(from.String()+"-"+to.String()+"/"+map[int]string{1: "one", 16384: "many"}[n], func(b *testing.B) {
				src, dst := make([]byte, n*from.Size()), make([]byte, n*to.Size())
				for i := range n {
					dtype.ScalarOf(float64(i%100)-50.25).Put(src[i*from.Size():], from)
				}
				convert := dtype.Converter(to, from)
				for b.Loop() {
					convert(dst, src)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/element")
			})
		}
	}
}
