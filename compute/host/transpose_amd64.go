package host

import "unsafe"

//go:noescape
func transpose1(tile, src unsafe.Pointer, pitch, step, n int)

//go:noescape
func transpose2(tile, src unsafe.Pointer, pitch, step, n int)

//go:noescape
func transpose4(tile, src unsafe.Pointer, pitch, step, n int)

//go:noescape
func transpose8(tile, src unsafe.Pointer, pitch, step, n int)

// turners are by the size of an element.
var turners = [9]turner{
	1: {transpose1, 16, 64}, 2: {transpose2, 16, 32}, 4: {transpose4, 8, 16}, 8: {transpose8, 4, 8},
}

// streamRows writes rows of a tile, pitch bytes apart, to rows of dst, step bytes apart, past the caches. dst, step and
// the size of a row are multiples of 64.
//
//go:noescape
func streamRows(dst, tile unsafe.Pointer, step, pitch, size, rows int)
