package backend

import (
	"math"
	"testing"
)

// The known answers that come with Random123 (kat_vectors), the authors' own implementation.
func TestPhiloxKnownAnswers(t *testing.T) {
	ones := uint32(math.MaxUint32)
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{ones, ones, ones, ones},
			[2]uint32{ones, ones},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox4x32(c.counter, c.key); got != c.want {
			t.Errorf("counter %x, key %x: %x, want %x", c.counter, c.key, got, c.want)
		}
	}
	a, b := Philox(1<<32|7, 5<<32|3), philox4x32([4]uint32{7, 1}, [2]uint32{3, 5})
	if a != b {
		t.Errorf("words of counter and key: %x, want %x", a, b)
	}
}

// ulps is how many representable numbers lie between a and b.
func ulps(a, b float64) int64 {
	if a == b {
		return 0
	}
	x, y := int64(math.Float64bits(a)), int64(math.Float64bits(b))
	if x < 0 {
		x = math.MinInt64 - x
	}
	if y < 0 {
		y = math.MinInt64 - y
	}
	return max(x-y, y-x)
}

func TestExactLog(t *testing.T) {
	check := func(x float64) {
		if d := ulps(ExactLog(x), math.Log(x)); d > 1 {
			t.Fatalf("ExactLog(%v) = %v, %d ulp from %v", x, ExactLog(x), d, math.Log(x))
		}
	}
	for i := range uint64(200_000) {
		w := Philox(i, 42)
		v := uint64(w[0]) | uint64(w[1])<<32
		check(math.Float64frombits(1<<52 + v%(0x7fe<<52))) // any normal number
		check((float64(v>>12) + 0.5) * 0x1p-52)
		check(0.7 + float64(v>>11)*0x1p-53) // about 1, where results are small
	}
	for x := 0x1p-1020; x < math.MaxFloat64/2; x *= 2 {
		check(x)
		check(math.Nextafter(x, math.Inf(1)))
		check(math.Nextafter(x, 0) + x)
	}
	if !math.IsNaN(ExactLog(-1)) || !math.IsNaN(ExactLog(math.NaN())) || ExactLog(0) != math.Inf(-1) || ExactLog(math.Inf(1)) != math.Inf(1) {
		t.Error("ExactLog(-1), NaN, 0, +Inf:", ExactLog(-1), ExactLog(math.NaN()), ExactLog(0), ExactLog(math.Inf(1)))
	}
	// The bits themselves, which every backend makes.
	for _, c := range []struct {
		x    float64
		want uint64
	}{
		{0x1p-1074, 0xc0874385446d71c3}, // -744.4400719213812, which math.Log does not give on every machine
		{1e-20, 0xc047069e2aa2aa5b},
		{0.001, 0xc01ba18a998fffa0},
		{0.7, 0xbfd6d3c324e13f50},
		{0.99999, 0xbee4f8bc681df714},
		{3, 0x3ff193ea7aad030a},
		{1e300, 0x4085963447f87fb5},
	} {
		if got := math.Float64bits(ExactLog(c.x)); got != c.want {
			t.Errorf("ExactLog(%v) has bits %#x, want %#x", c.x, got, c.want)
		}
	}
}

func TestNormInv(t *testing.T) {
	// Wichura's own check values, and one from the far tail.
	for _, c := range []struct{ p, want float64 }{
		{0.25, -0.6744897501960817},
		{0.001, -3.090232306167814},
		{1e-20, -9.262340089798408},
		{0.5, 0},
		{0.75, 0.6744897501960817},
	} {
		if got := NormInv(c.p); math.Abs(got-c.want) > 1e-15*math.Abs(c.want) {
			t.Errorf("NormInv(%v) = %.17g, want %.17g", c.p, got, c.want)
		}
	}
	if NormInv(0) != math.Inf(-1) || NormInv(1) != math.Inf(1) || !math.IsNaN(NormInv(-0.1)) || !math.IsNaN(NormInv(2)) ||
		!math.IsNaN(NormInv(math.NaN())) {
		t.Error("at and beyond the ends:", NormInv(0), NormInv(1), NormInv(-0.1), NormInv(2))
	}
	// It inverts the distribution, which math.Erfc gives. In the tail the probability changes z*dz times, relatively.
	for i := range uint64(100_000) {
		w := Philox(i, 7)
		p := (float64((uint64(w[0])|uint64(w[1])<<32)>>12) + 0.5) * 0x1p-52
		if i%2 == 0 {
			p *= p * p // more of the tail
		}
		z := NormInv(p)
		back := math.Erfc(-z/math.Sqrt2) / 2
		if math.Abs(back-p) > 4e-15*p*(1+z*z) {
			t.Fatalf("NormInv(%v) = %v, below which a number is with probability %v", p, z, back)
		}
	}
	for _, c := range []struct {
		p    float64
		want uint64
	}{
		{1e-20, 0xc022865170b43a4b},
		{0x1p-53, 0xc0206b48528cea51},
		{1e-9, 0xc017fdc11f44b5a7},
		{0.074, 0xbff72567aa9caeda},
		{0.1, 0xbff4813c36e26d34},
		{0.3, 0xbfe0c7e39582c5fa},
		{0.999, 0x4008b8cbb7204470},
	} {
		if got := math.Float64bits(NormInv(c.p)); got != c.want {
			t.Errorf("NormInv(%v) has bits %#x, want %#x", c.p, got, c.want)
		}
	}
}
