// Package goroutine tells goroutines apart, so that a value that belongs to one of them can say which calls are
// another's.
//
// An ID is the address of the runtime's record of the goroutine, taken by one instruction, or, where no assembly is at
// hand, the number that a stack trace begins with. It is compared and nothing else: what lies at the address is the
// runtime's. No two goroutines have one ID at the same time; one that has ended leaves its own to a later one.
package goroutine

// ID returns the calling goroutine's.
func ID() uintptr { return id() }
