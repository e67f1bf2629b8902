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
	SetPatienceFunc(t, func() time.Duration { return d })
}

// SetPatienceFunc lets f say how long, each time that a server begins to wait.
func SetPatienceFunc(t testing.TB, f func() time.Duration) {
	testPatience.Store(&f)
	t.Cleanup(func() { testPatience.Store(nil) })
}

// MaxRefused is the number of refused connections that a server keeps.
const MaxRefused = maxRefused
