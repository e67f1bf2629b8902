package testkit

import (
	"runtime"
	"testing"
)

// Numbers returns whole numbers that a flag, a text or a file may carry, in decimals: next to nothing, and around the
// limits of 31, 32, 53, 55 (sim.MaxTotal), 60, 63 and 64 bits.
func Numbers() []string {
	return []string{
		"0", "1", "-1", "2147483647", "2147483648", "-2147483649", "4294967295", "4294967296", "9007199254740993",
		"36028797018963967", "36028797018963968", "36028797018963969", "1152921504606846976", "9223372036854775806",
		"9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
		"-9223372036854775808", "-9223372036854775809",
	}
}

// Replaced calls visit with text changed in one place: each run of digits in it, and each of Numbers in its place.
func Replaced(text string, visit func(number, changed string)) {
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && text[end] >= '0' && text[end] <= '9' {
			end++
		}
		if end == at {
			at++
			continue
		}
		for _, n := range Numbers() {
			visit(n, text[:at]+n+text[end:])
		}
		at = end
	}
}

// Allocated is how many bytes this process has allocated so far, all goroutines together. It stops the world, because
// cheaper counts take in what a processor has allocated only now and then, up to a megabyte at once.
func Allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// AllocatesAtMost calls f, which reads an input of n bytes, and fails if it allocated more than each bytes for every
// byte of the input and more besides: a small input must not take much memory by what it declares.
func AllocatesAtMost(t testing.TB, n int, each, more uint64, f func()) {
	t.Helper()
	before := Allocated()
	f()
	if took, most := Allocated()-before, uint64(n)*each+more; took > most {
		t.Fatalf("an input of %d bytes took %d to be read, more than %d", n, took, most)
	}
}
