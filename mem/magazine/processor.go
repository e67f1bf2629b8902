//go:build gc && !nolinkname

package magazine

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

// processor returns the number of the processor that the goroutine runs on, or ran on a moment ago: a hint, from which
// nothing follows but speed. 4 ns.
func processor() uint {
	p := procPin()
	procUnpin()
	return uint(p)
}
