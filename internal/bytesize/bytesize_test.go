package bytesize

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"0", 0},
		{"1", 1},
		{"2097152", 2 << 20},
		{"9223372036854775807", math.MaxInt64},
		{"  42  ", 42},
		{"1b", 1},
		{"512B", 512},
		{"512k", 512 << 10},
		{"512K", 512 << 10},
		{"1m", 1 << 20},
		{"3g", 3 << 30},
		{"2T", 2 << 40},
		{"1p", 1 << 50},
		{"1KiB", 1 << 10},
		{"1 MiB", 1 << 20},
		{"1  gib ", 1 << 30},
		{"1TIB", 1 << 40},
		{"1PiB", 1 << 50},
		{"1kB", 1000},
		{"1MB", 1_000_000},
		{"80GB", 80_000_000_000},
		{"1TB", 1e12},
		{"1pb", 1e15},
		{"18.2GiB", 19542101196}, // 18.2 * 2^30 = 19542101196.8: fractions of a byte are cut
		{"0.5k", 512},
		{".5k", 512},
		{"1.k", 1024},
		{"0.1b", 0},
		{"1.5KB", 1500},
		{"0GiB", 0},
		{"8191PiB", 8191 << 50},
		{"139.80GiB", 150109106995},
	} {
		got, err := Parse(c.text)
		if err != nil || got != c.want {
			t.Errorf("Parse(%q) = %d, %v; want %d", c.text, got, err, c.want)
		}
	}
}

// TestParseRefuses: each error shows the text and says what would have been right.
func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"":                                   "number of bytes",
		" ":                                  "number of bytes",
		"-1":                                 "number of bytes",
		"1.5":                                "number of bytes",
		"1e3":                                "number of bytes",
		"0x10":                               "number of bytes",
		"1_000":                              "number of bytes",
		"9223372036854775808":                "too large: want at most 9223372036854775807 bytes",
		"-9223372036854775809":               "number of bytes",
		"k":                                  "number with a unit",
		"GiB":                                "number with a unit",
		"-1k":                                "number with a unit",
		"-0.5GiB":                            "number with a unit",
		"1_000k":                             "number with a unit",
		"0x1k":                               "number with a unit",
		"1.2.3k":                             "number with a unit",
		"1,5k":                               "number with a unit",
		"inf":                                "number with a unit",
		"nan":                                "number with a unit",
		"twelve":                             "number with a unit",
		"1x":                                 `unknown unit "x"`,
		"1kk":                                `unknown unit "kk"`,
		"1 k b":                              `unknown unit "k b"`,
		"1EiB":                               `unknown unit "eib"`,
		"1Kibi":                              `unknown unit "kibi"`,
		"8192PiB":                            "too large",
		"9223372036854775808b":               "too large",
		"1" + strings.Repeat("0", 300) + "k": "too large",
	} {
		got, err := Parse(text)
		if err == nil || got != 0 || !strings.Contains(err.Error(), says) {
			t.Errorf("Parse(%q) = %d, %v; want an error with %q", text, got, err, says)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		n    int64
		want string
	}{
		{0, "0B"},
		{1, "1B"},
		{1023, "1023B"},
		{1024, "1.00KiB"},
		{1536, "1.50KiB"},
		{1<<20 - 1, "1024.00KiB"},
		{1 << 20, "1.00MiB"},
		{20 << 20, "20.00MiB"},
		{150109880320, "139.80GiB"},
		{1 << 40, "1.00TiB"},
		{math.MaxInt64, "8388608.00TiB"},
		{math.MinInt64, "-8388608.00TiB"},
		{-1, "-1B"},
		{-1536, "-1.50KiB"},
	} {
		if got := Format(c.n); got != c.want {
			t.Errorf("Format(%d) = %q, want %q", c.n, got, c.want)
		}
	}
}

func TestExact(t *testing.T) {
	for _, c := range []struct {
		n    int64
		want string
	}{
		{0, "0"},
		{1, "1"},
		{1000, "1000"},
		{1024, "1KiB"},
		{1536, "1536"},
		{3 << 10, "3KiB"},
		{2 << 20, "2MiB"},
		{1025 << 10, "1025KiB"},
		{140 << 30, "140GiB"},
		{5 << 40, "5TiB"},
		{math.MaxInt64, "9223372036854775807"},
	} {
		if got := Exact(c.n); got != c.want {
			t.Errorf("Exact(%d) = %q, want %q", c.n, got, c.want)
		}
	}
}

// TestExactRoundTrips for sizes of every magnitude and with every number of trailing zero bits.
func TestExactRoundTrips(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		n := int64(rng.Uint64()>>1) >> rng.IntN(63)
		n = n >> rng.IntN(8) << rng.IntN(8)
		n &= -1 << rng.IntN(60)
		if n < 0 {
			continue
		}
		if got, err := Parse(Exact(n)); err != nil || got != n {
			t.Fatalf("seed %d: Parse(%q) = %d, %v; want %d", seed, Exact(n), got, err, n)
		}
	}
}

// FuzzParse: no text panics, a size is not negative, and what was read is written so that it reads back the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"0", "18.2GiB", "512k", "2097152", "-1", "1e3k", "inf", "nanb", "0x1p4k", ".b",
		"9223372036854775807b", "1 k b", "\x00k", "１k",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(text)
		if err != nil {
			if n != 0 || !strings.Contains(err.Error(), "size ") {
				t.Errorf("Parse(%q) = %d, %v", text, n, err)
			}
			return
		}
		if n < 0 {
			t.Errorf("Parse(%q) = %d", text, n)
		}
		if back, err := Parse(Exact(n)); err != nil || back != n {
			t.Errorf("Parse(%q) is %d; Parse(%q) is %d, %v", text, n, Exact(n), back, err)
		}
		if shown, err := Parse(Format(n)); err != nil && n < 1<<62 {
			t.Errorf("Parse(%q) = %d, %v: Format wrote it", Format(n), shown, err)
		}
	})
}

func TestPercent(t *testing.T) {
	for part, want := range map[int64]string{
		0: "0 %", 1: "<0.1 %", 600: "0.1 %", 52_000: "5.2 %", 820_000: "82 %", 1_000_000: "100 %",
	} {
		if got := Percent(part, 1_000_000); got != want {
			t.Errorf("%d millionths: %s, want %s", part, got, want)
		}
	}
	if got := Percent(1, 0); got != "0 %" {
		t.Errorf("1 of nothing: %s", got)
	}
}

func TestThreeDigits(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0.00", 1.006: "1.01", 9.994: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100", 2048.4: "2048",
	} {
		if got := ThreeDigits(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}
