package backendtest

import (
	"math"
	"math/big"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
)

// TestPrecise holds the precise functions against digits from tables, and against each other.
func TestPrecise(t *testing.T) {
	sin, cos := preciseSincos(1)
	sinHuge, cosHuge := preciseSincos(1e22)
	for _, c := range []struct {
		name, want string
		got        *big.Float
	}{
		{"pi", "3.1415926535897932384626433832795028841971693993751", piWide},
		{"ln2", "0.69314718055994530941723212145817656807550013436026", ln2},
		{"e", "2.7182818284590452353602874713526624977572470936999", preciseExp(one)},
		{"log 10", "2.3025850929940456840179914546843642076011014886288", preciseLog(number(10))},
		{"sin 1", "0.84147098480789650665250232163029899962256306079837", sin},
		{"cos 1", "0.54030230586813971740093660744297660373231042061792", cos},
		{"sin 1e22", "-0.85220084976718880177270589375302936826176215041004", sinHuge},
		{"sin^2+cos^2", "1", sum(times(sinHuge, sinHuge), times(cosHuge, cosHuge))},
		{"tanh 1", "0.76159415595576488811945828260479359041276859725794", preciseTanh(one)},
		{"erf 1", "0.84270079294971486934122063508260925929606699796630", preciseErf(one)},
		{"atan2 1 -1", "2.3561944901923449288469825374596271631478770495313", preciseAtan2(1, -1)},
		{"2^0.5", "1.4142135623730950488016887242096980785696718753769", precisePow(2, 0.5)},
		{"log1p 1e-20", "9.9999999999999999999500000000000000003e-21", preciseLog1p(decimal(t, "1e-20"))},
		{"expm1 1e-20", "1.000000000000000000005000000000000000e-20", preciseExpm1(decimal(t, "1e-20"))},
	} {
		want := decimal(t, c.want)
		if off := minus(c.got, want); off.Sign() != 0 && off.MantExp(nil)-want.MantExp(nil) > -105 {
			t.Errorf("%s: got %.45g, want %s", c.name, c.got, c.want)
		}
	}
	for _, x := range []float64{1e-300, 1e-9, 0.1, 0.7, 1 + 0x1p-52, 3, 700} {
		if back := rounded(preciseLog(preciseExp(number(x)))); back != x && x > 1e-30 {
			t.Errorf("log(exp(%v)) is %v", x, back)
		}
		if back := rounded(preciseLog1p(preciseExpm1(number(x)))); back != x {
			t.Errorf("log1p(expm1(%v)) is %v", x, back)
		}
	}
}

func decimal(t *testing.T, digits string) *big.Float {
	x, ok := number(0).SetString(digits)
	if !ok {
		t.Fatalf("%q is no number", digits)
	}
	return x
}

// TestFormats: every pattern of the small formats comes back, neighbours are an ulp apart, and between two of them the
// nearer one is taken, of the middle the even one.
func TestFormats(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float8E5M2, dtype.Float8E4M3FN} {
		f := formats[d]
		for b := range uint64(1) << (8 * d.Size()) {
			x := f.decode(b)
			if math.IsNaN(x) {
				if !math.IsNaN(f.decode(f.encode(x))) {
					t.Errorf("%v: %#x is NaN, and encoded again it is not", d, b)
				}
				continue
			}
			if back := f.encode(x); back != b {
				t.Fatalf("%v: %#x is %v, and that is %#x", d, b, x, back)
			}
			next := f.decode(b + 1)
			if x < 0 || !(next > x) || math.IsInf(next, 0) {
				continue
			}
			if u := f.ulp(x); next-x != u {
				t.Fatalf("%v: after %v comes %v, not %v later", d, x, next, u)
			}
			even := x
			if b&1 == 1 {
				even = next
			}
			middle := (x + next) / 2
			for _, c := range []struct{ x, want float64 }{
				{middle, even},
				{math.Nextafter(middle, 0), x},
				{math.Nextafter(middle, next), next},
				{-middle, -even},
			} {
				if got := f.round(c.x); got != c.want {
					t.Fatalf("%v: %v rounds to %v, want %v", d, c.x, got, c.want)
				}
			}
		}
	}
	for _, x := range []float64{1, -0.1, 1e-40, 1e-45, 3e-46, 1e38, 3.5e38, 16777217, math.Inf(-1)} {
		if got, want := formats[dtype.Float32].round(x), float64(float32(x)); got != want {
			t.Errorf("float32: %v rounds to %v, want %v", x, got, want)
		}
		if got, want := formats[dtype.Float32].encode(x), uint64(math.Float32bits(float32(x))); got != want {
			t.Errorf("float32: %v is %#x, want %#x", x, got, want)
		}
		if got, want := formats[dtype.Float64].encode(x), math.Float64bits(x); got != want {
			t.Errorf("float64: %v is %#x, want %#x", x, got, want)
		}
	}
}
