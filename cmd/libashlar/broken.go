//go:build libashlar

package main

// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ashlar-go/ashlar/internal/dropin"
)

// brokenBy is the text of the first panic: a bug of Ashlar. The call that panicked may have left locks locked, and an
// allocator between two states. So every later call fails with this text, before it takes a lock. Memory that is in use
// stays as it is, and the program can save what is in it.
var brokenBy atomic.Pointer[string]

// errNotInit is the error of every other call before ashlarGoInit.
var errNotInit = fmt.Errorf("%w: init was not called", dropin.ErrInvalid)

// errUnusable returns the reason why there is no process.
func errUnusable() error {
	if text := brokenBy.Load(); text != nil {
		return errors.New("ashlar: stopped by a bug in an earlier call: " + *text)
	}
	return errNotInit
}

// breakDown makes all later calls fail.
func breakDown(text string) {
	if brokenBy.CompareAndSwap(nil, &text) {
		go abortStuck(text)
	}
	process.Store(nil)
}

// abortStuck ends the process with the text of the panic if, after a while, a call that began before the panic still
// waits for a lock: it would wait for ever.
func abortStuck(text string) {
	time.Sleep(stuckAfter)
	if isStuck(stacks()) {
		fmt.Fprintf(os.Stderr, "ashlar: a bug left a lock locked for which another thread waits: %s\n", text)
		C.abort()
	}
}

// isStuck reports whether the stacks of all goroutines have a call from C that waits for a mutex. Waits for other calls
// and for devices end by themselves.
func isStuck(stacks string) bool {
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		header, calls, _ := strings.Cut(stack, "\n")
		mutex := strings.Contains(header, "[sync.Mutex.") || strings.Contains(header, "[sync.RWMutex.")
		if mutex && strings.Contains(calls, "main.ashlarGo") {
			return true
		}
	}
	return false
}

func stacks() string {
	for b := make([]byte, 1<<20); ; b = make([]byte, 2*len(b)) {
		if n := runtime.Stack(b, true); n < len(b) {
			return string(b[:n])
		}
	}
}
