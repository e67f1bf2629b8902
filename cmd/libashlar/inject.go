//go:build libashlar && !fakecuda

package main

// #include "guard.h"
import "C"

// injectPanic panics in builds for tests: see inject_fake.go.
func injectPanic(*C.ashlar_call) {}
