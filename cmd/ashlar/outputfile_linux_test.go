package main

import (
	"strings"
	"testing"
)

// A folder in which no file can be made is found before the work begins: the missing input is not looked for.
func TestOutputsThatCannotBeMadeAreFoundFirst(t *testing.T) {
	for _, args := range [][]string{
		{"export", "--to", "json", "-o", "/proc/ashlar", "no/such"},
		{"plot", "-o", "/proc/ashlar.svg", "no/such"},
		{"plan", "-o", "/proc/ashlar", "no/such"},
		{"pack", "-o", "/proc/ashlar", "no/such"},
		{"bench", "driver", "-o", "/proc/ashlar", "--device", "sim:cost=no/such"},
		{"view", "--export", "/proc/ashlar.html", "no/such"},
	} {
		got := ashlar(t, nil, args...)
		if got.code != exitInput || !strings.HasPrefix(got.err, "ashlar: /proc/ashlar") ||
			!strings.Contains(got.err, " cannot be written: ") {
			t.Errorf("%q: exit code %d, %s", args, got.code, got.err)
		}
	}
}
