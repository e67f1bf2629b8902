//go:build libashlar && fakecuda

package main

// #cgo CFLAGS: -DASHLAR_FAKE
// #include "guard.h"
import "C"

// injectPanic panics if this thread called ashlar_inject_panic, so that tests can check that no panic leaves the
// library.
func injectPanic(c *C.ashlar_call) {
	if c.inject != 0 {
		c.inject = 0
		panic("injected")
	}
}
