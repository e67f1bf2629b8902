//go:build gc && !nolinkname

// Package processor tells goroutines which processor they run on, so that they can keep out of each other's way, and
// lets them wait for a moment.
package processor

import _ "unsafe" // for linkname

// procPin keeps the goroutine on its processor (a P of the scheduler) and returns the processor's number.
//
// It belongs to the runtime, whose source says "do not remove or change the type signature": the linker lets packages
// have it without a flag (https://go.dev/issue/67401). Should a release of Go take it away, the build tag nolinkname
// does without.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Number returns the number of the processor that the goroutine runs on, or ran on a moment ago: a hint, from which
// nothing follows but speed. 4 ns.
func Number() uint {
	p := procPin()
	procUnpin()
	return uint(p)
}

// procyield belongs to the runtime, which treats it like procPin.
//
//go:linkname procyield runtime.procyield
func procyield(cycles uint32)

// Pause lets some time pass, about 10 ns to 50 ns for each of n, without giving up the processor.
func Pause(n uint32) { procyield(n) }
