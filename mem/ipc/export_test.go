//go:build linux

package ipc

import "testing"

// BeAnotherUser makes this process another user's in the eyes of the package, until the test ends.
func BeAnotherUser(t testing.TB) {
	otherUser.Store(1)
	t.Cleanup(func() { otherUser.Store(0) })
}

// MaxRefused is the number of refused connections that a server keeps.
const MaxRefused = maxRefused
