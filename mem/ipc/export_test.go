//go:build linux

package ipc

import (
	"testing"
	"time"
)

// BeAnotherUser makes this process another user's in the eyes of the package, until the test ends.
func BeAnotherUser(t testing.TB) {
	otherUser.Store(1)
	t.Cleanup(func() { otherUser.Store(0) })
}

// SetPatience sets how long servers wait for a peer, until the test ends.
func SetPatience(t testing.TB, d time.Duration) {
	testPatience.Store(int64(d))
	t.Cleanup(func() { testPatience.Store(0) })
}

// MaxRefused is the number of refused connections that a server keeps.
const MaxRefused = maxRefused
