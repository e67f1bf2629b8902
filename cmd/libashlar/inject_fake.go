//go:build libashlar && fakecuda

package main

// #cgo CFLAGS: -DASHLAR_FAKE
// #include "guard.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"time"
)

// stuckAfter is how long a call may wait for a lock after another has panicked.
const stuckAfter = time.Second

// The values of ashlar_call.inject.
const (
	injectNothing = iota
	injectPlain   // panic
	injectLocked  // panic with a lock locked, once another call is about to lock it
	injectWait    // lock that
)

var injected struct {
	sync.Mutex
	waits atomic.Bool
}

// injectPanic panics if this thread called ashlar_inject_panic, so that tests can check that no panic leaves the
// library, and that no thread waits for ever.
func injectPanic(c *C.ashlar_call) {
	what := c.inject
	c.inject = injectNothing
	switch what {
	case injectPlain:
		panic("injected")
	case injectLocked:
		injected.Lock()
		for !injected.waits.Load() {
			time.Sleep(time.Millisecond)
		}
		panic("injected with a lock")
	case injectWait:
		for injected.TryLock() { // the other call has not locked it yet
			injected.Unlock()
			time.Sleep(time.Millisecond)
		}
		injected.waits.Store(true)
		injected.Lock()
	}
}
