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

// SetTimeout sets how long servers wait for a peer, until the test ends.
func SetTimeout(t testing.TB, d time.Duration) {
	SetTimeoutFunc(t, func() time.Duration { return d })
}

// SetTimeoutFunc makes servers call f for that time whenever they begin to wait.
func SetTimeoutFunc(t testing.TB, f func() time.Duration) {
	testTimeout.Store(&f)
	t.Cleanup(func() { testTimeout.Store(nil) })
}

// MaxRefused is the number of refused connections that a server keeps.
const MaxRefused = maxRefused
