//go:build !gc || nolinkname

// Package processor tells goroutines which processor they run on, so that they can keep out of each other's way, and
// lets them wait for a moment.
package processor

import (
	"runtime"
	"unsafe"
)

// Number returns a number that two goroutines seldom share and that one keeps for a while: a hash of where its stack
// is. Two that do share it meet at each other's locks, for as long as both live.
func Number() uint {
	var here byte
	return uint(uint64(uintptr(unsafe.Pointer(&here)))>>11*0x9E3779B97F4A7C15>>32) & (1<<31 - 1)
}

// Pause gives up the processor for a moment: no instruction for shorter waits can be had.
func Pause(uint32) { runtime.Gosched() }
