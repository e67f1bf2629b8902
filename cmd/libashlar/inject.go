//go:build libashlar && !fakecuda

package main

// #include "guard.h"
import "C"

import "time"

// stuckAfter is how long a call may wait for a lock after another has panicked.
const stuckAfter = 10 * time.Second

// injectPanic panics in builds for tests: see inject_fake.go.
func injectPanic(*C.ashlar_call) {}
