//go:build !gc || nolinkname

package magazine

import "unsafe"

// processor returns a number that two goroutines seldom share and that one keeps for a while: a hash of where its stack
// is. Two that do share it meet at each other's locks, for as long as both live.
func processor() uint {
	var here byte
	return uint(uint64(uintptr(unsafe.Pointer(&here)))>>11*0x9E3779B97F4A7C15>>32) & (1<<31 - 1)
}
