//go:build linux

package ipc

import "testing"

// BeAnotherUser makes this process another user's in the eyes of the package, until the test ends.
func BeAnotherUser(t testing.TB) {
	own := effectiveUser
	effectiveUser = func() int { return own() + 1 }
	t.Cleanup(func() { effectiveUser = own })
}

// MaxRefused is the number of refused connections that a server keeps.
const MaxRefused = maxRefused
