package testkit

import (
	"fmt"
	"testing"
)

// Ports returns the first of n consecutive TCP ports of this machine that are free. Until the test ends the system
// gives none of them to a program that asks for any free port or that connects, so a test that listens there by number
// gets them. On systems other than Linux the ports are only free when Ports returns.
func Ports(t testing.TB, n int) int {
	t.Helper()
	var err error
	for range 1000 {
		var first int
		var free func()
		if first, free, err = reserve(n); err == nil {
			t.Cleanup(free)
			return first
		}
	}
	t.Fatalf("testkit: no %d consecutive free ports: %v", n, err)
	return 0
}

// reserve tries n ports from a free one on. It fails if one of them is taken.
func reserve(n int) (first int, free func(), err error) {
	var undo []func()
	free = func() {
		for _, f := range undo {
			f()
		}
	}
	for i := range n {
		want := 0
		if i > 0 {
			want = first + i
		}
		if want > 65535 {
			free()
			return 0, nil, fmt.Errorf("port %d: there is none", want)
		}
		port, release, err := reservePort(want)
		if err != nil {
			free()
			return 0, nil, fmt.Errorf("port %d: %w", want, err)
		}
		undo = append(undo, release)
		if i == 0 {
			first = port
		}
	}
	return first, free, nil
}
