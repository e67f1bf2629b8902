// Package bytesize reads and writes sizes as people do: 18.2GiB, 512k, 2097152. It also writes shares and short
// numbers.
package bytesize

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	suffix string
	bytes  float64
}{
	{"b", 1},
	{"k", 1 << 10},
	{"m", 1 << 20},
	{"g", 1 << 30},
	{"t", 1 << 40},
	{"p", 1 << 50},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"pb", 1e15},
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"pib", 1 << 50},
}

// Parse reads a size: a number, with decimals if it has a unit, and an optional unit in any case. A lone letter means
// the binary unit (512k is 524288), KiB and its kin likewise, KB and its kin are decimal. Fractions of a byte are cut.
func Parse(s string) (int64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	suffix := strings.TrimSpace(text[len(digits):])
	if suffix == "" {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err == nil && n >= 0 {
			return n, nil
		}
		if errors.Is(err, strconv.ErrRange) && n > 0 {
			return 0, tooLarge(s)
		}
		return 0, fmt.Errorf("size %q: want a number of bytes, or a number with a unit such as 18.2GiB or 512k", s)
	}
	value, err := strconv.ParseFloat(digits, 64)
	if err != nil || value < 0 || math.IsNaN(value) || strings.ContainsAny(digits, "xpn_") {
		return 0, fmt.Errorf("size %q: want a number with a unit, such as 18.2GiB or 512k", s)
	}
	for _, u := range units {
		if u.suffix == suffix {
			if value*u.bytes >= math.MaxInt64 {
				return 0, tooLarge(s)
			}
			return int64(value * u.bytes), nil
		}
	}
	return 0, fmt.Errorf("size %q: unknown unit %q; use B, KiB, MiB, GiB, TiB (or k, m, g, t), or KB, MB, GB, TB", s,
		suffix)
}

func tooLarge(s string) error {
	return fmt.Errorf("size %q: too large: want at most %d bytes", s, int64(math.MaxInt64))
}

// Format writes n with the largest binary unit that leaves at least 1 before the point, and two decimals.
func Format(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes || n <= -u.bytes {
			return fmt.Sprintf("%.2f%s", float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}

// Exact writes n so that Parse reads back exactly n: with a binary unit if n is a whole number of them.
func Exact(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ThreeDigits writes a number that is not negative with three digits, or more if it has more before the point.
func ThreeDigits(x float64) string {
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// Percent writes a part of a whole: "76 %", "7.4 %" or "<0.1 %". Any part of an empty whole is "0 %".
func Percent(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case p > 0 && p < 0.05:
		return "<0.1 %"
	case p > 0 && p < 9.95:
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}
